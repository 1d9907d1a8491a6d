"""Of which loaders it is known, without their framework, that they yield the same batches again."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from supervisor_core.training.position import LOADER, MOST_SAMPLERS, SAMPLER, all_samplers, unknown_order


def theirs(package: str, **attributes: Any) -> Any:
    """A loader, or a sampler, of a package's."""

    def iterate(self: Any) -> Iterator[Any]:
        return iter(())

    iterate.__module__ = f"{package}.utils.data"
    kind = type("Loader", (), {"__iter__": iterate, "__module__": iterate.__module__})
    item = kind()
    vars(item).update(attributes)
    return item


class Own:
    """Of the program's own."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Told(Own):
    """Has an order for each epoch."""

    def set_epoch(self, epoch: int) -> None: ...


def test_what_is_not_known() -> None:
    """Is said by the name of the class that does it."""
    for loader, reasons in [
        ([1, 2], ()),
        (range(3), ()),
        (theirs("torch"), ()),
        (theirs("torchdata"), ()),
        (theirs("torch", sampler=theirs("torch"), batch_sampler=[[1], [2]]), ()),
        (theirs("torch", sampler=theirs("torch", sampler=Told())), ()),
        (theirs("torch", batch_sampler=theirs("torch", sampler=Own())), (SAMPLER.format("Own"),)),
        (theirs("torch", sampler=Own()), (SAMPLER.format("Own"),)),
        (theirs("torchaudio"), (LOADER.format("Loader"),)),
        (zip(), (LOADER.format("zip"),)),
        ((item for item in ()), (LOADER.format("generator"),)),
        (Own(), (LOADER.format("Own"),)),
    ]:
        assert unknown_order(loader) == reasons


def test_samplers_in_samplers() -> None:
    """Are found to a bounded depth; each once, also where they contain each other."""
    one, other = SimpleNamespace(), SimpleNamespace()
    one.sampler, other.batch_sampler = other, one
    assert all_samplers(SimpleNamespace(sampler=one)) == [one, other]

    class Endless:
        @property
        def sampler(self) -> Any:
            return Endless()

    assert len(all_samplers(Endless())) == MOST_SAMPLERS

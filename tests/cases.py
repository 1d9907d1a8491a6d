"""`each`: a table of cases that is one test, where all cases show one promise and need no fixture of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest


def each(names: str, cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call the test once per case, as ``pytest.mark.parametrize`` does, but as one item.

    The case is printed first, so that pytest shows the one that failed. Fixtures are made once for all cases, but each
    has a directory ``tmp_path`` and a ``monkeypatch`` of its own, and finds ``caplog`` and ``capsys`` empty.

    Args:
        names: the arguments that a case gives, separated by commas.
        cases: a value per case, or a tuple of them if there are several names.
    """
    arguments, rows = [name.strip() for name in names.split(",")], list(cases)
    assert rows, "a table without cases tests nothing"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        assert set(arguments) <= set(signature.parameters), f"{test.__name__} does not take {names}"

        @wraps(test)
        def run(**fixtures: Any) -> None:
            for number, row in enumerate(rows):
                row = row.values if hasattr(row, "marks") else row if len(arguments) > 1 else (row,)
                case = dict(zip(arguments, row, strict=True))
                print("case:", ", ".join(f"{name}={_shown(value)}" for name, value in case.items()))
                with _own(fixtures, f"case-{number}") as own:
                    test(**own, **case)

        kept = [each for each in signature.parameters.values() if each.name not in arguments]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return run

    return decorate


@contextmanager
def _own(fixtures: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    own = dict(fixtures)
    if "tmp_path" in own:
        own["tmp_path"] = own["tmp_path"] / name
        own["tmp_path"].mkdir()
    if "caplog" in own:
        own["caplog"].clear()
    if "capsys" in own:
        own["capsys"].readouterr()
    with pytest.MonkeyPatch.context() as patch:
        if "monkeypatch" in own:
            own["monkeypatch"] = patch
        yield own


def _shown(value: Any) -> str:
    return (
        f"{value!r:.300}"
        if isinstance(value, (str, bytes, int, float, tuple, list, dict, type(None)))
        else str(type(value))
    )

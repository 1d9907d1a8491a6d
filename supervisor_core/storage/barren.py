"""`BarrenStretches`: long stretches of a listing without a file that is watched, learned from a sorted listing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from supervisor_core.storage.remote_clients import LAST_NAME


class Skip(NamedTuple):
    """Directories one after the other in a listing, in which nothing is watched."""

    start: str
    """All paths in it are from this one on."""
    end: str
    """And up to this one."""
    directories: tuple[str, ...]
    """All directories in it."""


@dataclass(slots=True)
class _Stretch:
    first: str
    last: str
    begins: int
    ends: int
    """Numbers of the first name in it, and of the first after it."""
    directories: list[str]


@dataclass(slots=True)
class _Open:
    """A directory in which the listing is."""

    path: str
    begins: int
    is_watched: bool = False
    stretches: list[_Stretch] = field(default_factory=list)


class BarrenStretches:
    """Takes the paths of a listing in their order.

    A stretch is whole directories, beside one another in one directory that holds watched files, there or further down.
    So a new file of a directory with watched files is in none.

    Args:
        root: the directory that is listed.
        least: how many names a stretch has at least.

    Example:
        >>> stretches = BarrenStretches("/logs", least=2)
        >>> for name in ("a/ckpt/1", "a/ckpt/2", "a/events", "b/events"):
        ...     found = list(stretches.add(f"/logs/{name}", is_watched=name.endswith("events")))
        >>> list(stretches.finish()), [skip.start for skip in stretches.found]
        ([], ['/logs/a/ckpt/'])
    """

    def __init__(self, root: str, least: int) -> None:
        self.found: list[Skip] = []
        """Those that are known so far."""
        self._least = least
        self._number = 0
        self._open = [_Open(root, 0)]

    def add(self, path: str, is_watched: bool) -> Iterator[Skip]:
        """Take the next path; yield the stretches that have become known."""
        directory = path.rpartition("/")[0]
        while len(self._open) > 1 and not f"{directory}/".startswith(f"{self._open[-1].path}/"):
            yield from self._close()
        rest = directory.removeprefix(self._open[-1].path).strip("/")
        for name in rest.split("/") if rest else ():
            self._open.append(_Open(f"{self._open[-1].path}/{name}", self._number))
        self._open[-1].is_watched |= is_watched
        self._number += 1

    def finish(self) -> Iterator[Skip]:
        """Yield the stretches that are known now that the listing is over."""
        while self._open:
            yield from self._close()

    def _close(self) -> Iterator[Skip]:
        """Leave a directory."""
        closed = self._open.pop()
        if closed.is_watched:
            if self._open:
                self._open[-1].is_watched = True
            for stretch in closed.stretches:
                if stretch.ends - stretch.begins >= self._least:
                    found = Skip(f"{stretch.first}/", f"{stretch.last}/{LAST_NAME}", tuple(stretch.directories))
                    self.found.append(found._replace(directories=()))
                    yield found
            return
        directories = [closed.path, *(each for stretch in closed.stretches for each in stretch.directories)]
        if not self._open:
            return
        before = self._open[-1].stretches
        if before and before[-1].ends == closed.begins:
            before[-1].last, before[-1].ends = closed.path, self._number
            before[-1].directories += directories
        else:
            before.append(_Stretch(closed.path, closed.path, closed.begins, self._number, directories))

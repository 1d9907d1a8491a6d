"""`View`: every run of the logdirs at one moment, as the routes see it. Frozen: a request reads one, whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from supervisor_core.run.model import Run
from supervisor_core.watch.snapshot import Snapshot, WatchedRun

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run."""

    name: str
    """As TensorBoard shows it, and as requests name it."""
    directory: str
    """Where its events files are."""
    watched: WatchedRun
    row: Mapping[str, Any]
    """Its line of the overview, ready for JSON."""
    generation: int
    """Of the view in which its line was last another."""
    _made: dict[Callable[[RunView], Any], Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def run(self) -> Run:
        """What is known of it."""
        return self.watched.run

    def once(self, make: Callable[[RunView], _T]) -> _T:
        """Return what a function makes of the run: made at the first request, and kept until the run has changed."""
        if make not in self._made:
            self._made[make] = make(self)
        made: _T = self._made[make]
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All of them."""

    generation: int = 0
    """Rises with each view that differs from the one before, also from one start of TensorBoard to the next."""
    oldest: int = 0
    """The generation since which it is known what has gone."""
    at: float = 0.0
    """Wall time to which states and ages refer."""
    logdir: str = ""
    runs: Mapping[str, RunView] = field(default_factory=dict)
    removed: tuple[tuple[int, str], ...] = ()
    """Runs that have gone: in which generation, and the name; oldest first."""
    problems: tuple[str, ...] = ()
    """Of the logdirs, in words for people."""
    snapshots: tuple[Snapshot, ...] = ()
    """Of each logdir, as its watch took it."""
    secs: float | None = None
    """How long looking took; None until every logdir has been looked at to its end."""
    is_whole: bool = False
    """Whether there is nothing to wait for: every logdir has been looked at, or what went wrong is among `problems`."""
    reading: tuple[int, int] | None = None
    """Runs read, and runs there are, while they are read for the first time."""

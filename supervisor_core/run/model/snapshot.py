"""`LogdirSnapshot`: every run below a logdir at one moment, as plain frozen values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import NamedTuple

from supervisor_core.events.chunk import FileFacts
from supervisor_core.events.record_fields import values_of
from supervisor_core.run.model.run import Run
from supervisor_core.run.model.words import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadProblem:
    """What could not be read of a run."""

    path: str | None
    """The file; None where it is about the run as a whole."""
    offset: int | None
    """Where in the file; None where it is about all of it."""
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedRun:
    """One run, with the files that it was read from."""

    run: Run
    directory: str = ""
    """The directory of its events files, or the address of a remote one."""
    files: tuple[FileFacts, ...]
    """All that have the name of an events file, those too that are not read."""
    problem: str | None = None
    """Why the run could not be read, or not in full; None when all of it was. Of a run that cannot be read any more,
    `run` is what was known of it."""

    unreachable: bool = False
    """Whether its directory cannot be listed."""

    left_out_files: int = 0
    """Files that are not read, and not in `files`, because there are too many."""

    copy_of: str | None = None
    """The directory of the run that this is a copy of (docs/model.md); None of an original. A copy has no state:
    that of `run` is ``unknown``."""

    free_bytes: int | None = None
    """What is free on the disk of its directory, while a session is open; None where that is not known."""

    suspended_pid: int | None = None
    """The process of a silent or lost run, on this machine, if a signal has stopped it or it is frozen."""

    writer_pid: int | None = None
    """A process of this machine that runs, and writes a run without telemetry; of a silent one, that has its file open
    for writing. None where none is known."""

    identity: tuple[int, int] | None = None
    """Inode and device of its directory; None where that is not known."""

    owner: int | None = None
    """Whose its directory, or the link to it, is; None where the store has no owners."""

    @property
    def place(self) -> tuple[tuple[int, int], str] | None:
        """Its directory and the name of its newest file: an inode is used again for another directory."""
        return None if self.identity is None or not self.files else (self.identity, _base(self.files[-1].path))

    def was_at(self, place: tuple[tuple[int, int], str] | None) -> bool:
        """Whether it is the run of that `place`, under another name or not."""
        return place is not None and self.identity == place[0] and place[1] in (_base(file.path) for file in self.files)

    @property
    def read_ok(self) -> bool:
        """Whether all of it could be read."""
        return self.problem is None

    @property
    def read_files(self) -> int:
        """Number of files that are read."""
        return len(self.files) - self.skipped_files

    @property
    def file_problems(self) -> tuple[ReadProblem, ...]:
        """What could not be read of its files: those that are skipped come first."""
        skipped = [
            ReadProblem(path=file.path, offset=None, kind="skipped", text=file.skipped)
            for file in self.files
            if file.skipped is not None
        ]
        return (
            *skipped,
            *(ReadProblem(path=file.path, **values_of(item)) for file in self.files for item in file.problems),
        )

    @property
    def not_read(self) -> list[str]:
        """What of it could not be read, for people. An empty file holds nothing, and one that ends within a record is
        being written, or was when its process was killed: neither is a fault."""
        files = [file for file in self.files if file.skipped is None or not file.is_harmless]
        texts = [f"{file.path}: {file.skipped}" for file in files if file.skipped]
        for file in files:
            for problem in file.problems:
                where = "" if problem.offset is None else f" at byte {problem.offset:,}"
                texts.append(f"{file.path}{where}: {problem.text}")
        whole = [self.problem] if self.problem and self.problem not in texts else []
        return whole + texts

    @property
    def bytes(self) -> int:
        """Size of the files that are read."""
        return sum(file.size_bytes or 0 for file in self.files if file.skipped is None)

    @property
    def records(self) -> int:
        """Whole records read, version records included."""
        return sum(file.records for file in self.files)

    @property
    def corrupt_records(self) -> int:
        """Damaged places that were skipped."""
        return sum(file.corrupt_records for file in self.files)

    @property
    def dropped(self) -> Mapping[str, int]:
        """What was beyond a bound of the reader, by kind; a file that was not read is one of the events."""
        unread = self.left_out_files + sum(file.left_out_scalars for file in self.files)
        return Counter(self.run.dropped) + Counter({"events": unread})

    @property
    def torn_files(self) -> int:
        """Files that end in the midst of a record: one still being written, or what a kill left."""
        return sum(file.torn_bytes > 0 for file in self.files if file.skipped is None)

    @property
    def torn_bytes(self) -> int:
        """Length of these ends."""
        return sum(file.torn_bytes for file in self.files if file.skipped is None)

    @property
    def skipped_files(self) -> int:
        """Files that are not read at all; each says why."""
        return sum(file.skipped is not None for file in self.files)

    @property
    def own_name(self) -> str | None:
        """The label under which its newest session serves its own metrics; None if it serves none, or of a copy."""
        if self.copy_of is not None:
            return None
        return next((session.run for session in reversed(self.run.sessions) if session.run), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogdirSnapshot:
    """A logdir at one moment."""

    logdir: str
    at: float
    """Wall time, in seconds, to which the runs' states and ages refer."""
    runs: Mapping[str, WatchedRun] = field(default_factory=dict)
    """Name, as TensorBoard has it -> run, by name."""
    elsewhere: tuple[str, ...] = ()
    """Names of the runs of other shards, and of those left out, which are not read."""
    left_out: int = 0
    """How many runs are not read because there are too many."""
    problems: tuple[str, ...] = ()
    """What about the logdir could not be looked at; empty when all of it was."""
    requests: int = 0
    """Requests for listings and events files so far, of a remote logdir; a local one takes none."""
    reachable: bool = True
    """Whether the logdir itself is there and could be listed."""
    is_whole: bool = True
    """Whether the look came to its end; else some runs are as they were before."""
    identity: tuple[int, int] | None = None
    """Inode and device of the logdir: another file system that is mounted there has others. None where that is not
    known."""


def _base(path: str) -> str:
    return path.rpartition("/")[2]


_MOST_NAMES = 5_000
"""Among how many names close ones are looked for: it takes time for each."""


class RunPlace(NamedTuple):
    """By what a run is known beside its name."""

    directory: str
    own_name: str | None
    """The label under which its own process serves its metrics; None where it is not known."""


def find_run(wanted: str, runs: Mapping[str, RunPlace]) -> str | None:
    """Return the name of the one run that is meant; None where there is none, or several could be.

    The first of these that fits one run: its name; the label of its metrics; its directory; the end of its name or of
    its directory, from a ``/`` on. Last, a name that ends with the run's own: an exporter's label of several logdirs,
    ``logs/digits``, or a path on another machine.

    Args:
        wanted: what came.
        runs: name -> by what else it is known.

    Example:
        >>> runs = {"a/digits": RunPlace("/logs/a/digits", "digits-a"), "b": RunPlace("/logs/b", None)}
        >>> [find_run(wanted, runs) for wanted in ("digits-a", "/logs/b", "digits", "logs/b", "c")]
        ['a/digits', 'b', 'a/digits', 'b', None]
    """
    if wanted in runs:
        return wanted
    name = wanted.rstrip("/")
    if not name:
        return None
    end = f"/{name}"
    fits: tuple[Callable[[str, RunPlace], bool], ...] = (
        lambda run, place: place.own_name == name,
        lambda run, place: place.directory.rstrip("/") == name,
        lambda run, place: f"/{run}".endswith(end) or f"/{place.directory.rstrip('/')}".endswith(end),
    )
    for fit in fits:
        found = [run for run, place in runs.items() if fit(run, place)]
        if found:
            return found[0] if len(found) == 1 else None
    longest = sorted((run for run in runs if name.endswith(f"/{run}")), key=len)
    return longest[-1] if longest else None


def runs_near(wanted: str, names: Iterable[str], count: int = 3) -> list[str]:
    """Return the names that are most like one: those that contain it, then those that are spelled like it.

    Args:
        wanted: what came.
        names: those that there are.
        count: how many at most.
    """
    known = list(names)
    last = wanted.rstrip("/").rpartition("/")[2].lower()
    holding = [name for name in known if last and last in name.lower()]
    close = get_close_matches(wanted, known[:_MOST_NAMES], count) if len(holding) < count else []
    return list(dict.fromkeys([*holding, *close]))[:count]


def known_as(wanted: str, names: Iterable[str]) -> str:
    """Return what to say after *there is no such run*: which ones may have been meant, and how many there are; else
    the first of them.

    Example:
        >>> known_as("digit", ["digits", "letters"]), known_as("x", ["digits"])
        ("did you mean 'digits'? It has 2 runs.", "it has 1 run: 'digits'.")
    """
    known = list(names)
    number = counted(len(known), "run")
    if near := runs_near(wanted, known):
        return f"did you mean {' or '.join(map(repr, near))}? It has {number}."
    return f"it has {number}: {', '.join(map(repr, known[:10]))}{', ...' if len(known) > 10 else ''}."

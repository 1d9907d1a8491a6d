"""`Chunk`: the new events of one events file, decoded.

A reader returns every file once, chunk by chunk, in the order of the file. A chunk refers to none of the file's bytes,
so a reader keeps only its position in the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from supervisor_core.events.hparams import HParam
from supervisor_core.events.telemetry import Record

SessionStatus = Literal["START", "STOP", "CHECKPOINT"]
_Item = TypeVar("_Item", bound=np.generic)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMark:
    """A ``SessionLog`` event, of any writer."""

    offset: int
    """Offset of its record in the file, in bytes."""
    at: float
    """Wall time, as written; 0 where the writer gave none."""
    step: int
    status: SessionStatus
    checkpoint_path: str | None = None
    """As written: often without the step, relative, or of another machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryMark:
    """One of the supervisor's own records."""

    offset: int
    at: float
    step: int
    record: Record


Mark: TypeAlias = SessionMark | TelemetryMark


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Scalars of one tag, in file order: four columns of one length."""

    offsets: NDArray[np.int64]
    """Offset of each point's record in the file."""
    steps: NDArray[np.int64]
    walls: NDArray[np.float64]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.steps)

    def taken(self, chosen: slice | NDArray[np.int64] | NDArray[np.bool_]) -> Points:
        """Return some of them; those of a slice as views."""
        return Points(self.offsets[chosen], self.steps[chosen], self.walls[chosen], self.values[chosen])

    @staticmethod
    def joined(parts: Sequence[Points], order: NDArray[np.int64] | None = None) -> Points:
        """Return copies of all points of several parts.

        Args:
            parts: at least one.
            order: the places of the points, in the order wanted. Default: one part after the other.
        """

        def whole(columns: list[NDArray[_Item]]) -> NDArray[_Item]:
            column = np.concatenate(columns)
            return column if order is None else column[order]

        # Column by column, so that the memory of one in between serves the next.
        return Points(
            whole([part.offsets for part in parts]),
            whole([part.steps for part in parts]),
            whole([part.walls for part in parts]),
            whole([part.values for part in parts]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A part of a file, or a file, that could not be read; everything else was."""

    kind: Literal["corrupt_record", "corrupt_length", "telemetry", "replaced", "unreadable"]
    offset: int | None
    """Where in the file; None where it is about the file."""
    text: str


SAME_FILE = "the same file as "
"""Begins the reason why a file is skipped that is read under another name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """New events of one file."""

    path: str
    from_start: bool
    """True for the first chunk of a file, and again when the file has shrunk or was replaced: all earlier chunks of the
    path are then void."""
    records: int = 0
    """Whole records, version records included."""
    bytes: int = 0
    """Length of these records with their framing."""
    created_at: float | None = None
    """Seconds in the file's name; None where it has none."""
    first_at: float | None = None
    """Wall time of the first of these records; None where there is none."""
    last_at: float | None = None
    """The latest wall time among these records."""
    first_step: int | None = None
    """Step of the first record that holds a summary; None where none does."""
    last_step: int | None = None
    """Step of the last record that holds a summary, in file order."""
    max_step: int | None = None
    """Largest step of a record that holds a summary."""
    marks: tuple[Mark, ...] = ()
    """Session logs and telemetry, in file order."""
    scalars: Mapping[str, Points] = field(default_factory=dict)
    """Tag -> its new points."""
    hparams: Mapping[str, HParam] | None = None
    """The hyperparameters that were written last; None where these records have none."""
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """The state of one events file."""

    path: str
    size_bytes: int | None
    """Length of the file; None where unknown."""
    read_bytes: int
    """Offset up to which it has been read: whole records only."""
    records: int
    corrupt_records: int
    torn_bytes: int
    """Bytes after the last whole record: a record still being written, or what a kill left."""
    skipped: str | None = None
    """Why the file is not read at all: empty, a Git LFS pointer, no events file, permissions ...; None when it is."""
    unreadable: bool = False
    """Whether it is skipped because the storage refused it or failed; the next read may succeed."""
    problems: tuple[Problem, ...] = ()
    """The first hundred; `corrupt_records` counts all."""

    left_out_scalars: int = 0
    """Scalars of tags beyond the limit per file (docs/limits.md)."""
    written_at: float | None = None
    """When it was last written, by the clock of its file system; None where unknown."""

    @property
    def is_harmless(self) -> bool:
        """Whether no event of it is missing because it is skipped: it is empty, or read under another name."""
        return self.skipped is None or self.size_bytes == 0 or self.skipped.startswith(SAME_FILE)

"""What is read of one events file whose writer has no telemetry: `Launches`, and the `Cadence` of its points.

A launch is the part of a file from one start of training, as its session logs record it, to the next.

A START opens a launch, but need not be its first event: hooks write CHECKPOINT N first, and START N+1 after their first
step; and each summary hook writes its own START. A STOP has step 0, which is no position.

A run is silent, rather than between two points, after ten times its median gap or twice its longest gap (an evaluation,
an epoch), whichever is more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from supervisor_core.events.chunk import Chunk, Points, SessionMark
from supervisor_core.run.fold.bounds import MAX_FOLLOWED_TAGS_OF_FILE, MAX_HISTORY, MAX_LAUNCHES, Allowance, DroppedKind

SAME_LAUNCH_SECS = 60.0
"""Two STARTs with the same step within this time, and nothing between them, are of one launch."""


@dataclass(slots=True)
class Launch:
    """The events of a file from one start of training to the next."""

    starts: list[SessionMark] = field(default_factory=list)
    checkpoints: list[SessionMark] = field(default_factory=list)
    stop: SessionMark | None = None
    tags: dict[str, TagSteps] = field(default_factory=dict)
    last_offset: int = -1
    """Offset of its last scalar."""
    progress_at: float | None = None
    """Wall time of its last scalar."""
    range: tuple[int, ...] = ()
    """The lowest first step and the highest step of its tags; empty where it has none."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no events."""
        return not (self.starts or self.checkpoints or self.stop or self.tags)

    @property
    def started_at(self) -> float | None:
        """Wall time of its first session log; None without one."""
        marks = [*self.starts[:1], *self.checkpoints[:1]]
        return min((mark.at for mark in marks), default=None)

    @property
    def last_at(self) -> float | None:
        """Wall time of its last scalar or session log."""
        ats = [mark.at for mark in (*self.starts, *self.checkpoints[-1:], *((self.stop,) if self.stop else ()))]
        return max((*ats, *((self.progress_at,) if self.progress_at is not None else ())), default=None)

    @property
    def points(self) -> int:
        """Number of its scalars."""
        return sum(steps.count for steps in self.tags.values())

    @property
    def first_step(self) -> int | None:
        """Step of its START (or of the checkpoint just before), else the first one of its leading tag."""
        if self.starts:
            step = self.starts[0].step
            # Hooks write START after their first step, and the checkpoint of the restored step before it.
            return step - 1 if any(saved.step == step - 1 for saved in self.checkpoints[:1]) else step
        lead = self.lead
        first = lead.first_step if lead else None
        saved = self.checkpoints[0].step if self.checkpoints else None
        return saved if first is None or (saved is not None and saved < first) else first

    @property
    def last_step(self) -> int | None:
        """Its highest step."""
        steps = [mark.step for mark in (*self.starts, *self.checkpoints)]
        lead = self.lead
        if lead is not None:
            steps.append(lead.max_step)
        if self.starts or self.checkpoints:  # of TensorFlow 1: its summaries have the global step
            steps.extend(tag.max_step for tag in self.tags.values() if tag.is_witness)
        return max(steps, default=None)

    @property
    def lead(self) -> TagSteps | None:
        """The tag with the most points, whose steps count as those of training."""
        tag = self.lead_tag
        return None if tag is None else self.tags[tag]

    @property
    def lead_tag(self) -> str | None:
        """Name of the leading tag."""
        witnesses = [item for item in self.tags.items() if item[1].is_witness] or list(self.tags.items())
        return max(witnesses, key=lambda item: (item[1].count, item[1].max_step, item[0]), default=(None, None))[0]

    def add(self, tag: str, points: Points) -> None:
        """Add the next scalars of a tag."""
        if tag not in self.tags:
            first_step = int(points.steps[0])
            self.tags[tag] = TagSteps(int(points.offsets[0]), first_step, first_step)
        steps = self.tags[tag]
        steps.add(points)
        lowest, highest = self.range or (steps.first_step, steps.max_step)
        self.range = min(lowest, steps.first_step), max(highest, steps.max_step)
        self.last_offset = max(self.last_offset, int(points.offsets[-1]))
        latest = float(points.walls.max())
        self.progress_at = latest if self.progress_at is None else max(self.progress_at, latest)


class Launches:
    """Divides one file into launches; see the module's docstring.

    Args:
        allowance: bounds the file together with the others of its run.
    """

    __slots__ = ("_allowance", "_dropped_marks", "_unfollowed", "_unopened", "all", "followed_tags")

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self.all: list[Launch] = []
        """Empty until something is added."""
        self.followed_tags = 0
        self._unfollowed = self._unopened = self._dropped_marks = 0

    @property
    def dropped(self) -> Counter[DroppedKind]:
        """Items dropped beyond the bounds, by kind. The points of a tag in which no restart is looked for are read."""
        return Counter({"sessions": self._unopened, "history": self._unfollowed + self._dropped_marks})

    def add(self, chunk: Chunk) -> None:
        """Add the next events of the file; costs in proportion to them, whatever the number of tags and STARTs."""
        self.all = self.all or [Launch()]
        marks = [mark for mark in chunk.marks if isinstance(mark, SessionMark)]
        starts = [mark.offset for mark in marks if mark.status == "START"]
        stretches = _divided(chunk.scalars, starts)
        for mark in marks:
            if mark.status == "START":
                self._scalars(next(stretches))
                if not self._is_of_this_launch(mark):
                    self._open()
                of_launch = self.all[-1].starts
                del of_launch[MAX_LAUNCHES - 1 :]
                of_launch.append(mark)
            elif mark.status == "CHECKPOINT":
                saved = self.all[-1].checkpoints
                saved.append(mark)
                if len(saved) >= 2 * MAX_HISTORY:  # the first one is where the launch began
                    self._dropped_marks += len(saved) - 1 - MAX_HISTORY
                    del saved[1:-MAX_HISTORY]
            else:
                self.all[-1].stop = mark
        self._scalars(next(stretches))

    def _scalars(self, stretch: Sequence[tuple[str, Points]]) -> None:
        """Add scalars to the present launch."""
        launch = self.all[-1]
        for tag, points in stretch:
            if tag not in launch.tags:
                if self.followed_tags >= MAX_FOLLOWED_TAGS_OF_FILE or not self._allowance.followed_tags:
                    self._unfollowed += len(points)
                    continue
                self.followed_tags += 1
                self._allowance.followed_tags -= 1
            launch.add(tag, points)

    def _is_of_this_launch(self, start: SessionMark) -> bool:
        launch = self.all[-1]
        near = range(start.step - 1, start.step + 2)
        if launch.stop is not None or any(step not in near for step in launch.range):
            return False
        if not launch.starts:
            return True
        return launch.starts[-1].step == start.step and start.at - launch.starts[-1].at <= SAME_LAUNCH_SECS

    def _open(self) -> None:
        """Begin a new launch. Of two checkpoints at the end of the old one, the second belongs to the new one: it was
        written after the restore."""
        if len(self.all) >= MAX_LAUNCHES:
            self._unopened += 1
            return
        before, opened = self.all[-1], Launch()
        last = before.checkpoints[-2:]
        if len(last) == 2 and last[0].step == last[1].step and last[0].offset > before.last_offset and not before.stop:
            opened.checkpoints.append(before.checkpoints.pop())
        self.all.append(opened)


def _divided(scalars: Mapping[str, Points], starts: Sequence[int]) -> Iterator[list[tuple[str, Points]]]:
    """Yield the scalars before each offset, and those after the last, by tag."""
    stretches: list[list[tuple[str, Points]]] = [[] for _ in range(len(starts) + 1)]
    for tag, points in scalars.items():
        if not starts:
            stretches[0].append((tag, points))
            continue
        numbers = np.searchsorted(starts, points.offsets, side="right")
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for first, last in pairwise(bounds):
            stretches[int(numbers[first])].append((tag, points.taken(slice(first, last))))
    return iter(stretches)


MAX_RESETS = 64
"""A tag whose steps decreased more often than this does not count steps, and shows no restarts."""


class StepReset(NamedTuple):
    """A place where a tag's steps decreased, confirmed by a second point."""

    before: int
    """Offset of the last point before it."""
    after: int
    """Offset of the first point after it."""
    from_step: int
    to_step: int
    ended_at: float
    """Wall time of the last point before it."""
    started_at: float
    """Wall time of the first point after it."""


@dataclass(slots=True, eq=False)
class TagSteps:
    """The steps of one tag in one stretch of a file."""

    first_offset: int
    first_step: int
    max_step: int
    last_step: int = 0
    last_offset: int = 0
    last_value: float = 0.0
    count: int = 0
    resets: list[StepReset] = field(default_factory=list)
    _held: Points | None = None

    @property
    def is_witness(self) -> bool:
        """Whether its steps nearly always increase."""
        return len(self.resets) <= MAX_RESETS

    @property
    def stride(self) -> float:
        """Mean steps from one point to the next."""
        return (self.max_step - self.first_step) / max(1, self.count - 1)

    def add(self, points: Points) -> None:
        """Add the next points."""
        self.count += len(points)
        self.last_step, self.last_offset = int(points.steps[-1]), int(points.offsets[-1])
        self.last_value = float(points.values[-1])
        self.max_step = max(self.max_step, int(points.steps.max()))
        if self.is_witness:
            self._find_resets(points)

    def _find_resets(self, points: Points) -> None:
        """Add new resets. A reset needs the point after it, so the last two points are kept for the next call."""
        seen = points if self._held is None else Points.joined([self._held, points])
        self._held = Points.joined([seen.taken(slice(-2, None))])  # a copy: a view would keep the whole chunk's arrays
        if len(seen) < 3:
            return
        steps = seen.steps
        found = np.flatnonzero((steps[1:-1] < steps[:-2]) & (steps[2:] <= steps[:-2])) + 1
        for index in found[: MAX_RESETS + 1].tolist():
            before = index - 1
            self.resets.append(
                StepReset(
                    before=int(seen.offsets[before]),
                    after=int(seen.offsets[index]),
                    from_step=int(steps[before]),
                    to_step=int(steps[index]),
                    ended_at=float(seen.walls[before]),
                    started_at=float(seen.walls[index]),
                )
            )


LEAST_HANG_TIMEOUT_SECS = 600.0
"""The least time until a run is silent: other writers flush every two minutes at best."""
USUAL_GAPS = 10.0
LONGEST_GAPS = 2.0
BURST_SECS = 1.0
"""Points closer together than this count as written at once."""
KEPT_POINTS = 256
"""Number of newest points, over all tags, used for the speed."""
KEPT_GAPS = 128
"""Number of newest gaps that say which one is usual."""
LEAST_POINTS, LEAST_SECS = 5, 60.0
"""The speed is measured over at least this many points and this time, if there are as many."""

_NO_WALLS, _NO_STEPS, _NO_TAGS = np.empty(0), np.empty(0, np.int64), np.empty(0, object)


class Cadence:
    """Reads the points of one file in order; constant memory, time proportional to the points."""

    __slots__ = ("_first_at", "_gaps", "_last_at", "_longest_secs", "_steps", "_tags", "_walls")

    def __init__(self) -> None:
        self._gaps: NDArray[np.float64] = _NO_WALLS
        self._longest_secs = 0.0
        self._first_at: float | None = None
        self._last_at: float | None = None
        self._walls: NDArray[np.float64] = _NO_WALLS
        self._steps: NDArray[np.int64] = _NO_STEPS
        self._tags: NDArray[np.object_] = _NO_TAGS

    def add(self, scalars: Mapping[str, Points]) -> None:
        """Add new points, by tag."""
        if not scalars:
            return
        offsets = np.concatenate([points.offsets for points in scalars.values()])
        walls = np.concatenate([points.walls for points in scalars.values()])
        if len(scalars) > 1:
            walls = walls[np.argsort(offsets, kind="stable")]
        self._add_gaps(walls)
        self._newest(scalars)

    def _add_gaps(self, walls: NDArray[np.float64]) -> None:
        walls = walls[np.isfinite(walls)]
        if self._last_at is not None:
            walls = np.concatenate(([self._last_at], walls))
        if not len(walls):
            return
        if self._first_at is None:
            self._first_at = float(walls[0])
        self._last_at = float(walls[-1])
        gaps = np.diff(walls)
        gaps = gaps[gaps >= BURST_SECS]
        if len(gaps):
            self._gaps = np.concatenate((self._gaps, gaps))[-KEPT_GAPS:]
            self._longest_secs = max(self._longest_secs, float(gaps.max()))

    def _newest(self, scalars: Mapping[str, Points]) -> None:
        parts = [points.taken(slice(-KEPT_POINTS, None)) for points in scalars.values()]
        tags = np.repeat(np.array(list(scalars), object), [len(part) for part in parts])
        newest = Points.joined(parts)
        order = np.argsort(newest.offsets, kind="stable")[-KEPT_POINTS:]
        self._tags = np.concatenate((self._tags, tags[order]))[-KEPT_POINTS:]
        self._walls = np.concatenate((self._walls, newest.walls[order]))[-KEPT_POINTS:]
        self._steps = np.concatenate((self._steps, newest.steps[order]))[-KEPT_POINTS:]

    @property
    def usual_gap_secs(self) -> float | None:
        """Median gap between two moments, at least `BURST_SECS`; None before the second one."""
        if len(self._gaps):
            return float(np.median(self._gaps))
        if self._first_at is None or self._last_at is None or self._last_at - self._first_at < BURST_SECS:
            return None
        return BURST_SECS  # it never paused for as long

    @property
    def hang_timeout_secs(self) -> float:
        """Seconds without a point after which the run counts as silent."""
        usual_secs = self.usual_gap_secs or 0.0
        return float(max(LEAST_HANG_TIMEOUT_SECS, USUAL_GAPS * usual_secs, LONGEST_GAPS * self._longest_secs))

    @property
    def alive_timeout_secs(self) -> float:
        """The same while its process is seen to run: an evaluation may be longer than any before."""
        return float(max(LEAST_HANG_TIMEOUT_SECS, USUAL_GAPS * self._longest_secs))

    def steps_per_sec(self, tag: str | None) -> float | None:
        """Return the speed over the newest points of a tag that counts steps; None where they are too few."""
        here = np.flatnonzero(self._tags == tag) if tag is not None else ()
        points = [(float(self._walls[index]), int(self._steps[index])) for index in here]
        if len(points) < 2:
            return None
        last_at, last_step = points[-1]
        first_at, first_step = points[-1]
        for count, (at, step) in enumerate(reversed(points), 1):
            if step > first_step or at > first_at:
                break  # training began again at an earlier step, or the clock was set
            first_at, first_step = at, step
            if count >= LEAST_POINTS and last_at - at >= LEAST_SECS:
                break
        secs = last_at - first_at
        return (last_step - first_step) / secs if secs > 0 and math.isfinite(secs) else None

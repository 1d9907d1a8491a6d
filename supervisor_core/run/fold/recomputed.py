"""`Recomputed`: the scalars that were logged twice, before a restart and after it, compared bit by bit; digests of the
trained state, too.

After a kill the steps since the restored checkpoint are done again. What they log must be what they logged before, if
the resume was exact. A pure fold over points.

* Scalars of one tag and one step are compared in the order in which they were logged.
* Tags that measure time, speed, memory or load are left out by their names (`is_measured`).
* A tag that is logged every few steps may be a mean over these. Where some of them came before the restart, a first
  value that differs is left out; one that is equal counts.
* A value that was not finite before counts only if it is equal.
* Losses are counted where there are some, else all scalars, else the states.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np

from supervisor_core.events.chunk import Mark, Points, TelemetryMark
from supervisor_core.events.losses import LOSS, prominence
from supervisor_core.events.record_fields import MAX_NAME_CHARS
from supervisor_core.events.telemetry import DigestRecord, ResumeRecord

MAX_POINTS = 100_000
"""Points kept of before the restart: those of the lowest steps."""

Kind = Literal["losses", "values", "states"]
_STATE = "state of "
"""What the tags of digests begin with."""
_DIGESTS = 1 << 52
"""Each below is a float of 64 bits."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_MEASURED = frozenset(
    (
        "allocated", "alloc", "bandwidth", "clock", "cpu", "date", "disk", "duration", "elapsed", "energy", "eta",
        "flops", "fps", "goodput", "gpu", "hfu", "hour", "hours", "latency", "load", "mem", "memory", "mfu", "minute",
        "minutes", "ms", "network", "perf", "power", "profile", "profiler", "qps", "ram", "reserved", "rss",
        "runtime", "s", "sec", "second", "seconds", "secs", "speed", "sps", "swap", "system", "tflops", "throughput",
        "time", "timer", "times", "timestamp", "timing", "timings", "tps", "uptime", "util", "utilization", "vram",
        "wait", "wall", "walltime", "watts",
    )
)  # fmt: skip


@lru_cache(maxsize=4096)
def is_measured(tag: str) -> bool:
    """Return whether a tag is named as a measurement of the machine, which no two runs share: of time, speed, memory or
    load. A tag that is named as a loss is none.

    Example:
        >>> [is_measured(tag) for tag in ("global_step/sec", "charts/SPS", "train/loss", "learning_rate")]
        [True, True, False, False]
    """
    if LOSS.search(tag):
        return False
    return not _MEASURED.isdisjoint(word.lower() for word in _WORD.findall(tag))


@dataclass(slots=True)
class _Before:
    """One tag, before the restart."""

    path: str
    previous: int | None = None
    """The last step before the restored one."""
    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Tag:
    """The comparison of one tag."""

    values: Mapping[tuple[int, int], float]
    """By step, and number among those of this tag and step."""
    last_step: int
    previous: int | None
    is_state: bool
    seen: Counter[int] = field(default_factory=Counter)
    compared: int = 0
    equal: int = 0
    reached: int = -1
    differs: tuple[int, float, float] | None = None
    """The first difference: step, value before, value now."""


class Recomputed:
    """The comparison of one resume; see the module's docstring.

    Args:
        session: the one that resumed.
        restored_step: the step of the checkpoint that it resumed from.
    """

    def __init__(self, session: str, restored_step: int) -> None:
        self._session, self._restored = session, restored_step
        self._before: dict[str, _Before] = {}
        self._tags: dict[str, _Tag] = {}
        self._points = 0

    def before(self, path: str, scalars: Mapping[str, Points]) -> None:
        """Add what was logged before the restart.

        Args:
            path: the events file; files in their order, each in its own.
            scalars: by tag. What a file logs replaces what earlier ones have logged from its first step on.
        """
        for tag, points in scalars.items():
            if is_measured(tag) or not len(points):
                continue
            known = self._before.setdefault(tag, _Before(path))
            again = points.steps >= self._restored
            earlier = points.steps[~again]
            if len(earlier):
                last = int(earlier.max())
                known.previous = last if known.previous is None else max(known.previous, last)
            for step, value in zip(points.steps[again].tolist(), points.values[again].tolist(), strict=True):
                if path != known.path or (known.steps and step < known.steps[-1]):
                    while known.steps and known.steps[-1] >= step:
                        known.steps.pop()
                        known.values.pop()
                        self._points -= 1
                    known.path = path
                if self._points < MAX_POINTS:
                    known.steps.append(step)
                    known.values.append(value)
                    self._points += 1

    def begin(self) -> int | None:
        """Say that everything before the restart was added; return the last step that will be compared, None where
        there is none."""
        for tag, known in self._before.items():
            if known.steps:
                count: Counter[int] = Counter()
                values = {}
                for step, value in zip(known.steps, known.values, strict=True):
                    values[step, count[step]] = value
                    count[step] += 1
                self._tags[tag] = _Tag(values, known.steps[-1], known.previous, tag.startswith(_STATE))
        self._before.clear()
        return max((tag.last_step for tag in self._tags.values()), default=None)

    def now(self, scalars: Mapping[str, Points]) -> None:
        """Add what was logged since the restart."""
        for tag, points in scalars.items():
            if (known := self._tags.get(tag)) is not None:
                for step, value in zip(points.steps.tolist(), points.values.tolist(), strict=True):
                    self._compare(known, step, value)

    def _compare(self, known: _Tag, step: int, value: float) -> None:
        is_first, known.reached = known.reached < 0, max(known.reached, step)
        if step > known.last_step:  # nothing to compare with, however long the training goes on
            return
        place = step, known.seen[step]
        known.seen[step] += 1
        before = known.values.get(place)
        if before is None:
            return
        if before == value or (math.isnan(before) and math.isnan(value)):
            known.equal += 1
        elif not math.isfinite(before) or (is_first and not known.is_state and self._spans_restart(known, step)):
            return
        elif known.differs is None:
            known.differs = step, before, value
        known.compared += 1

    def _spans_restart(self, known: _Tag, step: int) -> bool:
        """Return whether a tag's first value may be a mean over steps of which some came before the restart."""
        found = max((other for other, _ in known.values if other < step), default=known.previous)
        since = self._restored - 1 if found is None else found
        return step - since > 1 and since < self._restored

    @property
    def is_over(self) -> bool:
        """Whether each tag has gone past what can be compared, or one differs."""
        return any(tag.differs for tag in self._tags.values()) or all(
            tag.reached >= tag.last_step and tag.seen[tag.last_step] > 0 for tag in self._tags.values()
        )

    def result(self) -> ResumeRecord | None:
        """Return what was found so far; None while nothing was compared."""
        compared = {name: tag for name, tag in self._tags.items() if tag.compared}
        if not compared:
            return None
        kinds: dict[Kind, list[_Tag]] = {"losses": [], "values": [], "states": []}
        for name, tag in compared.items():
            kinds[_kind(name)].append(tag)
        what, counted = next((kind, tags) for kind, tags in kinds.items() if tags)
        found = ResumeRecord(
            session=self._session,
            what=what,
            compared=sum(tag.compared for tag in counted),
            equal=sum(tag.equal for tag in counted),
        )
        differ = [(tag.differs[0], prominence(name), name) for name, tag in compared.items() if tag.differs]
        if not differ:
            return found
        _, _, name = min(differ)
        step, before, now = compared[name].differs or (0, 0.0, 0.0)
        return ResumeRecord(
            session=found.session, what=found.what, compared=found.compared, equal=found.equal,
            tag=name[:MAX_NAME_CHARS], step=step, before=_shown(name, before), now=_shown(name, now),
        )  # fmt: skip


def _kind(tag: str) -> Kind:
    return "states" if tag.startswith(_STATE) else "losses" if LOSS.search(tag) else "values"


def states_of(marks: Iterable[Mark]) -> dict[str, Points]:
    """Return the digests among telemetry records as points, by tag."""
    rows: dict[str, list[tuple[int, int, float, float]]] = {}
    for mark in marks:
        if isinstance(mark, TelemetryMark) and isinstance(mark.record, DigestRecord):
            for name, digest in mark.record.states.items():
                with suppress(ValueError):  # no digest of ours
                    row = mark.offset, mark.record.step or 0, mark.at, float(int(digest, 16) % _DIGESTS)
                    rows.setdefault(_STATE + name, []).append(row)
    found = {}
    for tag, each in rows.items():
        offsets, steps, walls, values = zip(*each, strict=True)
        found[tag] = Points(np.array(offsets, np.int64), np.array(steps, np.int64), np.array(walls), np.array(values))
    return found


def _shown(tag: str, value: float) -> str:
    """Return a value with as many digits as tell it from its neighbours, as it is stored: mostly in 32 bits."""
    if tag.startswith(_STATE):
        return f"{int(value):012x}"
    with np.errstate(over="ignore"):
        short = np.float32(value)
    return str(short) if float(short) == value else repr(value)

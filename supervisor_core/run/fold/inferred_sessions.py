"""`inferred_facts`: the sessions of writers without telemetry, inferred from their events.

Of files written at the same time one is followed, the one with session logs or else with the most points: an evaluation
beside the training is not a restart. Once a run has telemetry, only files with a START count: a program may write its
results into the logdir after the training. Along the followed files a session begins

* where a launch begins (`Launches`), and where the steps of a launch restart at a lower step (`step_boundaries`);
* with a file that begins with a launch, that another process wrote (as some file names show), or whose first step is
  below the last step so far.

Everything else continues the session before it. A file that holds only its version begins none.

Processes on machines whose clocks differ are put in order by when their files were written (`clocks_ahead`).
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from supervisor_core.events.chunk import SessionMark
from supervisor_core.events.chunk_builder import host_of, writer_of
from supervisor_core.run.fold.bounds import MAX_SESSIONS
from supervisor_core.run.fold.file_fold import FileFold
from supervisor_core.run.fold.other_writers import Cadence, Launch, StepReset, TagSteps
from supervisor_core.run.fold.session_facts import SessionFacts
from supervisor_core.run.fold.step_time_curve import StepTimeCurve
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.run import BUCKETS, Session

CLOCK_JUMP_SECS = 0.2
"""Wall times may jump back by a tenth of a second; that is no overlap."""
FLUSH_SECS = 120.0
"""Other writers flush an event within this time."""


class LastWrite(NamedTuple):
    """When an events file was last written, by one clock for all files of a run."""

    at: float
    is_exact: bool = True
    """Whether it was written then; else then or earlier."""
    has_grown: bool = False
    """Whether it was seen to grow."""


def clocks_ahead(files: Sequence[FileFold], written: Mapping[str, LastWrite]) -> list[tuple[FileFold, float]]:
    """Return the files whose writers' clocks were ahead of that of the newest file's writer, and by how many seconds.

    The newest file is the one that was written last. Differences count if they would put a file after the beginning of
    the newest one, and only then: files that were copied without their times were all written late. Where it is not
    known when a file was written, its events precede the newest file if they are dated later than they were first
    seen, or than the newest event of a file that grows.

    Args:
        files: without telemetry.
        written: by path.
    """
    dated = [(file, written[file.path], span[1]) for file in files if file.path in written and (span := _span(file))]
    exact = [item for item in dated if item[1].is_exact]
    if len(dated) < 2 or not exact:
        return []
    newest, last_written, ended = max(exact, key=lambda item: item[1].at)
    begun, lag = (_span(newest) or (0.0,))[0], last_written.at - ended
    found: list[tuple[FileFold, float]] = []
    is_out_of_order = False
    for file, (at, is_exact, _), last_at in dated:
        own_lag = at - last_at
        if is_exact and (lag <= FLUSH_SECS or own_lag <= FLUSH_SECS or last_written.has_grown):
            ahead = lag - own_lag
        elif own_lag < -FLUSH_SECS or (last_written.has_grown and last_at > ended + FLUSH_SECS):
            ahead = last_at - begun + 1.0
        else:
            ahead = 0.0
        if file is not newest and ahead > FLUSH_SECS:
            found.append((file, ahead))
            is_out_of_order |= last_at > begun
    return found if is_out_of_order else []


@dataclass(slots=True)
class _Draft:
    """A session under construction."""

    started_at: float | None
    ended_at: float | None
    first_step: int | None
    last_step: int | None
    process: tuple[str, str] | None
    """Host and process of its writer."""
    files: list[str]
    launches: list[Launch] = field(default_factory=list)
    tags: dict[str, TagSteps] = field(default_factory=dict)
    checkpoints: list[tuple[SessionMark, float | None]] = field(default_factory=list)
    """Each with its wall time."""
    alive_until: float | None = None
    """When the next session begins, if another file is written until then."""
    progress_at: float | None = None
    stopped: bool = False
    steps_per_sec: float | None = None
    cadences: list[tuple[Cadence, str | None]] = field(default_factory=list)
    """One per file, with the tag that is taken for the steps of training."""


def inferred_facts(
    files: Iterable[FileFold], known: Iterable[tuple[float, float]] = ()
) -> tuple[list[SessionFacts], int]:
    """Return the facts of the inferred sessions, and the number of sessions beyond the bound.

    Args:
        files: the files without telemetry, in order.
        known: begin and end, in wall time, of the sessions with telemetry; files written meanwhile are no sessions.
    """
    nonempty = [file for file in files if any(not launch.is_empty for launch in file.launches.all)]
    followed, beside = _one_at_a_time(nonempty, known)
    drafts: list[_Draft] = []
    beyond_bound = sum(_add_file(drafts, file) for file in followed)
    for file in beside:
        _add_beside(drafts, file)
    return [_facts(index, draft) for index, draft in enumerate(drafts, 1)], beyond_bound


def _one_at_a_time(
    files: Sequence[FileFold], known: Iterable[tuple[float, float]]
) -> tuple[list[FileFold], list[FileFold]]:
    """Return the files that are followed, by time, and those written at the same time as one of them."""
    spans: list[tuple[float, float]] = []
    for start, end in sorted(known):
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((start, end))
    telemetry_from = spans[0][0] if spans else math.inf
    followed, beside = [], []
    for file in sorted(files, key=lambda file: (-bool(_starts(file)), -_points(file), file.order)):
        span = _span(file)
        if span is None:
            followed.append(file)
        elif _is_free(spans, span) and (_starts(file) or span[0] < telemetry_from):
            insort(spans, span)
            followed.append(file)
        else:
            beside.append(file)
    return sorted(followed, key=lambda file: (_span(file) or (0.0, 0.0), file.order)), beside


def _is_free(spans: Sequence[tuple[float, float]], span: tuple[float, float]) -> bool:
    index = bisect_right(spans, span)
    after_the_last = index == 0 or spans[index - 1][1] - CLOCK_JUMP_SECS <= span[0]
    before_the_next = index == len(spans) or span[1] - CLOCK_JUMP_SECS <= spans[index][0]
    return after_the_last and before_the_next


def _span(file: FileFold) -> tuple[float, float] | None:
    """Return when a file was written, begin and end; None without valid wall times."""
    start = _wall(file.first_at, file) or _wall(file.created_at, file)
    if start is None:
        return None
    return (start, max(start, _wall(file.last_at, file) or start))


def _wall(at: float | None, file: FileFold) -> float | None:
    return at - file.ahead_secs if at is not None and at > 0 else None


def _starts(file: FileFold) -> int:
    return sum(len(launch.starts) for launch in file.launches.all)


def _points(file: FileFold) -> int:
    return sum(launch.points for launch in file.launches.all)


def _add_file(drafts: list[_Draft], file: FileFold) -> int:
    """Add a file's launches to the last session or as new sessions; return the number of sessions beyond the bound."""
    beyond_bound = 0
    span = _span(file)
    start, end = span if span is not None else (None, None)
    launches = [launch for launch in file.launches.all if not launch.is_empty]
    process = writer_of(file.path)
    for index, launch in enumerate(launches):
        last_of_file = index == len(launches) - 1
        started = start if index == 0 else _wall(launch.started_at, file)
        ended = end if last_of_file else _wall(launch.last_at, file)
        begins = bool(index) or not drafts or _begins(drafts[-1], launch, process)
        if begins and len(drafts) >= MAX_SESSIONS:
            begins = False
            beyond_bound += 1
        if begins:
            drafts.append(_Draft(started, ended, launch.first_step, launch.first_step, process, [file.path]))
        elif file.path not in drafts[-1].files:
            drafts[-1].files.append(file.path)
        beyond_bound += _add_launch(drafts, launch, ended, file)
    if drafts and file.path in drafts[-1].files:
        drafts[-1].cadences.append((file.cadence, launches[-1].lead_tag if launches else None))
    return beyond_bound


def _begins(session: _Draft, launch: Launch, process: tuple[str, str] | None) -> bool:
    """Return whether a file's first launch begins a session."""
    if launch.starts or session.stopped:
        return True
    if process is not None and session.process is not None and process != session.process:
        return True
    shared = [tag for tag in launch.tags if tag in session.tags]
    main = [tag for tag in shared if tag.endswith(MAIN_SUFFIX)]
    witnesses = main or [tag for tag in shared if session.tags[tag].is_witness]
    lower = sum(launch.tags[tag].first_step < session.tags[tag].last_step for tag in witnesses)
    return 2 * lower > len(witnesses)


def _add_launch(drafts: list[_Draft], launch: Launch, ended: float | None, file: FileFold) -> int:
    """Add a launch to the last session, divided at its step boundaries; return the number of sessions beyond the
    bound."""
    found = step_boundaries(launch.tags)
    boundaries = found[: max(0, MAX_SESSIONS - len(drafts))]
    for boundary in boundaries:
        before = drafts[-1]
        before.last_step = _highest(before.last_step, boundary.from_step)
        before.ended_at = _wall(boundary.ended_at, file) or before.started_at
        before.tags.update(launch.tags)
        _checkpoints(before, launch, file, until=boundary.offset)
        started = _wall(boundary.started_at, file)
        drafts.append(_Draft(started, started, boundary.to_step, None, before.process, before.files[-1:]))
    session = drafts[-1]
    _checkpoints(session, launch, file, since=boundaries[-1].offset if boundaries else 0)
    session.tags.update(launch.tags)
    last = launch.lead.last_step if boundaries and launch.lead else launch.last_step
    session.last_step = _highest(session.last_step, last)
    if ended is not None:
        session.ended_at = max(session.ended_at or ended, ended)
    session.progress_at = _wall(launch.progress_at, file) or session.progress_at
    session.stopped = launch.stop is not None
    rates = [
        steps.last_value
        for tag, steps in sorted(launch.tags.items())
        if tag.endswith(MAIN_SUFFIX) and (steps.count > 1 or steps.last_value > 0)  # the first is of the time before
    ]
    session.steps_per_sec = rates[0] if rates else session.steps_per_sec
    return len(found) - len(boundaries)


def _checkpoints(session: _Draft, launch: Launch, file: FileFold, *, since: int = 0, until: int | None = None) -> None:
    session.checkpoints.extend(
        (mark, _wall(mark.at, file))
        for mark in launch.checkpoints
        if mark.offset >= since and (until is None or mark.offset < until)
    )


def _highest(first: int | None, second: int | None) -> int | None:
    return first if second is None or (first is not None and first > second) else second


def _add_beside(drafts: Sequence[_Draft], file: FileFold) -> None:
    """Add a file to the session during which it was written. Until it ends, the run is not down between sessions."""
    span = _span(file)
    is_added = False
    for session, after in zip(drafts, (*drafts[1:], None), strict=False):
        started, ended = session.started_at, session.ended_at
        if not (span and started is not None and ended is not None and started <= span[1] and span[0] <= ended):
            continue
        if not is_added:
            session.files.append(file.path)
            is_added = True
        if after is not None and after.started_at is not None and after.started_at <= span[1]:
            session.alive_until = after.started_at


def _facts(number: int, draft: _Draft) -> SessionFacts:
    id = f"inferred-{number}"
    started, ended = draft.started_at, draft.ended_at
    if started is not None and ended is not None:
        ended = max(started, ended)
    span = ended - started if started is not None and ended is not None else 0.0
    beside = 0.0
    if ended is not None and draft.alive_until is not None:
        beside = max(0.0, draft.alive_until - ended)
        ended += beside
    secs = {**dict.fromkeys(BUCKETS, 0.0), "productive": span, "other": beside}
    curve = StepTimeCurve(draft.first_step)
    if draft.last_step is not None:
        curve.reached(draft.last_step, span)
    rates = (cadence.steps_per_sec(lead) for cadence, lead in reversed(draft.cadences))
    rate = draft.steps_per_sec
    if rate is None:
        rate = next((each for each in rates if each is not None), None)
    cadences = [cadence for cadence, _ in draft.cadences] or [Cadence()]
    timeout_secs = max(cadence.hang_timeout_secs for cadence in cadences)
    gaps = [cadence.usual_gap_secs for cadence in cadences if cadence.usual_gap_secs is not None]
    return SessionFacts(
        session=Session(
            session=id,
            attempt=0,
            host=host_of(draft.files),
            pid=None if draft.process is None else int(draft.process[1]),
            started_at=started,
            ended_at=ended,
            outcome="running",
            inferred=True,
            first_step=draft.first_step,
            last_step=draft.last_step,
            steps_per_sec=rate,
            last_progress_at=draft.progress_at,
            progress_timeout_secs=None if draft.stopped else timeout_secs,
            usual_gap_secs=gaps[-1] if gaps else None,
            activity_secs=secs,
            reported_secs={"productive": span},
            saves=len(draft.checkpoints),
            files=tuple(draft.files),
        ),
        curves=(curve,),
        is_start_exact=False,
        silence_secs=timeout_secs,
        alive_silence_secs=max(cadence.alive_timeout_secs for cadence in cadences),
        ended_itself=draft.stopped,
        checkpoints=tuple(
            Checkpoint(session=id, at=at, step=mark.step, path=mark.checkpoint_path, inferred=True)
            for mark, at in draft.checkpoints
        ),
    )


MAX_EXAMINED = 2_000
"""Unexplained resets examined per stretch; each costs in proportion to the number of tags."""

MAIN_SUFFIX = "/sec"
"""The step counters of TensorFlow's Supervisor and hooks write ``<global step's name>/sec`` and nothing else."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """A place in a file where training restarted at an earlier step."""

    offset: int
    """Of the first record after it."""
    from_step: int
    to_step: int
    ended_at: float
    """Wall time of the last point before it."""
    started_at: float


def step_boundaries(tags: Mapping[str, TagSteps]) -> list[Boundary]:
    """Return the places in one stretch of a file where training restarted at an earlier step, in order.

    One tag whose steps decrease proves nothing: a program may log anything. A boundary lies within a reset of the main
    series (``global_step/sec``), or within resets of most of the tags that would show one there: those with points on
    both sides, dense enough to show it. The tag with the most points must be one of them.
    """
    # By name: the order in which they were read depends on how the file was cut.
    witnesses = {tag: steps for tag, steps in sorted(tags.items()) if steps.is_witness}
    resets = sorted(
        ((reset, tag.endswith(MAIN_SUFFIX)) for tag, steps in witnesses.items() for reset in steps.resets),
        key=lambda found: found[0].after,
    )
    if not resets:
        return []
    first = np.array([steps.first_offset for steps in witnesses.values()])
    last = np.array([steps.last_offset for steps in witnesses.values()])
    stride = np.array([steps.stride for steps in witnesses.values()])
    lead = int(np.argmax([steps.count for steps in witnesses.values()]))
    before = np.array([reset.before for reset, _ in resets])
    found: list[Boundary] = []
    reached = examined = -1
    for index, (reset, _) in enumerate(resets):
        if reset.before < reached:  # explained by the boundary found before
            continue
        examined += 1
        if examined >= MAX_EXAMINED:
            break
        covering = [resets[index + other] for other in np.flatnonzero(before[index:] < reset.after).tolist()]
        deepest = max(other.from_step - other.to_step for other, _ in covering)
        on_both_sides = (first < reset.after) & (last >= reset.after)
        could_show = np.count_nonzero(on_both_sides & (stride <= deepest))
        most_agree = bool(on_both_sides[lead]) and 2 * len(covering) > could_show
        if most_agree or any(is_main for _, is_main in covering):
            found.append(_boundary([other for other, _ in covering]))
            reached = reset.after
    return found


def _boundary(resets: list[StepReset]) -> Boundary:
    highest = max(resets, key=lambda reset: (reset.from_step, -reset.after))
    return Boundary(
        offset=min(reset.after for reset in resets),
        from_step=highest.from_step,
        to_step=min(reset.to_step for reset in resets),
        ended_at=max(reset.ended_at for reset in resets),
        started_at=min(reset.started_at for reset in resets),
    )

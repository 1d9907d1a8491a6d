"""`joined`: one session from what several files tell of it."""

from __future__ import annotations

from collections.abc import Iterable

from supervisor_core.run.pace import Pace
from supervisor_core.run.session_fold import SessionFold, clocks_differ, save_histogram


def joined(parts: Iterable[SessionFold]) -> SessionFold:
    """Return one session from what its files tell, in their order; a single part is returned as it is."""
    first, *later = parts
    if not later:
        return first
    whole_session = SessionFold(first.id, first.kept_ticks)
    for part in (first, *later):
        _absorb(whole_session, part)
    return whole_session


def _absorb(into: SessionFold, part: SessionFold) -> None:
    if part.last_at is None:
        return
    into.first_at = part.first_at if into.first_at is None else into.first_at
    was_set = clocks_differ(into.clock_begun_at, part.clock_begun_at)
    into.last_at = part.last_at if into.last_at is None or was_set else max(part.last_at, into.last_at)
    if was_set:
        into.last_progress_at = None
    into.clock_begun_at = into.clock_begun_at if part.clock_begun_at is None else part.clock_begun_at
    into.attempt = part.attempt if into.attempt is None else into.attempt
    into.record = into.record or part.record
    into.stop, into.stop_at = (part.stop, part.stop_at) if part.stop else (into.stop, into.stop_at)
    into.begun_at = part.begun_at if into.begun_at is None else into.begun_at
    into.first_told = into.first_told or part.first_told
    into.beat, into.beat_at = (part.beat, part.beat_at) if part.beat else (into.beat, into.beat_at)
    if part.cadence_secs is not None:
        into.cadence_secs = max(into.cadence_secs or 0.0, part.cadence_secs)
    into.told_secs = part.told_secs or into.told_secs
    into.went(part.most_steps_per_sec)
    for at, before, secs in part.silences.items:
        into.silent_secs = max(into.silent_secs, before)
        into.was_silent(at, secs)
    into.silences.dropped += part.silences.dropped
    into.is_stalled = part.is_stalled
    into.paces[-1].absorb(part.paces[0])
    for pace in part.paces[1:]:
        into.paces.append(Pace(pace.first_step, max(pace.begin_secs, into.paces[-1].end_secs)))
        into.paces[-1].absorb(pace)
    if part.recoveries.total:
        into.last_step = part.last_step
    else:
        into.got_to(part.last_step)
    if part.last_progress_at is not None:
        into.moved(part.last_progress_at)
    for name, thread in part.threads.by_name.items():
        if (whole_thread := into.thread(name)) is not None:
            whole_thread.absorb(thread)
    into.workers_at = part.workers_at if part.workers_at is not None else into.workers_at
    for name, worker in part.workers.by_name.items():
        if (whole_worker := into.worker(name)) is not None:
            whole_worker.absorb(worker)
    into.recoveries.extend(part.recoveries)
    into.checkpoints.extend(part.checkpoints)
    for at, index, stall in part.stalls.items:
        into.stalls.add((at, into.stall_count + index, stall))
    for index, stacks in part.stacks.items:
        into.stacks.add((into.stall_count + index, stacks))
    into.stalls.dropped, into.stacks.dropped = part.stalls.dropped, part.stacks.dropped
    into.stall_count += part.stall_count
    into.saves += part.saves
    into.save_failures += part.save_failures
    good = part.saves > part.save_failures
    into.save_failures_in_a_row = part.save_failures_in_a_row + (0 if good else into.save_failures_in_a_row)
    if part.save_secs is not None and part.blocked_secs is not None:
        into.save_secs, into.blocked_secs = into.save_secs or save_histogram(), into.blocked_secs or save_histogram()
        into.save_secs.merge(part.save_secs)
        into.blocked_secs.merge(part.blocked_secs)

"""What `Changes` knows of one run: which of its findings hold and were said, and which of its restarts and ends.

What identifies an event comes from the run's records only, so that watchers on several machines, which look at
different moments, give it one id.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from supervisor_core.events.notice_record import NoticeRecord
from supervisor_core.run.judge.counters import launches_without_session
from supervisor_core.run.judge.finding import KINDS, Finding
from supervisor_core.run.judge.history import ENDS, history
from supervisor_core.run.judge.state_findings import UNPLANNED, open_stall
from supervisor_core.run.model.program_launch import final_launch
from supervisor_core.run.model.run import Run, Session, Stall
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.run.model.words import DAY_SECS

QUIET = frozenset(("copy", "clock_skew", "restarted", "stopped", "notice"))
"""Kinds of findings that are no events: three are said as a restart, an end, a notice; two ask for no message."""
OF_READING = frozenset(("unreachable", "read_error"))
"""Kinds that say something of a run whose files cannot be read now; of all others nothing is concluded from it."""
MOMENTS = frozenset(("resumed_not_exactly", "completed_without_step", "completed_unsaved"))
"""Kinds that say how a session began or ended: they are said once, and are never over."""
OVER = ("completed", "stopped")

_HOLDS: Mapping[str, str] = {
    "unreachable": "stall_hold_secs",
    "stalled": "stall_hold_secs",
    "silent": "stall_hold_secs",
    "saves_failing": "save_hold_secs",
    "events_failing": "save_hold_secs",
    "worker_lost": "worker_hold_secs",
    "straggler": "hold_secs",
    "checkpoint_overdue": "hold_secs",
    "disk_low": "hold_secs",
    "slow": "hold_secs",
    "thread_down": "hold_secs",
    "read_error": "hold_secs",
    "checkpoint_interval_far": "hold_secs",
}
"""For how long a finding must hold before it is an event, as the `for` of its alert; at once where nothing is here."""
DAILY = frozenset(("slow", "events_failing", "disk_low", "straggler", "thread_down", "read_error"))
"""Kinds whose begin no record dates: at most one event for each session, kind and day."""


def run_key(watched: WatchedRun) -> str:
    """Return what identifies the newest session of a run for every watcher: see `session_key`, or its launch's id;
    without telemetry its file and its begin."""
    run, last = watched.run, newest_session(watched.run)
    if last is not None and not last.inferred:
        return session_key(last)
    if run.launches:
        return run.launches[-1].launch
    paths = last.files[-1:] if last is not None else tuple(file.path for file in watched.files[:1])
    names = (path.rpartition("/")[2] for path in (watched.directory.rstrip("/"), *paths))
    return "/".join((*names, *(() if last is None else (last.id, repr(last.started_at)))))


def session_key(session: Session) -> str:
    """Return what identifies a session for every watcher: its id, and the directory that its record names as its own.
    Who has read the id and writes it into another run, so that its death is taken for this one's, has another one; a
    run that names this one's directory is a copy."""
    return session.id if session.logdir is None else f"{session.id} {session.logdir}"


def newest_session(run: Run) -> Session | None:
    """Return the newest session of a run; None without one."""
    return run.sessions[-1] if run.sessions else None


def own_clock(run: Run, at: float) -> float:
    """Return a time of the reader's clock by that of the run's machine, by which its records are."""
    return at + (run.clock_skew_secs or 0.0)


def instance_of(found: Finding, watched: WatchedRun, now: float, limits: Thresholds) -> tuple[object, ...]:
    """Return what identifies a finding among those of its kind, for every watcher alike.

    Args:
        found: the finding.
        watched: the run.
        now: the present wall time.
        limits: by which it was found.
    """
    run, kind, key = watched.run, found.kind, run_key(watched)
    if kind in DAILY:
        return key, kind, int(now // DAY_SECS)
    if kind == "stalled":
        return key, kind, *_stall(run)
    if kind == "failed":
        end = final_launch(run.launches)
        is_its_own = end is not None and any(item is end for item in launches_without_session(run))
        return key, kind, end.launch if end is not None and is_its_own else ""
    if kind == "loss_not_finite":
        return key, kind, run.loss_nonfinite_since
    if kind in ("saves_failing", "checkpoint_overdue"):
        return key, kind, next((saved.step for saved in reversed(run.checkpoints) if saved.ok), None)
    if kind == "restart_loop":
        unplanned = [(item.at, item.to_session) for item in run.restarts if item.reason in UNPLANNED and item.at]
        return kind, _loop(unplanned, limits.restarts, limits.restart_window_secs) or key
    if kind == "recovery_loop":
        lost = [(item.at, repr(item.at)) for item in run.recoveries]
        return key, kind, _loop(lost, limits.recoveries, limits.recovery_window_secs)
    if kind == "not_starting":
        return kind, _first_without_session(run)
    if kind == "unreachable" or found.since is None:
        return key, kind
    return key, kind, round(own_clock(run, found.since), 1)


def _stall(run: Run) -> tuple[object, ...]:
    """Return where a run hangs: a page and a record of one stall differ in its times, and agree in this."""
    stall, last = open_stall(run), newest_session(run)
    if stall is None:
        return run.step, None if last is None else last.phase, 0
    before = [item for item in run.stalls if item is not stall and _place(item) == _place(stall)]
    return run.step if stall.step is None else stall.step, stall.phase, len(before)


def _place(stall: Stall) -> tuple[object, ...]:
    return stall.session, stall.step, stall.phase


def _loop(times: list[tuple[float, str]], least: int, window_secs: float) -> str | None:
    """Return what the loop that lasts, or was the last, began with; None without one.

    It began when the least number fell into the window, and lasts until there are fewer in it.

    Example:
        >>> _loop([(0, "a"), (10, "b"), (20, "c"), (200, "d"), (210, "e"), (220, "f"), (230, "g")], 3, 60)
        'f'
    """
    begun, until = None, float("-inf")
    times = sorted(times)
    for index, (at, what) in enumerate(times):
        first = times[index - least + 1][0] if index >= least - 1 else None
        if first is None or at - first > window_secs:
            continue
        if at > until:
            begun = what
        until = first + window_secs
    return begun


def _first_without_session(run: Run) -> str:
    """Return the first of the launches since the newest session."""
    found = ""
    for launch in run.launches:
        found = "" if launch.session is not None else found or launch.launch
    return found


@dataclass(slots=True)
class Holding:
    """A finding that holds."""

    instance: tuple[object, ...]
    since: float
    """Since when it counts towards the time for which it must hold."""
    said: Finding | None = None
    """As it was said; None until then."""


@dataclass(slots=True)
class KnownRun:
    """One run, as of the looks so far. Used by `Changes` only."""

    watched: WatchedRun
    """As it was last read."""
    seen_at: float
    """When it was last there."""
    holding: dict[str, Holding] = field(default_factory=dict)
    """By kind."""
    restarts: frozenset[str] = frozenset()
    """What `restarts_of` has returned, by key."""
    end: str | None = None
    """The end that was said, or that is from before."""
    old_end: str | None = None
    """The end that is from before: of what holds since then nothing is said."""
    notices: frozenset[tuple[object, ...]] = frozenset()
    """What identifies those that hold; they were said."""
    daily: dict[str, tuple[object, ...]] = field(default_factory=dict)
    """Of the kinds of which one a day is said: the last that was, by kind."""
    gone_since: float | None = None
    """Since when its directory has been missing."""

    @property
    def is_settled(self) -> bool:
        """Whether time alone changes nothing in what is to be said of it."""
        end = end_of(self.watched)
        is_over = self.watched.run.state in ("lost", "failed") if end is None else end[0] == self.end
        return is_over and all(
            item.said is not None and kind in ("lost", "failed", "completed_unsaved", "completed_without_step")
            for kind, item in self.holding.items()
        )


def new_notices(known: KnownRun, now: float, limits: Thresholds) -> Iterator[tuple[tuple[object, ...], NoticeRecord]]:
    """Yield the notices of a run that hold and were not said, each with what identifies it; from now on they were."""
    run, before = known.watched.run, known.notices
    since = own_clock(run, now) - limits.notice_secs
    # A worker's may be recorded by two chiefs.
    found = {
        (each.session if each.worker is None else each.worker, "notice", each.severity, each.text, each.since): each
        for each in run.notices
        if (each.at or 0.0) > since
    }
    known.notices = frozenset(found)
    yield from ((key, each) for key, each in found.items() if key not in before)


def hold_secs(found: Finding, run: Run, limits: Thresholds, *, is_last: bool) -> float:
    """Return for how long a finding must hold before it is an event.

    Args:
        found: the finding.
        run: its run.
        limits: see `Thresholds`.
        is_last: whether there will be no later look.
    """
    if found.kind in ("lost", "failed"):
        if final_launch(run.launches) is not None or is_last:
            return 0.0
        return limits.start_grace_secs if run.restarting else down_secs(limits)
    name = _HOLDS.get(found.kind)
    return 0.0 if name is None else float(getattr(limits, name))


def down_secs(limits: Thresholds) -> float:
    """Return for how long a run must be down before that is an alert, or an event."""
    return limits.dead_hold_secs + 2 * limits.interval_secs


def held_since(found: Finding, run: Run, now: float) -> float:
    """Return since when a finding counts: since now, or since its records say so."""
    last = newest_session(run)
    since = now if found.since is None else min(found.since, now)
    if found.kind in ("lost", "failed"):
        return since
    if found.kind == "stalled":
        stall = open_stall(run)
        timeout_secs = stall.timeout_secs if stall is not None else None if last is None else last.progress_timeout_secs
        return now if timeout_secs is None else min(now, since + timeout_secs)
    if found.kind == "silent":
        return min(now, since + ((last and last.progress_timeout_secs) or 0.0))
    if found.kind == "checkpoint_overdue" and last is not None and last.save_failures_in_a_row:
        return since
    return now


@dataclass(frozen=True, slots=True)
class Started:
    """A run was started again."""

    at: float
    """By the reader's clock."""
    end: Finding | None
    """The end before; None of one that was planned."""
    session: Session | None
    """The new session; None of a launch that has none."""
    before: Session | None

    @property
    def is_planned(self) -> bool:
        """Whether it had ended as planned, or was preempted."""
        return self.end is None or self.end.kind == "signal"


def restart_keys(run: Run) -> frozenset[str]:
    """Return what identifies each restart of a run that is known by its records: the session that it began, or the
    launch that had none."""
    sessions = {item.id for item in run.sessions if not item.inferred}
    begun = {item.to_session for item in run.restarts if item.to_session in sessions}
    return frozenset(begun | {launch for launch, _ in _launches_again(run)})


def _launches_again(run: Run) -> Iterator[tuple[str, float]]:
    """Yield the launches without telemetry after which there was another one, and when that was."""
    starts = sorted(item.started_at for item in run.launches if item.started_at is not None)
    for launch in launches_without_session(run):
        index = len(starts) if launch.ended_at is None else bisect_left(starts, launch.ended_at)
        if index < len(starts):
            yield launch.launch, starts[index]


def restarts_of(run: Run, keys: frozenset[str]) -> Iterator[tuple[str, Started]]:
    """Yield the restarts of a run with these keys, by their keys.

    Args:
        run: the run.
        keys: of `restart_keys`.
    """
    if not keys:
        return
    sessions = {item.id: item for item in run.sessions}
    ends = {item.evidence["ended"]: item for item in history(run) if item.kind in ENDS}
    ahead = run.clock_skew_secs or 0.0
    for restart in run.restarts:
        if restart.to_session in keys and restart.at is not None:
            end, before = ends.get(restart.from_session), sessions.get(restart.from_session)
            yield restart.to_session, Started(restart.at - ahead, end, sessions.get(restart.to_session), before)
    for launch, at in _launches_again(run):
        if launch in keys and launch in ends:
            yield launch, Started(at - ahead, ends[launch], None, None)


def end_of(watched: WatchedRun) -> tuple[str, float | None] | None:
    """Return what identifies the end of a run that was completed or stopped, and when that was by the reader's clock;
    None of any other run."""
    run, last = watched.run, newest_session(watched.run)
    if run.state not in OVER or run.restarting:
        return None
    final = final_launch(run.launches)
    at = last.ended_at if last is not None and not last.inferred else None if final is None else final.ended_at
    return run_key(watched), None if at is None else at - (run.clock_skew_secs or 0.0)


def may_resume(run: Run) -> bool:
    """Return whether a run that was stopped may have been preempted: by a signal, and no restarter says that it is
    over."""
    last = newest_session(run)
    return last is not None and last.outcome == "signal" and final_launch(run.launches) is None


def is_aged(found: Finding) -> bool:
    """Return whether a finding has lost its urgency: it is of a run that died long ago, or has ended."""
    return found.severity == "info" and KINDS[found.kind].severity != "info" and found.kind != "notice"

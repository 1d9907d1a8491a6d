"""`HeldRun`: which findings of a run are held: they have lasted for as long as their kind needs.

This is the one place that decides it. Alerts, messages, `watch`, the exporter's page of alerts and the runs that need
somebody in the tab repeat what is held.
Nothing is concluded from a run that could not be read. A run that was started again before a finding was held has none.

What identifies a finding comes from the run's records only, so that readers on several machines, which look at
different moments, give it one identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from supervisor_core.run.judge.counters import launches_without_session
from supervisor_core.run.judge.finding import KINDS, Finding, worst_first
from supervisor_core.run.judge.findings import DEFAULTS, findings
from supervisor_core.run.judge.state_findings import open_stall
from supervisor_core.run.judge.wordings import say
from supervisor_core.run.model.program_launch import final_launch
from supervisor_core.run.model.run import UNPLANNED, Run, Session, Stall
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.run.model.words import DAY_SECS

What = Literal["begins", "is_over", "happened"]
"""``begins``: something is so from now on. ``is_over``: it is so no longer. ``happened``: it was a moment."""

QUIET = frozenset(("copy", "clock_skew", "restarted", "stopped", "over", "not_captured"))
"""Kinds that are never held: nobody is to be called for them."""
OF_READING = frozenset(("unreachable", "read_error"))
"""Kinds that say something of a run whose files cannot be read now; of all others nothing is concluded from it."""
MOMENTS = frozenset(("resumed_not_exactly", "completed_without_step", "completed_unsaved"))
"""Kinds that say how a session began or ended: they are said once, and are never over."""
DAILY = frozenset(("slow", "events_failing", "disk_low", "straggler", "thread_down", "read_error"))
"""Kinds whose begin no record dates: at most one is new for each session, kind and day."""
_LASTING = frozenset(("worker_lost", "worker_stuck", "thread_down"))
"""Kinds of which one finding may go on about other parts of the run."""

HOLDS: Mapping[str, str] = {
    "lost": "dead_hold_secs",
    "failed": "dead_hold_secs",
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
"""The threshold that says for how long a finding must last before it is held; at once where nothing is here."""


MOST_TEXTS = 20
"""How many texts a kind of finding has in a day, of one run: each is a series in Prometheus."""


_NOTHING: Mapping[str, Any] = {}


class DailyTexts:
    """Bounds how often what is said of one run changes within a day."""

    __slots__ = ("_day", "_texts")

    def __init__(self) -> None:
        self._day = 0
        self._texts: Mapping[str, set[tuple[str, str | None]]] = _NOTHING

    def of(self, found: Finding, now: float) -> Finding:
        """Return a finding as it is, or with a text that does not change if there were too many on this day."""
        day = int(now // DAY_SECS)
        if day != self._day:
            self._day, self._texts = day, {}
        texts = self._texts.get(found.kind) or set()
        self._texts = {**self._texts, found.kind: texts}
        if len(texts) < MOST_TEXTS:
            texts.add((found.text, found.action))
        if (found.text, found.action) in texts:
            return found
        text, action = say("changes", most=MOST_TEXTS), "Read what it is now with tb-supervisor inspect."
        return replace(found, text=text, action=action, is_command=False)


class Change(NamedTuple):
    """A finding that is held from now on, or no longer."""

    what: What
    finding: Finding
    """As it is when it begins; as it was then, when it is over."""
    instance: tuple[object, ...]
    """What identifies it, see `instance_of`."""
    since: float
    """Since when it counts."""


@dataclass(slots=True)
class _Holding:
    instance: tuple[object, ...]
    since: float
    """Since when it counts towards the time for which it must last."""
    current: Finding
    said: Finding | None = None
    """As it was when it became held; None until then."""


@dataclass(slots=True)
class HeldRun:
    """The findings of one run, as of the looks so far. Used by one thread at a time."""

    before: Mapping[str, tuple[str, float]] = field(default_factory=lambda: _NOTHING)
    """What an earlier process held: `state` of its object."""
    _holding: dict[str, _Holding] = field(default_factory=dict)
    _daily: Mapping[str, tuple[object, ...]] = field(default_factory=lambda: _NOTHING)
    """Of the kinds of which one a day is new: the last that was, by kind."""
    _texts: DailyTexts = field(default_factory=DailyTexts)
    _seen_at: float | None = None

    def update(
        self,
        watched: WatchedRun,
        now: float,
        limits: Thresholds = DEFAULTS,
        *,
        said: Sequence[Finding] | None = None,
        is_last: bool = False,
        is_old: bool = False,
    ) -> list[Change]:
        """Take the run as it is now, and return what that changes.

        Args:
            watched: the run.
            now: the current wall time.
            limits: from when on something is a finding, and for how long it must last.
            said: its `findings`, where they are at hand.
            is_last: whether there will be no later look: deaths are held at once.
            is_old: whether the run ended before anybody looked: it has no findings.
        """
        was_away = self._seen_at is not None and now - self._seen_at > limits.behind_secs
        self._seen_at = now
        can_judge = is_read(watched)
        said = () if is_old else findings(watched, now, limits) if said is None else said
        found = {
            item.kind: item
            for item in reversed(said)  # of a kind the worst counts
            if item.kind not in QUIET and (can_judge or item.kind in OF_READING)
        }
        changes = []
        for kind, holding in list(self._holding.items()):
            item = found.get(kind)
            is_other = item is not None and _is_other(holding, item, watched, now, limits)
            if (item is None or is_other) and (can_judge or kind in OF_READING):
                del self._holding[kind]
                if holding.said is not None and kind not in MOMENTS:
                    changes.append(Change("is_over", holding.said, holding.instance, holding.since))
        for item in reversed(found.values()):
            changes += self._hold(item, watched, now, limits, is_last=is_last, was_away=was_away)
        return changes

    def skip(self, now: float) -> None:
        """Note a look at which the run was as before, and time alone changes nothing."""
        self._seen_at = now

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is held, the worst first. A text stays what it was when the finding became held; see `DailyTexts`."""
        found = []
        for each in self._holding.values():
            if each.said is not None:
                since = each.since if each.said.since is None else each.said.since
                said = replace(each.current, text=each.said.text, since=since)
                found.append(self._texts.of(said, self._seen_at or 0.0))
        return worst_first(found)

    @property
    def state(self) -> dict[str, tuple[str, float]]:
        """What another process needs to go on: of each kind what identifies the finding, and since when it counts."""
        return {kind: (repr(each.instance), each.since) for kind, each in self._holding.items()}

    def is_settled(self) -> bool:
        """Whether time alone changes nothing in what is held."""
        lasting = ("lost", "failed", "completed_unsaved", "completed_without_step")
        return all(item.said is not None and kind in lasting for kind, item in self._holding.items())

    def _hold(
        self, item: Finding, watched: WatchedRun, now: float, limits: Thresholds, *, is_last: bool, was_away: bool
    ) -> Iterator[Change]:
        kind, held = item.kind, self._holding.get(item.kind)
        if held is None:
            if item.severity == "info" and KINDS[kind].severity != "info" and kind != "notice":
                return  # it is of a run that died long ago, or has ended
            instance = instance_of(item, watched, now, limits)
            if self._daily.get(kind) == instance:
                return
            known, since = self.before.get(kind, ("", now))
            since = since if known == repr(instance) else _counts_since(item, watched.run, now)
            held = self._holding[kind] = _Holding(instance, since, item)
        held.current = item
        if held.said is not None:
            return
        if was_away and not is_last:  # the reader hung, or its machine slept, perhaps with the training
            held.since = now
        if now - held.since >= _hold_secs(item, watched.run, limits, is_last=is_last):
            held.said = item
            if kind in DAILY:
                self._daily = {**self._daily, kind: held.instance}
            yield Change("happened" if kind in MOMENTS else "begins", item, held.instance, held.since)


def is_read(watched: WatchedRun) -> bool:
    """Return whether anything may be concluded from a run: its directory and its files could be read."""
    if watched.unreachable or any(file.unreadable for file in watched.files):
        return False
    return watched.problem is None or bool(watched.dropped)  # what is beyond a bound is a problem, and stays one


def run_key(watched: WatchedRun) -> str:
    """Return what identifies the newest session of a run for every reader: see `session_key`, or its launch's id;
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
    """Return what identifies a session for every reader: its id, and the directory that its record names as its own.
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
    """Return what identifies a finding among those of its kind, for every reader alike.

    Args:
        found: the finding.
        watched: the run.
        now: the current wall time.
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


def _hold_secs(found: Finding, run: Run, limits: Thresholds, *, is_last: bool) -> float:
    if found.kind in ("lost", "failed"):
        if final_launch(run.launches) is not None or is_last:
            return 0.0
        if run.restarting:
            return limits.start_grace_secs
    name = HOLDS.get(found.kind)
    return 0.0 if name is None else float(getattr(limits, name))


def _counts_since(found: Finding, run: Run, now: float) -> float:
    """Return since when a finding counts: since now, or since its records say so."""
    last = newest_session(run)
    since = now if found.since is None else min(found.since, now)
    if found.kind in ("lost", "failed"):
        return since
    if found.kind == "stalled":
        stall = open_stall(run)
        of_stall = None if stall is None else stall.timeout_secs
        timeout_secs = of_stall if of_stall is not None or last is None else last.progress_timeout_secs
        return now if timeout_secs is None else min(now, since + timeout_secs)
    if found.kind == "silent":
        return min(now, since + ((last and last.progress_timeout_secs) or 0.0))
    if found.kind == "checkpoint_overdue" and last is not None and last.save_failures_in_a_row:
        return since
    return now


def _is_other(holding: _Holding, item: Finding, watched: WatchedRun, now: float, limits: Thresholds) -> bool:
    """Return whether a finding is not the one that has held, but another one of its kind."""
    instance = instance_of(item, watched, now, limits)
    if instance == holding.instance:
        return False
    is_same_session = instance[0] == holding.instance[0]
    lasts = item.kind in _LASTING or item.since is None
    return not (is_same_session and lasts)

"""`RunFold`: the model of one run, updated chunk by chunk.

A pure fold: no threads, no I/O, no clock. Finished parts are cached: an update costs in proportion to the new events,
a read in proportion to what has changed since the last one. The result does not depend on the order of the files, nor
on how they were cut into chunks. Which checkpoints are still on disk is asked of a function that is passed in.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from supervisor_core.base.session_labels import usable
from supervisor_core.events.chunk import Chunk
from supervisor_core.events.record_fields import replaced, values_of
from supervisor_core.events.telemetry import DeathRecord, OpenStall
from supervisor_core.run.fold.advice import FAILURES, Costs, advice, present_interval
from supervisor_core.run.fold.bounds import KEPT_SAVES, Allowance, DroppedKind
from supervisor_core.run.fold.end import RestarterRuns, end_by_death, ended, standing, with_stalls
from supervisor_core.run.fold.file_fold import FileFold, Reached, nonfinite_since, totals
from supervisor_core.run.fold.first_error import with_first_error
from supervisor_core.run.fold.goodput import is_down
from supervisor_core.run.fold.inferred_sessions import LastWrite, clocks_ahead, inferred_facts
from supervisor_core.run.fold.notices import notices_of
from supervisor_core.run.fold.restarter_launches import joined, merged, with_causes, with_process
from supervisor_core.run.fold.session_facts import SessionFacts, telemetry_facts
from supervisor_core.run.fold.session_fold import (
    NOTHING,
    clocks_differ,
    merged_session,
    with_last_beat,
    with_liveness,
    with_stall,
)
from supervisor_core.run.fold.timeline import Timeline, timeline_of
from supervisor_core.run.model.checkpoints import Checkpoint, CheckpointFiles, MovedAt, Present, last_good
from supervisor_core.run.model.liveness_record import LivenessRecord
from supervisor_core.run.model.program_launch import ProgramLaunch
from supervisor_core.run.model.rate_history import RateHistory
from supervisor_core.run.model.run import (
    AT_RISK,
    BUCKET_OF_PHASE,
    DOWNTIME,
    LIVE,
    PRODUCTIVE,
    STALL,
    WASTED,
    Advice,
    AtRisk,
    Goodput,
    Recovery,
    Restart,
    Run,
    RunState,
    Session,
    Stall,
    unplanned_since,
)
from supervisor_core.run.model.thresholds import Thresholds


def unchecked(item: object) -> bool | None:
    """Return None: whether the checkpoint is on disk, or the restarter runs, was not checked."""
    return None


def unknown_time(path: str) -> float | None:
    """Return None: when a checkpoint was set aside is unknown."""
    return None


_NO_TOTALS = totals(())

_TimedDeath = tuple[DeathRecord, float]
"""What is known of a death, and when that was recorded."""


class RunFold:
    """Folds the chunks of one run's events files into a `Run`. Not thread-safe.

    Args:
        name: the run's, as TensorBoard names it.
        kept_ticks: the number of newest ticks kept per service thread, and of newest spans per thread and per worker;
            then `Run.rates` is empty. None: all are kept.
        all_saves: whether all saves are kept; else of each session the newest `KEPT_SAVES` good ones, as many others,
            and of a longer row of failures its first with the save before it.

    Example:
        >>> fold = RunFold("digits")
        >>> fold.update([])
        >>> fold.run(now=1795222244.0).state
        'unknown'
    """

    def __init__(self, name: str, *, kept_ticks: int | None = None, all_saves: bool = True) -> None:
        self.name = name
        self._kept_ticks = kept_ticks
        self._files: dict[str, FileFold] = {}
        self._allowance = Allowance(None if all_saves else KEPT_SAVES)
        self._facts: Mapping[str, tuple[object, SessionFacts]] = NOTHING
        self._timeline: Timeline | None = None
        self._totals = _NO_TOTALS
        self._launches: tuple[ProgramLaunch, ...] = ()
        self._death: DeathRecord | None = None
        self._live: tuple[LivenessRecord | None, OpenStall | None] = None, None
        self._written: Mapping[str, LastWrite] = NOTHING
        self._presence: CheckpointFiles | None = None
        self._undivided = 0
        self._dropped: Mapping[DroppedKind, int] = NOTHING

    def update(self, chunks: Iterable[Chunk]) -> None:
        """Add new events.

        Args:
            chunks: those of one file in their order; one with ``from_start`` replaces all earlier ones of its path.
        """
        for chunk in chunks:
            if chunk.from_start or chunk.path not in self._files:
                if chunk.path in self._files:
                    self._files[chunk.path].give_back()
                self._files[chunk.path] = FileFold(chunk.path, self._kept_ticks, self._allowance)
            self._files[chunk.path].add(chunk)
            self._timeline = None

    @property
    def newest(self) -> SessionFacts | None:
        """The newest session, by what is known of it; its outcome is ``running`` without a record of its end."""
        facts = self._line().facts
        return facts[-1] if facts else None

    @property
    def last_event_at(self) -> float | None:
        """Wall time of the last event; None without one."""
        self._line()
        return self._totals.last_event_at

    def died(self, death: DeathRecord) -> None:
        """Add that the process of a session is over, which no record of the run says yet. A record of how the session
        ended, read before or after, counts instead."""
        self._death, self._timeline = death, None

    def lives(self, live: LivenessRecord | None, stall: OpenStall | None = None) -> None:
        """Take what is known now of the newest session.

        Args:
            live: what its chief's liveness file has; None without one.
            stall: a hang that no record shows.
        """
        if (live, stall) != self._live:
            self._live, self._timeline = (live, stall), None

    def was_written(self, written: Mapping[str, LastWrite]) -> None:
        """Take when each events file was last written, by path: the clocks of their writers may differ."""
        if written != self._written:
            self._written, self._timeline = dict(written), None

    def rest(self) -> None:
        """Forget what can be put together again: the next read takes longer, and memory is free until then."""
        self._facts, self._timeline, self._presence = NOTHING, None, None
        self._totals, self._launches = _NO_TOTALS, ()

    def run(
        self,
        now: float,
        present: Present = unchecked,
        restarter_runs: RestarterRuns = unchecked,
        writes: bool | None = None,
        moved_at: MovedAt = unknown_time,
    ) -> Run:
        """Return the run as of `now`.

        Args:
            now: the present wall time by the clock of the run's machine, seconds since the epoch.
            present: returns whether the files of a checkpoint exist, by its path as the session wrote it; None where
                that is unknown. Called once per path, so it must be cheap. Default: unknown for all.
            restarter_runs: returns whether the restarter of a launch runs. Default: unknown for all.
            writes: whether a process that writes a run without telemetry is seen to run. Default: unknown.
            moved_at: returns when what is at a path was set aside there. Default: unknown for all.
        """
        line = self._line()
        files, last = self._totals, line.facts[-1] if line.facts else None
        sessions = with_process(line.history.sessions, self._launches)
        writes = None if self._launches or last is None or not last.session.inferred else writes
        stands = standing(last, self._launches, now, files.last_event_at, restarter_runs, writes)
        state, launches = stands.state, stands.launches
        if sessions and stands.outcome is not None and stands.outcome != sessions[-1].outcome:
            sessions = (*sessions[:-1], replaced(sessions[-1], outcome=stands.outcome))
        if last is not None and writes is not None and not last.ended_itself:
            timeout_secs = last.alive_silence_secs if writes else last.session.progress_timeout_secs
            newest = replaced(sessions[-1], gone=not writes, progress_timeout_secs=timeout_secs)
            sessions = (*sessions[:-1], newest)
        if sessions and sessions[-1].inferred and state == "stalled":
            sessions = (*sessions[:-1], replaced(sessions[-1], steps_per_sec=0.0))
        sessions = with_first_error(sessions, line.history.workers)
        checkpoints = line.history.checkpoints
        if present is not unchecked:
            self._presence = self._presence or CheckpointFiles()
            checkpoints = self._presence.joined(checkpoints, present, moved_at)
        loss_finite, since = self._losses(sessions)
        step = line.history.step
        good = step if since is None or step is None else min(step, since.step - 1)
        saved = _saved_if_at_risk(state, good, sessions, checkpoints, line.history.recoveries)
        goodput = _goodput(line, state, now, None if saved is None else saved.step, None if since is None else good)
        stalls = _stalls(line, state, now)
        return Run(
            **{**values_of(line.history), **values_of(files), "sessions": sessions, "checkpoints": checkpoints},
            name=self.name,
            labels=next((usable(session.labels) for session in reversed(sessions) if session.labels), {}),
            state=stands.shown,
            restarting=stands.restarting,
            inferred=all(session.inferred for session in sessions),
            launches=launches,
            stalls=tuple(stall for stall in stalls if stall.service is None),
            service_stalls=tuple(stall for stall in stalls if stall.service is not None),
            silences=tuple(silence for facts in line.facts for silence in facts.silences),
            notices=notices_of(notice for facts in line.facts for notice in facts.notices),
            goodput=goodput,
            at_risk=None
            if saved is None
            else AtRisk(
                steps=(good or 0) - saved.step,
                secs=goodput.secs[AT_RISK],
                saved_step=saved.step if saved.is_checkpoint else None,
            ),
            advice=_advice(
                sessions,
                goodput,
                # A run that is over is in no loop.
                0 if state in ("completed", "stopped") else _failed_lately(line.history.restarts, files.last_event_at),
            ),
            steps_per_sec=sessions[-1].steps_per_sec if sessions else None,
            nonfinite=sum(found.values for found in files.nonfinite_tags),
            loss_finite=loss_finite,
            loss_nonfinite_since=None if since is None else since.step,
            loss_nonfinite_at=None if since is None else since.at,
            speed=self._speed() if state == "running" else None,
            last_good=last_good(checkpoints, None if since is None else since.step),
            dropped={str(kind): count for kind, count in self._dropped.items()},
        )

    def _speed(self) -> RateHistory:
        """Return the rates of all files as one history."""
        files = sorted(self._files.values(), key=lambda file: file.order)
        return RateHistory.joined(file.speed for file in files)

    def _losses(self, sessions: Sequence[Session]) -> tuple[bool | None, Reached | None]:
        """Return whether the newest value of each loss of the newest session is finite; and since when one has
        had no finite value, also in earlier sessions."""
        if not sessions:
            return None, None
        last = sessions[-1]
        losses: dict[str, bool] = {}
        newest = _by_newest_loss([self._files[path] for path in last.files], last)
        if not last.inferred and last.started_at is not None:  # the program may log its loss by a writer of its own
            plain = [file for file in self._files.values() if not file.sessions and not file.is_of_restarter]
            beside = [file for file in plain if file.newest_loss[0] >= last.started_at]
            newest = sorted([*newest, *beside], key=lambda file: file.newest_loss) if beside else newest
        for file in newest:
            losses.update({tag: tail.since is None for tag, tail in file.losses.items()})
        watched = None if last.beat is None else last.beat.loss_finite
        found = [*losses.values(), *(() if watched is None else (watched,))]
        files = [*(self._files[path] for session in sessions[:-1] for path in session.files), *newest]
        since = nonfinite_since(files, [tag for tag, is_finite in losses.items() if not is_finite])
        return all(found) if found else None, since

    def _line(self) -> Timeline:
        if self._timeline is None:
            silent = [file for file in self._files.values() if not file.sessions and not file.is_of_restarter]
            for file in self._files.values():
                file.ahead_secs = 0.0
            for file, ahead_secs in clocks_ahead(silent, self._written):
                file.ahead_secs = ahead_secs
            files = sorted(self._files.values(), key=lambda file: file.order)
            self._launches = merged(launch for file in files for launch in file.restarter_launches.launches.items)
            written = {path: written.at for path, written in self._written.items()}
            self._timeline = timeline_of(self._session_facts(files), self._launches, self._kept_ticks, written)
            history = self._timeline.history
            sessions = history.sessions
            last = sessions[-1].files if sessions else ()
            earlier = {path for session in sessions if not session.inferred for path in session.files}
            ordered = _in_order(files, sessions)
            self._totals = totals(ordered, earlier.difference(last))
            if self._launches:
                restarts = joined(history.restarts, sessions, self._launches)
                history = replace(history, restarts=restarts, sessions=with_causes(sessions, restarts))
                stalls = (stall for file in files for stall in file.restarter_launches.stalls())
                facts = with_stalls(self._timeline.facts, stalls)
                self._timeline = replace(self._timeline, history=history, facts=facts)
            undivided: Counter[DroppedKind] = Counter({"sessions": self._undivided})
            self._dropped = +sum((file.dropped for file in files), undivided) or NOTHING
        return self._timeline

    def _session_facts(self, files: Sequence[FileFold]) -> list[SessionFacts]:
        """Return the facts of each session; computed only for those whose files have grown."""
        parts: dict[str, list[FileFold]] = {}
        for file in files:
            for id in file.sessions:
                parts.setdefault(id, []).append(file)
        facts: dict[str, tuple[object, SessionFacts]] = {}
        deaths: dict[str, _TimedDeath] = {}
        if self._death is not None:
            deaths[self._death.session] = (self._death, math.inf)
        for found in (item for file in files for item in file.deaths.items):
            session = found[0].session
            deaths[session] = _joined_deaths(deaths[session], found) if session in deaths else found
        for id, in_files in parts.items():
            death = deaths.get(id)
            live = self._live if self._live[0] is not None and self._live[0].session == id else (None, None)
            key = ([_state_of(id, file) for file in in_files], death, live)
            known = self._facts.get(id)
            if known is None or known[0] != key:
                known = (key, _own_facts(id, in_files, death, live))
            facts[id] = known
        self._facts = facts
        own = [found for _, found in facts.values()]
        silent = [file for file in files if not file.sessions and not file.is_of_restarter]
        spans = [
            (each.session.started_at, each.session.ended_at)
            for each in own
            if each.session.started_at is not None and each.session.ended_at is not None
        ]
        inferred, self._undivided = inferred_facts(silent, spans)
        return [*own, *inferred]


def _joined_deaths(one: _TimedDeath, other: _TimedDeath) -> _TimedDeath:
    """Return what two records have of one death: a restarter has its page, the next session its last heartbeat."""
    rest, best = sorted((one, other), key=lambda item: (item[0].step_exact, item[0].elapsed_secs or 0.0))
    return replace(best[0], beat=best[0].beat or rest[0].beat, stall=best[0].stall or rest[0].stall), best[1]


def _in_order(files: Sequence[FileFold], sessions: Sequence[Session]) -> list[FileFold]:
    """Return files in the order of the sessions that wrote them; the others are inserted by time."""
    by_path = {file.path: file for file in files}
    paths = [path for session in sessions if not session.inferred for path in session.files]
    ordered = [by_path[path] for path in dict.fromkeys(paths)]
    if not ordered and sessions and len(sessions[-1].files) > 1:
        newest = _by_newest_loss([by_path[path] for path in sessions[-1].files], sessions[-1])
        return [*(file for file in files if file.path not in sessions[-1].files), *newest]
    if not ordered:
        return list(files)
    for file in files:
        if not file.sessions:
            position = next((index for index, each in enumerate(ordered) if each.order > file.order), len(ordered))
            ordered.insert(position, file)
    return ordered


def _by_newest_loss(files: list[FileFold], session: Session) -> list[FileFold]:
    """Return the files of a session. Two writers without telemetry may write one loss: its newest value is that of the
    file that comes last."""
    return sorted(files, key=lambda file: file.newest_loss) if session.inferred else files


def _state_of(id: str, file: FileFold) -> tuple[object, ...]:
    """Return a key that changes when the file has something new for the session."""
    is_last = file.last_session == id
    return file, file.sessions[id].version, file.start_step, file.version if is_last else None


def _own_facts(
    id: str,
    files: Sequence[FileFold],
    death: tuple[DeathRecord, float] | None,
    known: tuple[LivenessRecord | None, OpenStall | None],
) -> SessionFacts:
    live, stall = known
    if len(files) > 1 and all(file.sessions[id].clock.first_elapsed_secs is not None for file in files):
        files = sorted(files, key=lambda file: (file.sessions[id].clock.first_elapsed_secs or 0.0, file.order))
    latest = files[-1]
    begun_at = latest.sessions[id].clock.begun_at
    last_times = [
        file.last_at
        for file in files
        if file.last_session == id
        and file.last_at is not None
        and not clocks_differ(file.sessions[id].clock.begun_at, begun_at)
    ]
    fold = merged_session(file.sessions[id] for file in files)
    if live is not None:
        fold = with_liveness(fold, live)
    elif death is not None:
        fold = with_last_beat(fold, death[0])
    facts = telemetry_facts(
        fold,
        files=[file.path for file in files],
        seen_at=max(last_times, default=None),
        start_step=files[0].start_step,
        tail=latest.tail.reached if latest.last_session == id else None,
    )
    if live is not None:
        session = replaced(facts.session, save_error=live.save_error, events_error=live.events_error)
        facts = replaced(facts, session=session)
    if stall is not None and facts.session.is_open:
        facts = replaced(facts, is_stalled=True, stalls=with_stall(facts.stalls, id, stall))
    return facts if death is None else ended(facts, end_by_death(facts.session, *death))


def _goodput(
    line: Timeline, state: RunState, now: float, at_risk_after: int | None, wasted_after: int | None
) -> Goodput:
    """Return the goodput as of `now`: a live run's time since its last event is booked by its state, that of one that
    is down as downtime; any other run ends with its last event."""
    if state == "stalled":
        return line.walk.value(now, STALL, at_risk_after, wasted_after)
    if line.facts and is_down(state, line.facts[-1].session, now):
        return line.walk.value(now, DOWNTIME, at_risk_after, wasted_after)
    if state != "running":
        return line.walk.value(None, "other", at_risk_after, wasted_after)
    last = line.history.sessions[-1]
    bucket = PRODUCTIVE if last.inferred else BUCKET_OF_PHASE.get(last.phase or "", "other")
    return line.walk.value(now, bucket, at_risk_after, wasted_after)


def _stalls(line: Timeline, state: RunState, now: float) -> list[Stall]:
    """Return all stalls; open ones end with their session, or last until now."""
    found: list[Stall] = []
    for index, facts in enumerate(line.facts):
        is_open = index == len(line.facts) - 1 and state in LIVE
        for stall in facts.stalls:
            if stall.until is not None:
                found.append(stall)
                continue
            ended_at = facts.session.ended_at
            until = now if is_open or ended_at is None else max(ended_at, stall.since)
            secs = max(stall.secs, until - stall.since)
            found.append(replace(stall, secs=secs, until=None if is_open else stall.since + secs))
    return found


def _failed_lately(restarts: Sequence[Restart], last_event_at: float | None) -> int:
    return len(unplanned_since(restarts, (last_event_at or 0.0) - Thresholds.restart_window_secs))


def _advice(sessions: Sequence[Session], goodput: Goodput, failed_lately: int) -> Advice:
    saved = [session.save_secs for session in sessions if session.save_secs is not None]
    blocked = [session.blocked_secs for session in sessions if session.blocked_secs is not None]
    intervals = [each.checkpoint_interval_secs for each in sessions if each.checkpoint_interval_secs is not None]
    costs = Costs(
        trained_secs=sum(goodput.secs[bucket] for bucket in (PRODUCTIVE, AT_RISK, WASTED)),
        failures=_failures(sessions),
        saves=sum(sum(each.counts) for each in blocked),
        save_secs=sum(each.sum for each in saved),
        blocked_secs=sum(each.sum for each in blocked),
    )
    found = advice(costs, present_interval(costs, intervals[-1] if intervals else None))
    is_looping = failed_lately >= Thresholds.restarts
    return replaced(found, recommended_interval_secs=None, recommended_cost_ratio=None) if is_looping else found


def _failures(sessions: Sequence[Session]) -> int:
    """Return the number of sessions that reached a step above all before it, and then failed."""
    found, best = 0, None
    for session in sessions:
        reached, base = session.last_step, session.first_step if best is None else best
        if reached is not None and reached > (base or 0):
            found += session.outcome in FAILURES
            best = reached
    return found


class _Saved(NamedTuple):
    step: int
    is_checkpoint: bool
    """Whether a checkpoint of that step exists; else nothing is saved."""


def _saved_if_at_risk(
    state: RunState,
    step: int | None,
    sessions: Sequence[Session],
    checkpoints: Sequence[Checkpoint],
    recoveries: Sequence[Recovery],
) -> _Saved | None:
    """Return what is saved of a run with steps that are at risk: those after it; None where none are, or it is unknown.

    Steps are at risk in a run that is lost or has failed, and in any other whose last save failed or that never had a
    successful one.
    """
    last = sessions[-1] if sessions else None
    if last is None or last.inferred or step is None:
        return None
    tried = [saved for saved in checkpoints if saved.session == last.id]
    cannot_save = last.save_failures_in_a_row > 0 or (bool(tried) and not tried[-1].ok)
    never_saved = state in LIVE and bool(checkpoints) and not any(saved.ok for saved in checkpoints)
    is_at_risk = state in ("lost", "failed") or cannot_save or never_saved
    if not is_at_risk:
        return None
    saved = _saved(last, checkpoints, tried, recoveries)
    return saved if step > saved.step else None


def _saved(
    last: Session, checkpoints: Sequence[Checkpoint], tried: Sequence[Checkpoint], recoveries: Sequence[Recovery]
) -> _Saved:
    own = _newest_good(tried)
    for recovery in reversed(recoveries):
        if (
            recovery.session == last.id
            and recovery.restored_step is not None
            and recovery.restored_checkpoint is not None
        ):
            if own is None or own.at is None or recovery.at > own.at:
                return _Saved(recovery.restored_step, True)
            break
    has_begun = last.first_step is not None and not last.adopted  # else the earlier checkpoints count
    newest = own if own is not None or has_begun else _newest_good(checkpoints)
    if newest is not None and newest.step is not None:
        return _Saved(newest.step, True)
    if last.restored_step is not None and has_begun:
        return _Saved(last.restored_step, True)
    return _Saved(last.first_step or 0 if has_begun else 0, False)


def _newest_good(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    for saved in reversed(checkpoints):
        if saved.path is not None and saved.step is not None and saved.is_there is not False:
            return saved
    return None

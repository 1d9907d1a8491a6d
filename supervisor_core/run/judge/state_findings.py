"""Findings about the state of a run, its restarts, and how its newest session began and ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from supervisor_core.base.log import command_line
from supervisor_core.checkpoint.names import last_part
from supervisor_core.process.stacks import BLOCKED, MAIN_THREAD, Activity, location, whereabouts
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.judge.finding_subject import Subject, found, process
from supervisor_core.run.judge.part_findings import UNKNOWN_WHY, at_death
from supervisor_core.run.judge.wordings import BEFORE, say
from supervisor_core.run.model.program_launch import ProgramLaunch, final_launch, launch_end, launch_text
from supervisor_core.run.model.run import UNPLANNED, Restart, Run, Session, Stall, unplanned_since
from supervisor_core.run.model.words import counted, duration, in_a_line, next_sentence, sentence

NOT_STARTING = 2
"""How many launches must have ended before their first event."""
WOULD_KNOW = "Start such a program by tb-supervisor run, which records how it ends."


def state(about: Subject) -> Iterator[Finding]:
    """Yield that the run is stalled, lost, has failed, or is silent."""
    rule = {"stalled": _stalled, "lost": _lost, "failed": _failed, "unknown": _silent}.get(about.run.state)
    if rule is not None:
        yield from rule(about)


def open_stall(run: Run) -> Stall | None:
    """Return the stall that a run is in; None where it is in none, or no record of it was read."""
    newest = run.stalls[-1] if run.stalls else None
    is_open = newest is not None and newest.until is None and bool(run.sessions)
    return newest if is_open and newest is not None and newest.session == run.sessions[-1].id else None


def present_activity(stall: Stall) -> Activity | None:
    """Return what the thread does that hangs; None where that is unknown, and where it is somewhere else by now."""
    return None if stall.same_frames is False else stall.activity


def stalled_at(stall: Stall) -> str | None:
    """Return where the program hangs, as in ``MainThread waits at train.py:15 in load``; None where that is unknown."""
    if stall.thread is None and stall.location is None:
        return None
    line = None if stall.location is None else location(stall.location)
    return whereabouts(stall.thread or MAIN_THREAD, line, present_activity(stall))


def _stalled(about: Subject) -> Iterator[Finding]:
    last, stall = about.last, open_stall(about.run)
    phase = stall.phase if stall is not None else (last.phase if last else None)
    where = None if stall is None else stalled_at(stall)
    if stall is not None and stall.blocked_since is not None:
        text = say("stalled/blocked", blocked=f"{BLOCKED[0].lower()}{BLOCKED[1:]}")
    else:
        text = say("stalled")
    text += "" if phase is None else f" in the phase {phase}"
    text += f"{'' if where is None else f': {where}'}{_by(last)}" if about.run.verdict is None else ""
    yield found(
        "stalled",
        f"{text}.{next_sentence(about.run.verdict)}",
        since=stall.since if stall is not None else (last.last_progress_at if last else None),
        cost=about.unsaved(),
        # Without a session, `stacks` finds only a process that the restarter has recorded.
        command=about.inspect() if last is not None and last.inferred and last.pid is None else about.command("stacks"),
        of=about,
        **({"phase": phase} if stall is None else _place(stall)),
    )


def _by(session: Session | None) -> str:
    """Return which process it is, in parentheses; nothing where that is unknown."""
    is_known = session is not None and session.pid is not None and session.host is not None
    return f" (process {session.pid} on {session.host})" if session is not None and is_known else ""


def _lost(about: Subject) -> Iterator[Finding]:
    run, last = about.run, about.last
    if last is None:
        return
    who, before = process(last), at_death(about, last)
    action = f"{before.first}, then {before.resume}" if before.first else before.resume
    if last.gone:
        text = say("lost/gone", who=who)
    elif about.watched.suspended_pid is not None:
        text = say("lost/suspended", who=who)
        ending = command_line("kill", "-9", f"{about.watched.suspended_pid}")
        action = f"continue it ({about.unsuspend()}); or end it ({ending}), then {action}"
    else:
        text = say("lost/silent", who=who)
        action = f"check whether the process exists; if it does not, {action}"
    if run.restarting:  # a second start would meet the first one's
        action = "wait: tb-supervisor is starting it again"
    hang = hang_at_end(run, last)
    text += next_sentence(None if hang is None else say("lost/hung", how=how_hung(hang)))
    text += f"{next_sentence(run.verdict)}{before.text}"
    yield found(
        "lost",
        text,
        is_old=about.is_old(last.ended_at),
        since=last.ended_at,
        cost=about.unsaved(),
        action=f"{action[0].upper()}{action[1:]}.",
        of=about,
        error=before.error and in_a_line(before.error),
        **({} if hang is None else _place(hang)),
    )


def hang_at_end(run: Run, session: Session) -> Stall | None:
    """Return the stall in which a session that is over was killed; None where it was in none, or it is unknown."""
    stall = next((item for item in reversed(run.stalls) if item.session == session.id), None)
    is_last = stall is not None and stall.until is not None and stall.until >= (session.ended_at or 0.0) - 1.0
    return stall if is_last and session.outcome == "lost" else None


def how_hung(stall: Stall, before: str = ": ") -> str:
    """Return how a session hung, as what follows the begin of a sentence: why, and where."""
    why = "" if stall.blocked_since is None else f": {BLOCKED[0].lower()}{BLOCKED[1:]}"
    where = stall.verdict or stalled_at(stall)
    return why if where is None else f"{why}{', ' if why else before}{where}"


def _place(stall: Stall) -> dict[str, Any]:
    """Return where a session hung, as evidence."""
    return {
        "phase": stall.phase,
        "thread": stall.thread,
        "location": None if stall.location is None else location(stall.location),
        "activity": stall.activity,
        "culprit": stall.culprit,
        "culprit_location": stall.culprit_location,
    }


def _failed(about: Subject) -> Iterator[Finding]:
    run, last = about.run, about.last
    end = final_launch(run.launches)
    since = end.ended_at if end is not None else (last.ended_at if last is not None else None)
    error = run.failure or UNKNOWN_WHY
    text = say("failed", why=sentence(error))
    if end is not None and end.reason and last is not None and error == last.error:
        text += say("failed/given_up", why=sentence(end.reason))
    before = None if last is None else at_death(about, last)
    and_then = f"{before.first}, then" if before is not None and before.first else "and"
    resume = about.resume() if before is None else before.resume
    yield found(
        "failed",
        text + ("" if before is None else before.text),
        is_old=about.is_old(since),
        since=since,
        cost=about.unsaved(),
        action=f"Read the error in the trainer's log, repair its cause, {and_then} {resume}.",
        of=about,
        error=in_a_line(error),
    )


def _silent(about: Subject) -> Iterator[Finding]:
    """A run of another writer that has ceased to write: it may have ended, and cannot say."""
    run, last = about.run, about.last
    if last is None or not last.inferred or last.progress_timeout_secs is None or run.launches:
        return
    pid, silent = about.watched.writer_pid, about.now - (run.last_event_at or 0.0)
    since, gap = run.last_event_at, last.usual_gap_secs
    rhythm = "" if gap is None else say("silent/rhythm", gap=duration(gap))
    if last.gone:
        yield found("over/gone", {"who": process(last)}, since=since, action=WOULD_KNOW, of=about)
    elif pid is None and silent > last.progress_timeout_secs:
        yield found("over", {"rhythm": rhythm}, since=since, action=WOULD_KNOW, of=about)
    elif gap is not None and last.progress_timeout_secs < silent < about.thresholds.silent_secs:
        last = replace(last, pid=pid)
        text = say("silent", rhythm=rhythm, who=process(last))
        is_suspended = about.watched.suspended_pid is not None
        if is_suspended:
            text = say("silent/suspended", rhythm=rhythm, who=process(last))
        yield found(
            "silent",
            text,
            since=since,
            action="Look at what the program prints.",
            command=about.unsuspend() if is_suspended else None,
            of=last,
            step=run.step,
        )


def restarts(about: Subject) -> Iterator[Finding]:
    """Yield that the run is restarted again and again, or was restarted."""
    run, limits = about.run, about.thresholds
    if run.state in ("completed", "stopped"):
        return
    times = unplanned_since(run.restarts, about.now - limits.restart_window_secs)
    why = _why_restarted(run)
    if len(times) >= limits.restarts:
        yield found(
            "restart_loop",
            {"count": len(times), "window": duration(limits.restart_window_secs), "last": _last(run, why)},
            since=times[0],
            cost=_again(run),
            command=about.inspect(),
            of=about,
            restarts=len(times),
        )
    elif run.restarts and about.is_alive:
        which = "Restarted" if len(run.restarts) == 1 else f"Restart {len(run.restarts):,}"
        skipped = passed_over_text(about.last)
        words = {"which": which, "why": (why or "why is not known.") + ("" if skipped is None else f" I{skipped[1:]}.")}
        yield found("restarted", words, since=run.restarts[-1].at, cost=_again(run))
    not_starting = list(_not_starting(about, why))
    yield from not_starting
    if run.state == "unknown" and not not_starting:
        yield from _next_launch(about)
    lost = [item for item in run.recoveries if about.now - item.at <= limits.recovery_window_secs]
    if len(lost) >= limits.recoveries and about.is_alive:
        window, error = duration(limits.recovery_window_secs), lost[-1].error
        yield found(
            "recovery_loop",
            {"count": len(lost), "window": window, "why": sentence(error)},
            since=lost[0].at,
            command=about.inspect(),
            of=about.last,
            error=in_a_line(error),
        )


def _not_starting(about: Subject, why: str | None) -> Iterator[Finding]:
    """Launches of a restarter that end before their first event: there is no session that says so."""
    run = about.run
    ends = [item.ended_at for item in run.launches if item.action == "restart" and not _has_session(run, item)]
    recent = [at for at in ends if at is not None and about.now - at <= about.thresholds.restart_window_secs]
    if len(recent) >= NOT_STARTING and run.state == "unknown":
        words = {"count": len(recent), "last": _last(run, why)}
        command = about.inspect()
        yield found("not_starting", words, since=recent[0], command=command, launches=len(recent))


def _has_session(run: Run, launch: ProgramLaunch) -> bool:
    """Return whether a launch that has ended names its session, or wrote events without telemetry meanwhile."""
    began, ended = launch.started_at or 0.0, launch.ended_at or 0.0
    return launch.session is not None or any(
        each.inferred and (each.started_at or 0.0) <= ended and (each.ended_at or 0.0) >= began for each in run.sessions
    )


def _next_launch(about: Subject) -> Iterator[Finding]:
    """Yield that a restarter is starting the run again: it waits, or the program has not come to a session yet."""
    launches = about.run.launches
    newest = launches[-1] if launches else None
    last = about.last
    if newest is not None and newest.ended_at is None and last is not None and last.gone and _is_of(last, newest):
        yield found("restarted", say("lost/gone", who=process(last)), since=last.ended_at)
    elif newest is not None and newest.ended_at is None:
        before = launches[-2] if len(launches) > 1 else None
        why = "" if before is None or before.ended_at is None else f" Before: {in_a_line(launch_text(before))}."
        words = {"attempt": newest.attempt, "before": why}
        yield found("restarted/no_session", words, since=newest.started_at)
    elif newest is not None and newest.action == "restart":
        yield found("restarted", in_a_line(launch_text(newest)), since=newest.ended_at)


def _is_of(session: Session, launch: ProgramLaunch) -> bool:
    return (session.started_at or 0.0) >= (launch.started_at or 0.0)


def passed_over_text(session: Session | None) -> str | None:
    """Return which checkpoint a session passed over when it was restored, and why, in half a sentence; None: none."""
    if session is None or not session.skipped:
        return None
    newest = session.skipped[0]
    more = f" (and {counted(len(session.skipped) - 1, 'other')})" if len(session.skipped) > 1 else ""
    name, why = last_part(newest.path), in_a_line(newest.reason).removesuffix(".") or UNKNOWN_WHY
    return say("restarted/passed_over", name=name, why=f"{why}{more}")


def _last(run: Run, why: str | None) -> str:
    """Return how the last of several restarts came about: of a launch how it ended, as the next one is under way."""
    launch = _ended_launch(run)
    if launch is not None:
        why = sentence(f"{launch_end(launch)}; attempt {launch.attempt}")
    return "" if why is None else f" Last: {why}"


def _ended_launch(run: Run) -> ProgramLaunch | None:
    """Return the launch whose end led to the present session or launch; None where it was none of a restarter's."""
    launch = next((item for item in reversed(run.launches) if item.ended_at is not None), None)
    restart = run.restarts[-1] if run.restarts else None
    if launch is not None and (restart is None or restart.at is None or (launch.ended_at or 0.0) > restart.at):
        return launch
    return None if restart is None else restart.launch


def _why_restarted(run: Run) -> str | None:
    """Return how the newest session or launch before the present one ended, in one sentence; None without one."""
    launch, restart = _ended_launch(run), run.restarts[-1] if run.restarts else None
    if launch is not None:
        return sentence(launch_text(launch))
    return None if restart is None else sentence(ended_text(run, restart))


def ended_text(run: Run, restart: Restart) -> str:
    """Return how the session before a restart ended, in half a sentence."""
    if restart.launch is not None:
        return launch_text(restart.launch)
    ended = next((item for item in run.sessions if item.id == restart.from_session), None)
    what = () if ended is None else (ended.error, ended.signal)
    hang = None if ended is None else hang_at_end(run, ended)
    if hang is not None:
        return f"{BEFORE['lost']}; {say('lost/hung', how=how_hung(hang))}"
    return BEFORE.get(restart.reason, "why it ended is not known") + "".join(f": {text}" for text in what if text)


def _again(run: Run) -> str | None:
    """Return how many steps the restarts cost; None where that is nothing, or unknown."""
    if run.inferred or not run.steps_lost:
        return None
    least = "" if run.steps_lost_most in (None, run.steps_lost) else "at least "
    return f"By restarts, {least}{counted(run.steps_lost, 'step')} had to be done again."


def _reasons(sentences: Sequence[str]) -> dict[str, str]:
    more = len(sentences) - 1
    others = f" (and {counted(more, 'other reason')})" if more > 0 else ""
    return {"why": sentence(sentences[0])[:-1], "others": others}


def ending(about: Subject) -> Iterator[Finding]:
    """Yield how the newest session began and ended, where that is not as planned or ends the run."""
    run, last, limits = about.run, about.last, about.thresholds
    if last is None:
        return
    if last.why_not_exact is not None:
        words = _reasons(last.why_not_exact)
        yield found("resumed_not_exactly", words, since=last.started_at, step=last.restored_step)
    if (newest := run.newest_save) is not None and (lacks := run.next_resume_lacks):
        yield found("not_captured", _reasons(lacks), since=newest.at, step=newest.step, path=newest.path)
    interval, best = run.advice.present_interval_secs, run.advice.recommended_interval_secs
    unplanned = sum(item.reason in UNPLANNED for item in run.restarts)
    if run.state == "running" and best and interval and unplanned >= limits.failures_to_judge:
        ratio = interval / best
        if ratio > limits.interval_factor or ratio < 1 / limits.interval_factor:
            yield found(
                "checkpoint_interval_far",
                {"present": duration(interval), "best": duration(best)},
                action="Set the checkpoint interval near the recommended one at the next restart.",
            )
    if run.state == "completed" and last.steps == 0 and not last.inferred:
        action = "To train further, raise the number of steps that the program asks for."
        words = {"step": f"{run.step or 0:,}"}
        yield found("completed_without_step", words, since=last.ended_at, action=action)
    elif run.state == "completed" and run.at_risk is not None:
        yield found(
            "completed_unsaved",
            {},
            since=last.ended_at,
            is_old=about.is_old(last.ended_at),
            cost=about.unsaved(),
            action=f"Make room, or repair the disk; then {about.resume()}.",
            of=about,
        )
    elif run.state == "stopped" and not last.inferred:
        by = f"by {last.signal}" if last.signal else "by its own request" if last.outcome == "requested" else "as asked"
        yield found("stopped", {"by": by}, since=last.ended_at, cost=about.unsaved(), of=about)

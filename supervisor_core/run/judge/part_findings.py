"""Findings about the parts of a run: its files, checkpoints, loss, speed, service threads and workers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from supervisor_core.base.log import command_line
from supervisor_core.checkpoint.names import last_part
from supervisor_core.events.losses import LOSS
from supervisor_core.process.stacks import location
from supervisor_core.run.fold.notices import notice_text
from supervisor_core.run.judge.culprit import Paced, Straggler, name_of_chief, straggler
from supervisor_core.run.judge.finding import SEVERITIES, Finding
from supervisor_core.run.judge.finding_subject import Subject, found
from supervisor_core.run.judge.wordings import say
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.run import Run, Session, WorkerHistory
from supervisor_core.run.model.words import UNKNOWN_WHY as UNKNOWN_WHY
from supervisor_core.run.model.words import (
    counted,
    duration,
    in_a_line,
    named,
    next_sentence,
    rate,
    sentence,
    shown_name,
)
from supervisor_core.storage.directory import RENAMED
from supervisor_core.storage.local import absolute

_OF_DIRECTORY = re.compile(r"Permission denied|not permitted|Not a directory|Is a directory|File exists")


class AtDeath(NamedTuple):
    """What was true of a run when its process died."""

    text: str
    """Sentences that follow others; empty where nothing was."""
    first: str
    """What to do before it is started again, as the begin of a sentence; empty where there is nothing."""
    resume: str
    """What to do then; see `Subject.resume`."""
    error: str | None


def failed_saves(about: Subject, last: Session) -> list[Checkpoint]:
    """Return the recorded saves of a session that have failed since its last good one, the newest first."""
    failed = []
    for saved in reversed(about.run.checkpoints):
        if saved.ok or saved.session != last.id:
            break
        failed.append(saved)
    return failed


def why_not_saved(last: Session, failed: list[Checkpoint]) -> str:
    """Return why the saves of a session fail."""
    return last.save_error or (failed[0].error if failed else None) or UNKNOWN_WHY


def move_back(about: Subject, last: Session, error: str | None) -> str | None:
    """Return the command that moves a logdir back that was renamed while the session ran; None if it was not."""
    if error is None or RENAMED not in error or "://" in about.watched.directory:
        return None
    if last.logdir is None or not last.logdir.startswith("/"):  # the record may be anybody's
        return None
    if is_back(about, last, error):
        return None
    return command_line("mv", "-T", "--", absolute(about.watched.directory), last.logdir)


def is_back(about: Subject, last: Session, error: str | None) -> bool:
    """Return whether all that kept files from being written was the directory's name, which it has again."""
    return error is not None and RENAMED in error and absolute(about.watched.directory) == last.logdir


def command_for(about: Subject, last: Session, error: str | None) -> str:
    """Return what shows why nothing can be written, or repairs it: by the error the name of the directory, its owner
    and rights, or else its disk."""
    back = move_back(about, last, error)
    if back is not None:
        return back
    return about.listing() if error is not None and _OF_DIRECTORY.search(error) else about.disk_space()


def at_death(about: Subject, last: Session) -> AtDeath:
    """Return what was true of a run when its process died: its directory was renamed, no checkpoint could be saved, no
    event written, the loss was not finite."""
    texts, first, error, rewound = [], "", None, None
    failed = failed_saves(about, last)
    in_a_row = max(last.save_failures_in_a_row, len(failed))
    if in_a_row >= about.thresholds.save_failures:
        error = why_not_saved(last, failed)
        since, until = failed[-1].at if failed else None, last.ended_at
        long = "" if since is None or until is None or until <= since else f" for {duration(until - since)}"
        texts.append(say("lost/unsaved", long=long, count=f"{in_a_row:,}", why=sentence(error)))
    elif last.events_error is not None:
        error = last.events_error
        texts.append(say("lost/unwritten", why=sentence(error)))
    if error is not None and not is_back(about, last, error):
        back = move_back(about, last, error) or move_back(about, last, last.events_error)
        what = "move the directory back" if back else "repair what keeps files from being written"
        first = f"{what} ({back or command_for(about, last, error)})"
    if about.run.loss_finite is False:
        since_step, good = about.run.loss_nonfinite_since, about.run.last_good
        texts.append(say("lost/nan", since="" if since_step is None else f" since step {since_step:,}"))
        if good is not None and about.has_later(good):
            rewound, command = good, about.rewinding(good)
            first = f"{first}, {command}" if first else command
    return AtDeath("".join(f" {text}" for text in texts), first, about.resume(rewound), error)


SHOWN_NAMES = 3
"""How many workers or threads in trouble a sentence names."""
ONE_TASK = "Ask the scheduler for that process, and start it again with the same task."
_ALL_RANKS = (
    "Look for that process and the end of its log. A rank cannot join again: if its launcher does not end the others, "
    "end it, and start all of them again."
)
MAY_GO_ON_SECS = 3600.0
"""For how long another writer's run with NaN, which is probably over, may go on after all: a page until then."""
SKEW_SECS = 60.0
"""Clocks that are further apart are worth a sentence."""
SAVES_TO_FIT = 3
"""A disk without room for this many checkpoints more is low."""


def reading(about: Subject) -> Iterator[Finding]:
    """Yield what of the run cannot be read."""
    watched = about.watched
    if watched.unreachable:
        if about.is_alive:
            yield found(
                "unreachable",
                {"why": sentence(watched.problem or UNKNOWN_WHY)},
                since=about.run.last_event_at,
                command=command_line("ls", "-ld", "--", absolute(watched.directory)),
                path=watched.directory,
            )
        return
    places = watched.not_read  # also of a run that is over: its history has a hole
    if places:
        more = "" if len(places) == 1 else f" {counted(len(places) - 1, 'further place')}."
        yield found(
            "read_error",
            {"why": f"{sentence(places[0])}{more}"},
            is_old=watched.problem is None and not about.is_alive and about.is_old(about.run.last_event_at),
            command=about.command("verify"),
            error=in_a_line(places[0]),
        )


def clock(about: Subject) -> Iterator[Finding]:
    """Yield that the clock of the run's machine is wrong, or that of this machine."""
    ahead, last = about.run.clock_skew_secs, about.last
    if ahead is None or last is None or abs(ahead) < SKEW_SECS:
        return
    difference = f"{duration(round(abs(ahead) / 60) * 60.0)} {'ahead of' if ahead > 0 else 'behind'}"
    yield found(
        "clock_skew",
        {"host": last.host or "its machine", "difference": difference},
        action="Compare the clocks of both machines (timedatectl), and let NTP set them.",
        of=last,
        skew_secs=ahead,
    )


def copy(about: Subject) -> Iterator[Finding]:
    """Yield what the run's directory is a copy of: nothing else is to be said of it."""
    original = about.watched.copy_of
    if original is not None:
        yield found("copy", {"original": original}, since=about.run.last_event_at, path=original)


def saves(about: Subject) -> Iterator[Finding]:
    """Yield that checkpoints are damaged, cannot be saved, or are overdue."""
    run, last, limits = about.run, about.last, about.thresholds
    newest = next((saved for saved in reversed(run.checkpoints) if saved.ok), None)
    is_doubted = newest is not None and newest.doubt is not None and run.loss_finite is not False
    if newest is not None and (newest.damage is not None or is_doubted):
        good = run.last_good
        which = (
            "There is no good one"
            if good is None
            else f"The last good one is {last_part(good.moved_to or good.path or '')}"
        )
        of = "" if good is None or good.step is None else f", of step {good.step:,}"
        how, why = "damaged" if newest.damage is not None else "in doubt", newest.damage or newest.doubt or ""
        yield found(
            "checkpoint_damaged",
            {"how": how, "why": sentence(why), "which": f"{which}{of}"},
            is_old=about.is_old(newest.at) and not about.is_alive,
            since=newest.at,
            command=about.command("verify"),
            step=newest.step,
            path=newest.path,
        )
    if last is None or not last.is_open:
        return
    failing = last.save_failures_in_a_row >= limits.save_failures
    if failing and not is_back(about, last, why_not_saved(last, failed_saves(about, last))):
        yield _saves_failing(about, last)
    started, interval = last.started_at, last.checkpoint_interval_secs
    if run.state != "running" or not interval or started is None or last.phase != "training":
        return
    at = started if newest is None or newest.at is None else newest.at
    age, patience = about.now - at, limits.checkpoint_intervals * interval
    has_begun = at > started or about.now - started > patience + limits.start_grace_secs
    failed = failed_saves(about, last)
    since_failed = failed[-1].at if failed and not failing else None
    words: dict[str, str]
    if since_failed is not None and about.now - since_failed > limits.hold_secs:
        case, since = "checkpoint_overdue/failed", since_failed
        words = {"why": sentence(failed[0].error or UNKNOWN_WHY)}
    elif age > patience and has_begun and not failing:
        case, since = "checkpoint_overdue", at + interval
        words = {"intervals": f"{limits.checkpoint_intervals:g}", "interval": duration(interval)}
    else:
        return
    step = None if newest is None else newest.step
    yield found(case, words, since=since, cost=about.unsaved(), command=about.inspect(), of=last, step=step)


def _saves_failing(about: Subject, last: Session) -> Finding:
    failed = failed_saves(about, last)
    error = why_not_saved(last, failed)
    in_a_row = say("saves_failing/cost", count=f"{last.save_failures_in_a_row:,}")
    return found(
        "saves_failing",
        {"why": sentence(error)},
        since=failed[-1].at if failed else None,
        cost=" ".join(filter(None, (in_a_row, about.unsaved()))),
        command=command_for(about, last, error),
        of=about,
        error=None if error == UNKNOWN_WHY else in_a_line(error),
    )


BEGIN_AGAIN = "No good checkpoint is known: begin again at step 0, in another directory."


def stop_and_rewind(good: Checkpoint, rewinding: str) -> str:
    """Return what to do about a live training whose loss is not finite.

    Args:
        good: the last good checkpoint.
        rewinding: what lets the next start resume from it, as a clause.
    """
    then = f"the next start resumes from the last good checkpoint, of step {good.step or 0:,}"
    return f"Stop the training, then {rewinding}: {then}."


def loss(about: Subject) -> Iterator[Finding]:
    """Yield that the newest loss is not finite."""
    run, last = about.run, about.last
    if run.loss_finite is not False:
        return
    may_go_on = about.is_alive
    if run.state == "unknown" and last is not None and last.inferred and not last.gone:
        silent = about.now - (run.last_event_at or 0.0)
        is_over = silent > (last.progress_timeout_secs or 0.0) + MAY_GO_ON_SECS
        may_go_on = about.watched.writer_pid is not None or not is_over
    since, good = run.loss_nonfinite_since, run.last_good
    command = None
    if good is None:
        action = f"Stop the training. {BEGIN_AGAIN}" if may_go_on else BEGIN_AGAIN
    elif may_go_on:
        action = stop_and_rewind(good, about.rewinding(good))
    elif about.has_later(good):
        command = about.rewind(good)
        action = command or next_sentence(about.rewinding(good)).strip()
    else:
        action = f"To train on, {about.resume(good)}."
    yield found(
        "loss_not_finite",
        {"since": ("" if since is None else f" since step {since:,}") + _of_several_losses(run)},
        since=run.loss_nonfinite_at,
        is_old=not may_go_on or about.is_old(run.last_event_at),
        cost="Its further steps are most likely useless." if may_go_on else None,
        action=action,
        command=command,
        of=about.last,
        step=since,
        path=None if good is None else good.path,
    )


def _of_several_losses(run: Run) -> str:
    """Return words that name the first loss that is not finite; none if the run has one loss."""
    losses = [each for each in run.last_values if LOSS.search(each.tag)]
    bad = [shown_name(each.tag) for each in losses if not math.isfinite(each.value)]
    return f' in "{bad[0]}"' if bad and len(losses) > 1 else ""


def events(about: Subject) -> Iterator[Finding]:
    """Yield that events cannot be written, or soon cannot: the disk is almost full."""
    last, watched = about.last, about.watched
    if last is None or not last.is_open:
        return
    if last.events_error is not None and not is_back(about, last, last.events_error):
        yield found(
            "events_failing",
            {"why": sentence(last.events_error)},
            command=command_for(about, last, last.events_error),
            of=last,
            error=in_a_line(last.events_error),
        )
    newest = about.newest_checkpoint()
    needed = None if newest is None or last.save_failures_in_a_row >= about.thresholds.save_failures else newest.bytes
    if watched.free_bytes is not None and needed and watched.free_bytes < SAVES_TO_FIT * needed:
        yield found(
            "disk_low",
            {"saves": SAVES_TO_FIT},
            command=about.disk_space(),
            of=last,
            free_bytes=watched.free_bytes,
            checkpoint_bytes=needed,
        )


def speed(about: Subject) -> Iterator[Finding]:
    """Yield that the training is slower than usual."""
    run, last, limits = about.run, about.last, about.thresholds
    if run.state != "running" or last is None or last.phase != "training" or run.speed is None:
        return
    slow = run.speed.slow(limits.slow_below, limits.slow_window_secs)
    if slow is None:
        return
    yield found(
        "slow",
        {"recent": rate(slow.recent), "usual": rate(slow.usual)},
        since=slow.since,
        action="Compare the durations of steps with earlier ones: if they have grown, look at the machine, else at the "
        "input.",
        of=last,
        steps_per_sec=slow.recent,
        usual_steps_per_sec=slow.usual,
    )


def cluster(about: Subject) -> Iterator[Finding]:
    """Yield which workers are lost, or make no progress while their chief does."""
    run, last = about.run, about.last
    if last is None or not about.is_alive or last.phase in ("stopping", "stopped"):
        return
    here = [worker for worker in run.workers if worker.session == last.id]
    lost = [worker for worker in here if worker.state in ("lost", "failed")]
    if lost:
        action = _ALL_RANKS if lost[0].name.startswith("rank:") else ONE_TASK
        yield _of_workers("worker_lost", lost, len(here), action=action)
    if run.state != "running" or last.phase in ("starting", "restoring"):
        return
    stuck = [
        worker
        for worker in here
        if worker.state in ("waiting", "stalled") and about.now - _since(worker) > about.thresholds.worker_wait_secs
    ]
    if stuck:
        yield _of_workers("worker_stuck", stuck, len(here), command=about.inspect())
    slow = straggler(_paced(last, here))
    if slow is not None:
        yield _straggles(slow)


def _paced(chief: Session, others: list[WorkerHistory]) -> list[Paced]:
    """Return the processes that train, with the pace of each, where that is known."""
    training = [worker for worker in others if worker.state == "running"]
    name = name_of_chief(worker.name for worker in training)
    own = [] if chief.beat is None else [(name, chief.host, chief.beat.pace)]
    known = [*own, *((worker.name, worker.host, worker.pace) for worker in training)]
    return [Paced(name=who, host=host, pace=pace) for who, host, pace in known if pace is not None]


def _straggles(slow: Straggler) -> Finding:
    name, host = named([slow.paced.name]), slow.paced.host
    words = {"who": f"{name[0].upper()}{name[1:]}{'' if host is None else f' on {host}'}"}
    step_secs = slow.paced.pace.step_secs
    case, cost = "straggler", None
    if slow.is_waited_for:
        case, share = "straggler/waited_for", (slow.secs - slow.usual_secs) / step_secs
        cost = f"About {share:.0%} of each step of {duration(step_secs)}."
    else:
        words.update(own=duration(slow.secs), usual=duration(slow.usual_secs))
    action = "Compare that machine with the others: its load, clock speed, disks and network."
    return found(case, words, cost=cost, action=action, worker=slow.paced.name, host=host)


def _of_workers(
    kind: str, sick: list[WorkerHistory], of: int, action: str | None = None, command: str | None = None
) -> Finding:
    """Return a finding about some of this number of workers."""
    words = {
        "number": f"{len(sick):,} of {counted(of, 'worker')} {'is' if len(sick) == 1 else 'are'}",
        "which": "; ".join(map(_of_worker, sick[:SHOWN_NAMES])),
    }
    return found(
        kind,
        words,
        since=min(map(_since, sick)),
        action=action,
        command=command,
        workers=len(sick),
        worker=sick[0].name,
        host=sick[0].host,
    )


def _of_worker(worker: WorkerHistory) -> str:
    waits = f" for {worker.waiting_for}" if worker.waiting_for else ""
    where = "" if worker.host is None else f" on {worker.host}"
    why = "" if worker.error is None else f" ({in_a_line(worker.error)})"
    at = "" if worker.place is None or worker.place.location is None else f" at {location(worker.place.location)}"
    state = "has failed" if worker.state == "failed" else f"is {worker.state}"
    return f"{worker.name}{where} {state}{waits}{at}{why}"


def _since(worker: WorkerHistory) -> float:
    same = [span for span in worker.spans if span.state == worker.state]
    return same[-1].since if same and same[-1] is worker.spans[-1] else worker.last_seen_at or 0.0


def notices(about: Subject) -> Iterator[Finding]:
    """Yield what the program has said of its run: of each severity what it said last, in its own words."""
    fresh = [each for each in about.run.notices if about.now - (each.at or 0.0) < about.thresholds.notice_secs]
    for severity in SEVERITIES:
        said = [each for each in fresh if each.severity == severity]
        if not said:
            continue
        newest, others = said[-1], len(said) - 1
        more = [f"said {newest.count:,} times"] if newest.count > 1 else []
        more += [f"{counted(others, 'other notice')} within {duration(about.thresholds.notice_secs)}"] if others else []
        of = (each for each in about.run.sessions if each.id == newest.session and newest.worker is None)
        finding = found(
            "notice",
            sentence(notice_text(newest)),
            since=newest.since,
            cost=next_sentence("; ".join(more)).strip() if more else None,
            command=about.inspect(),
            of=next(of, None),
            step=newest.step,
            worker=newest.worker,
            count=newest.count,
        )
        yield replace(finding, severity=severity)


def threads(about: Subject) -> Iterator[Finding]:
    """Yield which service threads have failed or are overdue."""
    run, last = about.run, about.last
    if last is None or run.state != "running" or last.phase in ("stopping", "stopped"):
        return
    saves_fail = last.save_failures_in_a_row >= about.thresholds.save_failures
    down = [
        thread
        for thread in run.threads
        if thread.session == last.id
        and (thread.state == "failed" or thread.overdue_secs > about.thresholds.overdue_secs)
        and not (thread.name == "checkpoint" and saves_fail)
    ]
    if down:
        which = ", ".join(thread.name for thread in down[:SHOWN_NAMES])
        error = next((thread.last_error for thread in down if thread.last_error), None)
        text = say("thread_down", threads=counted(len(down), "service thread"), which=which)
        yield found(
            "thread_down",
            text + ("" if error is None else f" {sentence(error)}"),
            since=min((span.since for thread in down for span in thread.spans[-1:]), default=None),
            command=about.inspect(),
            thread=down[0].name,
            error=error and in_a_line(error),
        )

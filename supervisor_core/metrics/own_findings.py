"""`OwnFindings`: what a training process holds of its own run, for who scrapes it where no exporter looks at the run.

A process sees only what it does itself: what needs the history of the run (restart loops, speed) or its death needs an
exporter. Texts, kinds and the time for which a finding must last are those of an exporter's.
"""

from __future__ import annotations

from collections.abc import Iterator

from supervisor_core.base.log import command_line
from supervisor_core.process.stacks import MAIN_THREAD, whereabouts
from supervisor_core.run.fold.notices import notice_text
from supervisor_core.run.judge.finding import Finding, Severity, worst_first
from supervisor_core.run.judge.finding_subject import found, rewinding_with
from supervisor_core.run.judge.held import HOLDS, DailyTexts
from supervisor_core.run.judge.part_findings import BEGIN_AGAIN, ONE_TASK, stop_and_rewind
from supervisor_core.run.judge.wordings import say
from supervisor_core.run.model.run import Session
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.run.model.words import counted, next_sentence, sentence
from supervisor_core.run.status import RunStatus
from supervisor_core.storage.local import absolute

_UNKNOWN = "the training's log has the reason"


class OwnFindings:
    """Keeps since when each finding of a run has been there. Used by whatever thread scrapes.

    Args:
        limits: from when on something is a finding, and for how long it must last.
    """

    def __init__(self, limits: Thresholds | None = None) -> None:
        self._limits = limits or Thresholds()
        self._since: dict[tuple[str, str, Severity], float] = {}
        self._texts = DailyTexts()

    def held(self, status: RunStatus, now: float) -> tuple[Finding, ...]:
        """Return what is held of a run, the worst first; nothing once its session has ended.

        Args:
            status: the run as its own process knows it.
            now: the current wall time.
        """
        items = list(_findings(status, status.session, now, self._limits)) if status.active and status.session else []
        before, held = self._since, []
        since = {(status.run, each.kind, each.severity): now for each in items}
        since = {key: before.get(key, at) for key, at in since.items()}
        self._since = {key: at for key, at in before.items() if key[0] != status.run} | since
        for each in items:
            hold = HOLDS.get(each.kind)
            secs = 0.0 if hold is None else float(getattr(self._limits, hold))
            if now - since[status.run, each.kind, each.severity] >= secs:
                held.append(self._texts.of(each, now))
        return worst_first(held)


def _findings(status: RunStatus, session: Session, now: float, limits: Thresholds) -> Iterator[Finding]:
    logdir, stall = status.info.get("logdir", "."), status.stall
    inspect = command_line("tb-supervisor", "inspect", "--run=.", "--", logdir)
    if status.stalled:
        text = say("stalled") + ("" if session.phase is None else f" in the phase {session.phase}")
        if stall is not None and stall.verdict is None and (stall.thread or stall.location):
            text += f": {whereabouts(stall.thread or MAIN_THREAD, stall.location, stall.activity)}"
        verdict = next_sentence(None if stall is None else stall.verdict)
        stacks = command_line("tb-supervisor", "stacks", "--", logdir)
        yield found("stalled", f"{text}.{verdict}", since=session.last_progress_at, command=stacks)
    if session.save_failures_in_a_row >= limits.save_failures:
        why = sentence(session.save_error or _UNKNOWN)
        yield found("saves_failing", say("saves_failing", why=why), command=command_line("df", "-h", "--", logdir))
    if status.events_failing:
        text = say("events_failing", why=sentence(session.events_error or _UNKNOWN))
        yield found("events_failing", text, command=command_line("df", "-h", "--", logdir))
    if status.loss_finite is False:
        good, text = status.checkpoint.last_good, say("loss_not_finite", since="")
        if good is not None and good.path is not None:
            rewinding = rewinding_with(command_line("tb-supervisor", "rewind", "--", absolute(good.path)))
            yield found("loss_not_finite", text, action=stop_and_rewind(good, rewinding))
        elif status.checkpoint.last_success is None:
            yield found("loss_not_finite", text, action=f"Stop the training. {BEGIN_AGAIN}")
        else:  # the records of earlier sessions say which checkpoint is good
            yield found("loss_not_finite", text, command=inspect)
    for severity, each in {each.severity: each for each in status.notices}.items():
        if now - (each.at or 0.0) < limits.notice_secs:
            yield Finding(
                kind="notice",
                severity=severity,
                since=each.since,
                text=sentence(notice_text(each)),
                action=inspect,
                is_command=True,
            )
    if session.phase in ("stopping", "stopped"):
        return
    down = [each.name for each in status.threads if each.state == "failed" or each.overdue_secs > limits.overdue_secs]
    if down:
        text = say("thread_down", threads=counted(len(down), "service thread"), which=", ".join(down))
        yield found("thread_down", text, command=inspect)
    lost = [each.name for each in status.workers if each.state in ("lost", "failed")]
    if lost and not status.events_failing:  # where the chief cannot write, the others cannot write their heartbeats
        number = f"{len(lost):,} of {counted(len(status.workers), 'worker')} {'is' if len(lost) == 1 else 'are'}"
        yield found("worker_lost", say("worker_lost", number=number, which="; ".join(lost)), action=ONE_TASK)

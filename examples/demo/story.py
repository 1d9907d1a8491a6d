"""What was seen of three sessions of one training, and which promises that proves. Plain data, no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from signal import SIGKILL, SIGTERM

from examples.demo.hanging import HangSeen
from examples.demo.inspection import Inspected
from supervisor_core.events import CheckpointRecord, Record, SessionRecord, StopRecord

SESSIONS = 3
CHECKPOINTS_BEFORE_KILL = 2
MIN_TEST_ACCURACY = 0.9
HANG_AT, HANG_STEPS = 400, 600
"""The step at which the second training hangs, and its last one."""


@dataclass(kw_only=True)
class SessionSeen:
    """What was seen of one session: by its process, by its prints, over HTTP, in its events file and on disk.

    What was not seen stays None.
    """

    start_step: int | None = None
    """Where it started, as the training program itself prints."""
    end_step: int | None = None
    """Where it ended, likewise; None after a kill."""
    test_accuracy: float | None = None
    ready: bool = False
    """Whether ``/-/ready`` said so."""
    last_step: int | None = None
    """The last step seen over HTTP before the session was killed, stopped or ended by itself."""
    checkpoints: list[int] = field(default_factory=list)
    """Steps of the good checkpoints beyond its start, as seen over HTTP."""
    losses: dict[int, float] = field(default_factory=dict)
    """The loss of each step that the program recorded."""
    metrics: str = ""
    """The last page of metrics that was read."""
    exit_status: int | None = None
    """As `subprocess` has it: negative for a signal."""
    newest_checkpoint: int | None = None
    """Step of the newest checkpoint on disk after its end, verified."""
    records: tuple[Record, ...] = ()
    """The supervisor's records in its events file."""

    @property
    def session_record(self) -> SessionRecord | None:
        """How it started, as the supervisor itself says."""
        return next((record for record in self.records if isinstance(record, SessionRecord)), None)

    @property
    def stop_record(self) -> StopRecord | None:
        """How it ended, likewise; None after a kill."""
        return next((record for record in self.records if isinstance(record, StopRecord)), None)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why its resume was not exact."""
        record = self.session_record
        return () if record is None else tuple(record.resume_reasons)

    @property
    def saved(self) -> int:
        """How many good checkpoints it wrote."""
        return sum(isinstance(record, CheckpointRecord) and record.error is None for record in self.records)

    @property
    def restored_step(self) -> int | None:
        """The step it resumed from, as the supervisor itself says."""
        record = self.session_record
        return None if record is None else record.restored_step


@dataclass(kw_only=True)
class Story:
    """All that was seen."""

    steps: int
    """How far the training was to go."""
    steps_per_epoch: int | None = None
    sessions: list[SessionSeen] = field(default_factory=list)
    events_files: int = 0
    inspected: Inspected | None = None
    """What ``tb-supervisor inspect`` reports of the run at the end."""
    hang: HangSeen | None = None
    """What was seen of the second training, the one that hangs."""
    must_be_exact: bool = False
    """Whether the training is one whose resume has a verdict, and has to be exact; such a one is killed anywhere."""
    broken_off: str | None = None
    """Why it was stopped early."""

    def session(self, number: int) -> SessionSeen:
        """Return what was seen of a session, 1 for the first; of one that never began, nothing."""
        return self.sessions[number - 1] if number <= len(self.sessions) else SessionSeen()

    def rewind(self, number: int) -> int | None:
        """Return how many steps a session recomputed, at least. 2 is the second session.

        Steps of a killed session after the last reading are not included.
        """
        before, session = self.session(number - 1), self.session(number)
        reached = before.last_step if before.end_step is None else before.end_step
        if reached is None or session.start_step is None:
            return None
        return max(0, reached - session.start_step)

    def epoch(self, step: int | None) -> float | None:
        """Return a step as epochs done, 1.5 in the middle of the second."""
        return None if step is None or not self.steps_per_epoch else step / self.steps_per_epoch


@dataclass(frozen=True, kw_only=True)
class Check:
    """One promise, and whether it was seen to be kept."""

    promise: str
    seen: bool
    detail: str
    """The numbers it rests on."""


def in_mid_epoch(step: int, steps_per_epoch: int) -> bool:
    """Return whether a step is well inside an epoch, so that it still is when a signal has arrived."""
    return 0.2 <= step % steps_per_epoch / steps_per_epoch <= 0.6


def checks(story: Story) -> list[Check]:
    """Return every promise of the demo, in the story's order."""
    first, second, third = (story.session(number) for number in range(1, SESSIONS + 1))
    return [
        _starts(first),
        _saves(first),
        _is_killed(story, first),
        _resumes(first, second),
        _does_again(story, first, second),
        *([_is_exact(story, first, second, third)] if story.must_be_exact else []),
        _ends_as_signal(second),
        _loses_nothing(second, third),
        _finishes(story, third),
        _has_learned(third),
        _leaves_clean_events(story),
        _can_be_inspected(story, second, third),
        *([] if story.must_be_exact else [_is_brought_back(story.hang or HangSeen())]),
    ]


def _starts(first: SessionSeen) -> Check:
    return Check(
        promise="a training starts at step 0, and reports over HTTP that it is ready",
        seen=first.start_step == 0 and first.ready and bool(first.last_step),
        detail=f"start at step {_show(first.start_step)}, ready: {'yes' if first.ready else 'no'}",
    )


def _saves(first: SessionSeen) -> Check:
    return Check(
        promise=f"it writes {CHECKPOINTS_BEFORE_KILL} checkpoints while it trains",
        seen=len(first.checkpoints) >= CHECKPOINTS_BEFORE_KILL,
        detail=f"{len(first.checkpoints)} seen, the newest at steps {_list(first.checkpoints[-3:])}",
    )


def _is_killed(story: Story, first: SessionSeen) -> Check:
    per_epoch, last = story.steps_per_epoch, first.last_step
    epoch = story.epoch(last) or 0.0
    return Check(
        promise="SIGKILL ends it" if story.must_be_exact else "SIGKILL ends it in the middle of an epoch",
        seen=first.exit_status == -SIGKILL
        and last is not None
        and per_epoch is not None
        and (story.must_be_exact or in_mid_epoch(last, per_epoch))
        and first.end_step is None,
        detail=f"status {_show(first.exit_status)}, step {_show(last)}, epoch {epoch:.2f}",
    )


def _resumes(first: SessionSeen, second: SessionSeen) -> Check:
    newest = first.newest_checkpoint
    seen_before = first.checkpoints[-1] if first.checkpoints else None
    return Check(
        promise="started again, it resumes from the last good checkpoint",
        seen=newest is not None
        and seen_before is not None
        and newest >= seen_before
        and newest == second.restored_step == second.start_step,
        detail=f"on disk step {_show(newest)}, resumed from {_show(second.restored_step)}, "
        f"training continued at {_show(second.start_step)}",
    )


def _does_again(story: Story, first: SessionSeen, second: SessionSeen) -> Check:
    return Check(
        promise="it recomputes the lost steps, and continues",
        seen=first.last_step is not None and second.last_step is not None and second.last_step > first.last_step,
        detail=f"at least {_show(story.rewind(2))} steps recomputed, then continued to {_show(second.last_step)}",
    )


def _is_exact(story: Story, first: SessionSeen, second: SessionSeen, third: SessionSeen) -> Check:
    again = sorted(first.losses.keys() & second.losses.keys())
    same = sum(first.losses[step] == second.losses[step] for step in again)
    verdicts = [record and record.resume_exact for record in (second.session_record, third.session_record)]
    reasons = " ".join(reason for session in (second, third) for reason in session.reasons)
    epoch = story.epoch(second.start_step) or 0.0
    return Check(
        promise="it resumes in the middle of an epoch, exactly: recomputed losses are the same, bit by bit",
        seen=verdicts == [True, True] and bool(again) and same == len(again) and epoch % 1 != 0,
        detail=f"resumed in epoch {epoch:.2f}; {same} of {len(again)} recomputed losses are the same; "
        f"verdicts: {', '.join(map(_verdict, verdicts))}" + (f" ({reasons})" if reasons else ""),
    )


def _verdict(is_exact: bool | None) -> str:
    return "unknown" if is_exact is None else "exact" if is_exact else "not exact"


def _ends_as_signal(second: SessionSeen) -> Check:
    stop = second.stop_record
    return Check(
        promise="SIGTERM stops it; it records the stop, and its exit status is that signal",
        seen=second.exit_status == -SIGTERM and stop is not None and stop.reason == "signal",
        detail=f"status {_show(second.exit_status)}, stop record: {_show(stop and stop.reason)}",
    )


def _loses_nothing(second: SessionSeen, third: SessionSeen) -> Check:
    stop, end = second.stop_record, second.end_step
    final = stop.final_checkpoint_step if stop is not None else None
    return Check(
        promise="no step is lost: the final checkpoint has the last step, and the next session starts there",
        seen=end is not None and end == final == second.newest_checkpoint == third.restored_step == third.start_step,
        detail=f"last step {_show(end)}, final checkpoint {_show(final)}, on disk {_show(second.newest_checkpoint)}, "
        f"resumed from {_show(third.restored_step)}",
    )


def _finishes(story: Story, third: SessionSeen) -> Check:
    return Check(
        promise="it trains to the end, saves the last step and exits with 0",
        seen=third.exit_status == 0 and third.end_step == story.steps == third.newest_checkpoint,
        detail=f"status {_show(third.exit_status)}, step {_show(third.end_step)} of {story.steps}, "
        f"on disk {_show(third.newest_checkpoint)}",
    )


def _has_learned(third: SessionSeen) -> Check:
    accuracy = third.test_accuracy
    return Check(
        promise=f"the model has learned: it recognises at least {MIN_TEST_ACCURACY:.0%} of the test images",
        seen=accuracy is not None and accuracy >= MIN_TEST_ACCURACY,
        detail=f"test accuracy {'unknown' if accuracy is None else f'{accuracy:.1%}'}",
    )


def _leaves_clean_events(story: Story) -> Check:
    sessions = [session.session_record for session in story.sessions]
    attempts = [record.attempt for record in sessions if record is not None]
    return Check(
        promise="each session wrote one events file, with its attempt number",
        seen=story.events_files == SESSIONS and attempts == list(range(1, SESSIONS + 1)),
        detail=f"{story.events_files} files, attempts {_list(attempts)}",
    )


def _can_be_inspected(story: Story, second: SessionSeen, third: SessionSeen) -> Check:
    found, seen = story.inspected, (story.rewind(2), story.rewind(3))
    detail = "no report"
    if found is not None:
        detail = f"{', '.join(found.outcomes)}; resumed at {', '.join(map(_show, found.resumed_at))}; recomputed "
        detail += ", ".join(
            f"{again(*steps)} (measured: {_show(own)})" for steps, own in zip(found.again, seen, strict=False)
        )
    return Check(
        promise="tb-supervisor inspect reports the same from the events files",
        seen=found is not None
        and found.state == "completed"
        and found.outcomes == ("lost", "signal", "completed")
        and found.resumed_at == (second.start_step, third.start_step)
        and len(found.again) == len(seen)
        and all(is_possible(*steps, own) for steps, own in zip(found.again, seen, strict=True))
        and found.again[1] == (seen[1], seen[1])
        and found.checkpoints == sum(session.saved for session in story.sessions),
        detail=detail,
    )


def _is_brought_back(hang: HangSeen) -> Check:
    resumed = hang.resumed_at
    return Check(
        promise="tb-supervisor run sees a training whose interpreter is blocked, names the line, and brings it back",
        seen=hang.exit_status == 0
        and hang.causes == ("hang", "completed")
        and "block_the_interpreter" in hang.texts[0]
        and hang.hung_at == HANG_AT
        and resumed is not None
        and resumed <= HANG_AT
        and hang.last_step == HANG_STEPS,
        detail=f"{', '.join(hang.causes) or 'nothing seen'}; hung at step {_show(hang.hung_at)}, resumed at "
        f"{_show(resumed)}, ended at {_show(hang.last_step)}, status {_show(hang.exit_status)}",
    )


def is_possible(least: int | None, most: int | None, seen: int | None) -> bool:
    """Return whether the bounds and the measured steps agree."""
    return None not in (least, most, seen) and (least or 0) <= (most or 0) and (seen or 0) <= (most or 0)


def again(least: int | None, most: int | None) -> str:
    """Return how many steps were recomputed, with bounds where it is not known exactly."""
    if least == most:
        return _show(least)
    return f"at least {_show(least)}, at most {_show(most)}"


def _show(value: object) -> str:
    return "unknown" if value is None else str(value)


def _list(values: Iterable[int]) -> str:
    return ", ".join(map(str, values)) or "none"

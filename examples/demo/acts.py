"""`Play`: start, SIGKILL, start, SIGTERM, start; and look closely each time. Meanwhile another training hangs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from examples.demo.frameworks import SAVE_SECS, Framework
from examples.demo.hanging import HangSeen
from examples.demo.inspection import inspect_run, newest_checkpoint
from examples.demo.metrics import Reading, is_ready, scrape
from examples.demo.recorded import Recorded
from examples.demo.story import CHECKPOINTS_BEFORE_KILL, SessionSeen, Story, in_mid_epoch
from examples.demo.telemetry import events_files, read_telemetry
from examples.demo.trainer import Trainer
from supervisor_core import EventsError

POLL_SECS = 0.1
EPOCHS_BEFORE_KILL = 2
PATIENCE_SECS = 100.0
"""How long the training may make no progress before the demo stops early."""
STARTS_LONGER = 3
"""Times longer than that, until it is ready: a framework of gigabytes is read from the disk."""


class Show(Protocol):
    """Where the play is shown."""

    def act(self, title: str) -> None:
        """Begin an act."""

    def note(self, text: str) -> None:
        """Show one event."""

    def progress(self, reading: Reading, epoch: float | None) -> None:
        """Show how far the training is."""


class Hanging(Protocol):
    """The training that hangs, and is brought back."""

    def finish(self, secs: float) -> HangSeen:
        """Wait for its end, at most this many seconds; return what was seen."""


class Play:
    """One training in three sessions.

    Args:
        command: starts the training, or goes on with it; the same each time.
        run: the training's logdir.
        outputs: a directory for what each session prints, ``session-1.txt`` and on, and for the last page of its
            metrics, ``session-1.prom``.
        directory: where to run the command.
        steps: how far the training goes.
        show: where to show it.
        framework: what the training is written with, where that prints no facts; None for TensorFlow 1.
        hanging: a second training, under way; None for none.
        patience_secs: how long the training may make no progress.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        run: Path,
        outputs: Path,
        directory: Path,
        steps: int,
        show: Show,
        framework: Framework | None = None,
        hanging: Hanging | None = None,
        patience_secs: float = PATIENCE_SECS,
    ) -> None:
        self._command = command
        self._run = run
        self._outputs = outputs
        self._directory = directory
        self._show = show
        self._framework = framework
        self._recorded: Recorded | None = None
        self._hanging = hanging
        self._patience_secs = patience_secs
        self._story = Story(steps=steps, must_be_exact=framework is not None)

    def perform(self) -> Story:
        """Run the sessions, and return what was seen. A failure ends the story early; it is never raised."""
        try:
            self._show.act("A training starts")
            self._session(self._kill_in_mid_epoch)
            self._show.act("The same command again")
            self._session(self._stop)
            self._show.act("And again, to the end")
            self._session(self._let_finish)
            if self._hanging is not None:
                self._show.act("Meanwhile another training, under tb-supervisor run, hung with its interpreter blocked")
                self._bring_back(self._hanging)
        except _BrokenOffError as error:
            self._story.broken_off = str(error)
        self._story.events_files = len(events_files(self._run))
        self._story.inspected = inspect_run(self._run)
        return self._story

    def _session(self, drama: Callable[[Trainer, SessionSeen], None]) -> None:
        seen = SessionSeen()
        self._story.sessions.append(seen)
        number = len(self._story.sessions)
        files_before = events_files(self._run)
        self._recorded = None if self._framework is None else Recorded(self._run, self._framework)
        output = self._outputs / f"session-{number}.txt"
        try:
            with Trainer(self._command, output, self._directory, self._environ()) as trainer:
                title = "TensorFlow" if self._framework is None else self._framework.title
                self._show.note(f"process {trainer.pid} imports {title}")
                self._wait_until_ready(trainer, seen)
                drama(trainer, seen)
        except OSError as error:
            raise _BrokenOffError(f"the training could not be started: {error}") from error
        finally:
            (self._outputs / f"session-{number}.prom").write_text(seen.metrics, encoding="utf-8")
            self._examine(seen, [file for file in events_files(self._run) if file not in files_before])

    def _environ(self) -> dict[str, str]:
        if self._framework is None:
            return {}
        # One thread: with a network this small several would only wait for each other.
        return {"SUPERVISOR_METRICS_ADDRESS": "127.0.0.1:0", "OMP_NUM_THREADS": "1", **self._framework.environ}

    def _said(self, trainer: Trainer) -> Mapping[str, Any]:
        return trainer.said if self._recorded is None else self._recorded.read()

    def _wait_until_ready(self, trainer: Trainer, seen: SessionSeen) -> None:
        def training(reading: Reading) -> bool:
            if reading.phase != "training" or seen.start_step is None or trainer.metrics_url is None:
                return False
            seen.ready = is_ready(trainer.metrics_url)
            return seen.ready

        self._watch(trainer, seen, training, "it was ready")
        self._story.steps_per_epoch = self._said(trainer).get("steps_per_epoch")
        number = len(self._story.sessions)
        again = self._story.rewind(number) if number > 1 else None
        where = f"starts at step {seen.start_step}" if again is None else f"resumes at step {seen.start_step}"
        lost = "" if again is None else f", at least {again} steps to recompute"
        self._show.note(f"{where}{lost}; metrics at {trainer.metrics_url}")

    def _kill_in_mid_epoch(self, trainer: Trainer, seen: SessionSeen) -> None:
        per_epoch = self._story.steps_per_epoch or 1

        def unlucky(reading: Reading) -> bool:
            step = reading.step or 0
            worth_it = step >= EPOCHS_BEFORE_KILL * per_epoch and len(seen.checkpoints) >= CHECKPOINTS_BEFORE_KILL
            if self._recorded is not None:
                return worth_it and is_provable(reading, self._recorded.losses, per_epoch)
            return worth_it and _beyond_checkpoint(reading) and in_mid_epoch(step, per_epoch)

        reading = self._watch(trainer, seen, unlucky, "it was killed")
        trainer.kill()
        seen.exit_status = trainer.wait(self._patience_secs)
        epoch = self._story.epoch(reading.step) or 0.0
        self._show.note(
            f"killed with SIGKILL at step {reading.step}, epoch {epoch:.2f}; "
            f"newest checkpoint: step {seen.checkpoints[-1]}"
        )

    def _stop(self, trainer: Trainer, seen: SessionSeen) -> None:
        killed_at = self._story.session(1).last_step or 0

        def far_enough(reading: Reading) -> bool:
            return (reading.step or 0) > killed_at and bool(seen.checkpoints) and _beyond_checkpoint(reading)

        reading = self._watch(trainer, seen, far_enough, "it was stopped")
        trainer.terminate()
        self._show.note(f"sent SIGTERM at step {reading.step}; newest checkpoint: step {seen.checkpoints[-1]}")
        self._watch_to_the_end(trainer, seen)
        self._show.note(f"ended at step {seen.end_step}, exit status {seen.exit_status}")

    def _let_finish(self, trainer: Trainer, seen: SessionSeen) -> None:
        self._watch_to_the_end(trainer, seen)
        accuracy = "unknown" if seen.test_accuracy is None else f"{seen.test_accuracy:.1%}"
        self._show.note(f"ended at step {seen.end_step}, exit status {seen.exit_status}; test accuracy {accuracy}")

    def _bring_back(self, hanging: Hanging) -> None:
        seen = self._story.hang = hanging.finish(2 * self._patience_secs)
        for number, text in enumerate(seen.texts, 1):
            self._show.note(f"launch {number}: {text}")
        self._show.note(f"hung at step {seen.hung_at}, resumed at step {seen.resumed_at}, ended at {seen.last_step}")

    def _watch(
        self, trainer: Trainer, seen: SessionSeen, until: Callable[[Reading], bool], what_was_to_come: str
    ) -> Reading:
        for reading in self._readings(trainer, seen, what_was_to_come):
            if until(reading):
                return reading
        if seen.end_step == self._story.steps:
            raise _BrokenOffError(
                f"the training finished before {what_was_to_come}. Give it more steps: --steps {4 * self._story.steps}"
            )
        raise _broken_off(trainer, f"the training ended (exit status {seen.exit_status}) before {what_was_to_come}")

    def _watch_to_the_end(self, trainer: Trainer, seen: SessionSeen) -> None:
        for _ in self._readings(trainer, seen, "it ended"):
            pass

    def _readings(self, trainer: Trainer, seen: SessionSeen, what_was_to_come: str) -> Iterator[Reading]:
        """Yield the trainer's metrics, several times a second, until its process has ended."""
        secs = self._patience_secs if seen.ready else STARTS_LONGER * self._patience_secs
        patience = _Patience(secs)
        while (status := trainer.wait(POLL_SECS)) is None:
            reading = self._look(trainer, seen)
            if reading is not None:
                yield reading
            if not patience.lasts((reading and (reading.step, reading.phase), trainer.metrics_url, trainer.said)):
                raise _broken_off(trainer, f"no progress for {secs:.0f} s before {what_was_to_come}")
        self._look(trainer, seen)
        seen.exit_status = status

    def _look(self, trainer: Trainer, seen: SessionSeen) -> Reading | None:
        reading = scrape(trainer.metrics_url) if trainer.metrics_url else None
        said = self._said(trainer)
        seen.start_step = said.get("start_step")
        seen.end_step = said.get("end_step")
        seen.test_accuracy = said.get("test_accuracy")
        seen.losses = {} if self._recorded is None else self._recorded.losses
        if reading is None:
            return None
        seen.metrics = reading.page
        if reading.step is not None:
            seen.last_step = reading.step
        saved = reading.checkpoint_step
        if saved is not None and seen.start_step is not None and saved > max([seen.start_step, *seen.checkpoints]):
            seen.checkpoints.append(saved)
        self._show.progress(reading, self._story.epoch(reading.step))
        return reading

    def _examine(self, seen: SessionSeen, files: Sequence[Path]) -> None:
        try:
            seen.records = tuple(record for file in files for record in read_telemetry(file))
        except (OSError, EventsError) as error:
            self._show.note(f"its files cannot be read: {error}")
        seen.newest_checkpoint, problem = newest_checkpoint(self._run)
        if problem is not None:
            self._show.note(f"its checkpoints cannot be read: {problem}")


class _BrokenOffError(Exception):
    """The story cannot go on; the text says why."""


def _broken_off(trainer: Trainer, why: str) -> _BrokenOffError:
    return _BrokenOffError(f"{why}. The end of {trainer.output}:\n{trainer.last_words()}")


def _beyond_checkpoint(reading: Reading) -> bool:
    return reading.step is not None and reading.checkpoint_step is not None and reading.step > reading.checkpoint_step


def is_provable(reading: Reading, losses: Mapping[int, float], per_epoch: int) -> bool:
    """Return whether a resume from the newest checkpoint would be in the middle of an epoch, and would repeat a loss
    that is on disk; and whether a kill comes before the next checkpoint."""
    saved, age = reading.checkpoint_step, reading.checkpoint_age_secs
    return (
        saved is not None
        and age is not None
        and saved % per_epoch != 0
        and any(step >= saved for step in losses)
        and age < SAVE_SECS / 2
    )


class _Patience:
    """Whether anything has changed within this many seconds."""

    def __init__(self, secs: float) -> None:
        self._secs = secs
        self._state: object = None
        self._since = time.monotonic()

    def lasts(self, state: object) -> bool:
        """Record the state; return False once it has been the same for too long."""
        now = time.monotonic()
        if state != self._state:
            self._state, self._since = state, now
        return now - self._since <= self._secs

"""What the adapters have in common around their sessions: `InLoop` for the program's own loops, `FitSessions` for
callbacks of a framework's ``fit``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from supervisor_core.base.options import Options
from supervisor_core.engine.notices import NOT_BEGUN, log_unrecorded
from supervisor_core.events.telemetry import Severity
from supervisor_core.storage.local import absolute
from supervisor_core.training.run import Run
from supervisor_core.training.save_point import SavePolicy
from supervisor_core.training.state import Exactness


def last_of_epoch(run: Run) -> AbstractContextManager[None]:
    """Allow an epoch's last batch the default hang timeout at least while the block runs: its smaller batch may be
    compiled for, and the program's loop may evaluate in it without a phase."""
    return run._recorder_now.progress.first_call(is_step=False)


@contextmanager
def end_of_epoch(run: Run) -> Iterator[None]:
    """Be in what follows an epoch's batches while the block runs: what is saved at a signal is the state before it."""
    has_copy = run._hold()
    try:
        with last_of_epoch(run):
            yield
    finally:
        if has_copy and run._saver is not None:
            run._saver.release_held()


class InLoop:
    """The session of a loop. Its methods are for the loop's body."""

    run: Run
    """The session: `supervisor_core.Run`."""

    @property
    def global_step(self) -> int:
        """The number of steps done, by this and the earlier sessions."""
        return self.run.global_step

    @property
    def exactness(self) -> Exactness | None:
        """Whether the resume was exact; None for a new run, and before the session begins."""
        return self.run.exactness

    def save(self) -> None:
        """Ask for a checkpoint: it is saved in the background when the body of the loop, and the step, has ended."""
        self.run.ask_for_save()

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Be in a phase, as ``"evaluating"``, while the block runs; see `supervisor_core.Run.phase`."""
        return self.run.phase(name)

    def should_stop(self) -> bool:
        """Return whether the loop is about to end: a signal came, a stop was requested, or it is finished."""
        return self.run.should_stop()

    def request_stop(self) -> None:
        """Ask the training to end at its next step; from any thread. The next start trains on: see `finish`."""
        self.run.request_stop()

    def notify(self, text: str, severity: Severity = "warn") -> None:
        """Say something of the run, as a finding, an alert and a message; see `supervisor_core.Run.notify`."""
        self.run.notify(text, severity)

    def finish(self) -> None:
        """Say that the training is completed: the loop ends after the present step, and so does each later start; see
        `supervisor_core.Run.finish`."""
        self.run.finish()


class OpenPhase:
    """The phase of a session that a framework's callbacks begin in one call and end in another; one at a time."""

    def __init__(self) -> None:
        self.name = ""
        """Its name; empty where there is none."""
        self._block: AbstractContextManager[None] | None = None

    def enter(self, run: Run, name: str) -> None:
        """Be in a phase from now on, and in no other.

        Args:
            name: see `supervisor_core.Run.phase`.
        """
        if name == self.name:
            return
        self.leave()
        self._block, self.name = run.phase(name), name
        self._block.__enter__()

    def leave(self) -> None:
        """Be in no such phase any more."""
        block, self._block, self.name = self._block, None, ""
        if block is not None:
            block.__exit__(None, None, None)


class FitSessions:
    """The sessions of a callback: one for each ``fit``.

    Args:
        logdir: the run's directory; a relative one is below the present working directory, whatever that becomes.
        options: see `supervisor_core.Options`; None for the defaults.
        policy: when checkpoints are saved.
    """

    def __init__(self, logdir: str | os.PathLike[str], options: Options | None, policy: SavePolicy) -> None:
        self.logdir = absolute(logdir)
        self._options = options or Options()
        self._policy = policy
        self._run: Run | None = None
        self._exactness: Exactness | None = None
        self._phase = OpenPhase()

    @property
    def run(self) -> Run | None:
        """The session under way: `supervisor_core.Run`; None outside ``fit``."""
        return self._run

    @property
    def exactness(self) -> Exactness | None:
        """Whether the last ``fit``'s resume was exact, as far as is known by now; None for a new run."""
        return self._exactness if self._run is None else self._run.exactness

    def notify(self, text: str, severity: Severity = "warn") -> None:
        """Say something of the run, as a finding, an alert and a message; see `supervisor_core.Run.notify`. Outside of
        ``fit`` it is logged only."""
        notify_in(self._run, text, severity)


def notify_in(run: Run | None, text: str, severity: Severity) -> None:
    """Say something of a callback's run.

    Args:
        run: its session; None outside of one.
        text: see `supervisor_core.Run.notify`.
        severity: likewise.

    Raises:
        ValueError: if the severity is none.
    """
    if run is None:
        log_unrecorded(text, severity, NOT_BEGUN)
    else:
        run.notify(text, severity)

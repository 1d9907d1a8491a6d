"""`DistributedRun`: one rank's session of a training in several processes.

Rank 0 holds the logdir, writes the events and the checkpoints; each other rank keeps a heartbeat file, as a cluster's
workers do. All of them stop, and save, after the same step. They agree on that every two seconds or so, at a step that
rank 0 has named the time before, so that no other step has a message in it:

    each rank       its step, whether it was asked to stop, by which signal, whether it was asked for a checkpoint
    rank 0 besides  whether a checkpoint is due, whether it can save one now, and the step of the next agreement

At the end, and once more when the last checkpoint is written, each says whether it ends with an error: with one on any
rank it is an error on all of them.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import Any, NamedTuple

from supervisor_core.base.errors import CheckpointError, RanksError, SupervisorError
from supervisor_core.base.options import Options
from supervisor_core.checkpoint.manifest import read_manifest
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.checkpoint.sealed_store import Sealed
from supervisor_core.engine.coordinator import text_of
from supervisor_core.engine.loop_exit import LoopExit
from supervisor_core.engine.session_recorder import SessionRecorder
from supervisor_core.events.telemetry import Trigger
from supervisor_core.training.ranks import RanksState
from supervisor_core.training.run import STOP_GRACE_SECS, Run
from supervisor_core.training.save_point import Due
from supervisor_core.training.saver import Saver

_LOG = logging.getLogger("supervisor_core")

AGREE_SECS = 2.0
"""How often the ranks agree, in seconds: a stop waits for it."""

GROWTH = 4
"""How many times as many steps the next agreement may be away as the one before, since steps become slower, too."""


class At(IntEnum):
    """Where a rank is when it compares itself with the others."""

    STEP = 0
    END = 1
    RECORDED = 2
    SAVED = 3
    LEAVING = 4


_PLACES = {
    At.STEP: "in its loop",
    At.END: "at its loop's end",
    At.RECORDED: "done",
    At.SAVED: "saving a checkpoint",
    At.LEAVING: "leaving",
}


class Row(NamedTuple):
    """What a rank says at an agreement; see the module's docstring."""

    at: int
    step: int
    stops: int = 0
    signum: int = 0
    asks: int = 0
    is_due: int = 0
    can_save: int = 0
    next_step: int = 0
    fails: int = 0
    extra: int = 0
    """What a framework's adapter adds."""


class Refusal(NamedTuple):
    """What rank 0 announces where it cannot begin."""

    text: str


def expect(announced: Any) -> Any:
    """Return what rank 0 has announced.

    Raises:
        CheckpointError: if it cannot begin.
    """
    if isinstance(announced, Refusal):
        raise CheckpointError(f"Rank 0 cannot begin: {announced.text}")
    return announced


class RankSaver(Saver):
    """Reads the checkpoint that rank 0 has chosen, on all ranks; saves on rank 0."""

    _state: RanksState

    def collect(self, step: int, *, is_saved: bool) -> None:
        """Collect what is each rank's, and have each rank write its shards; called by all ranks at the same step.

        Raises:
            RanksError: if another rank has ended.
        """
        started = self._clock.monotonic()
        if self._state.shards:
            self._write_shards(step, is_saved and not self._is_on_disk(step))
        self._state.collect()
        self._state.blocked_secs = self._clock.monotonic() - started

    def _write_shards(self, step: int, is_saved: bool) -> None:
        state, ranks = self._state, self._state.ranks
        if ranks.is_chief and is_saved:
            try:
                state.staging = self._store.stage(step)
            except (OSError, SupervisorError) as error:
                state.failure = error  # for `capture`
        staging = ranks.announce(state.staging)
        if staging is None:
            return
        found: dict[str, Any] = {}
        text = None
        try:
            for part in state.shards:
                found.update(part.split())
        except Exception as error:  # the others wait for this
            text = f"{type(error).__name__}: {error}"
        for rank, other in enumerate(ranks.exchange(text)):
            if other is not None:
                state.failure = CheckpointError(f"Rank {rank} has a state that cannot be saved: {other}")
        if state.failure is None:
            try:
                state.write_shards(found, staging)
            except OSError as error:
                state.failure = error

    def release(self) -> None:
        """Let go what no save has taken."""
        state = self._state
        state.release()
        staging, state.staging = state.staging, None
        if staging is not None:
            self._store.discard(staging)

    def read(self, start_over: bool) -> Any:
        """See `Saver.read`.

        Raises:
            CheckpointError: where rank 0 has refused, or its checkpoint is not there.
        """
        ranks = self._state.ranks
        if not ranks.is_chief:
            return self._read_chosen(expect(ranks.announce()))
        sealed, tree = super().read(start_over)
        chosen = None if sealed is None else (os.path.basename(sealed.path), sealed.manifest.order)
        ranks.announce(chosen)
        return sealed, tree

    def _read_chosen(self, chosen: tuple[str, tuple[int, int, int]] | None) -> Any:
        if chosen is None:
            return None, ()
        path = os.path.join(self._store.directory, chosen[0])
        try:
            manifest = read_manifest(path)
            if manifest.order != chosen[1]:
                raise CheckpointError("it is another one")
            return Sealed(path=path, manifest=manifest), self._read_files(SealedFiles(path, manifest))
        except (OSError, SupervisorError) as error:
            raise CheckpointError(
                f"Rank {self._state.ranks.rank} cannot read {path}, which rank 0 resumes from: {error}. "
                "All ranks need the same logdir, on a file system that they share."
            ) from error


class DistributedRun(Run):
    """See the module's docstring, and `Run`.

    Args:
        logdir: the run's directory, shared by all ranks.
        structure: a digest of the model's names and shapes, which are the same on every rank.
        saver: what saves, on all ranks.
        others: see `Run`.
    """

    def __init__(
        self,
        logdir: str,
        *,
        state: RanksState,
        options: Options,
        structure: str = "",
        saver: Callable[..., Saver] = RankSaver,
        **others: Any,
    ) -> None:
        self.ranks = ranks = state.ranks
        self._structure = structure
        self._saves_due = Due()
        task = None if ranks.is_chief else options.worker_name or f"rank:{ranks.rank}"

        def create(*args: Any, due: Due, **named: Any) -> Saver:
            """The saver plans its own saves; what the run compares each step with is when the ranks agree next."""
            return saver(*args, due=self._saves_due, **named)

        super().__init__(logdir, state=state, options=options, task=task, saver=create, **others)
        self._notes.is_off = True
        self._is_agreed = False
        self._is_left = self._has_failed = False
        self._disagreement: RanksError | None = None
        self._others_error: RanksError | None = None
        self._has_shared = False
        self._has_begun = self._met_at_end = False
        self._steps_between, self._end_thread = 1, 0
        self._agreed_at: float | None = None

    def begin(self) -> None:
        """See `Run.begin`; rank 0 first takes the logdir, and then all ranks read the checkpoint that it chose.

        Raises:
            CheckpointError: if rank 0 cannot begin, or another rank cannot read what rank 0 chose.
            RanksError: if the ranks have other logdirs or other models, or one of them has ended.
        """
        self.ranks.open()
        try:
            if not self.ranks.is_chief:
                logdir, structure = expect(self.ranks.announce())
                self._check_same("logdir", logdir, self.logdir)
                self._check_same("names and shapes of the model", structure, self._structure)
            super().begin()
        except BaseException as error:
            if self.ranks.is_chief and self.ranks.announcements < 2 and not isinstance(error, RanksError):
                with suppress(RanksError):  # the others wait for it
                    self.ranks.announce(Refusal(f"{type(error).__name__}: {error}"))
            else:
                self.ranks.close()
            raise

    def restore(self) -> None:
        """See `Run.restore`."""
        try:
            super().restore()
        except BaseException:
            self.ranks.close()
            raise
        self._has_begun = True

    def _check_same(self, what: str, chiefs: str, own: str) -> None:
        if chiefs != own:
            raise RanksError(
                f"The {what} of rank {self.ranks.rank} differ from rank 0's: {own!r:.200} and {chiefs!r:.200}. "
                "All ranks need the same."
            )

    def _begin(self, recorder: SessionRecorder) -> None:
        if self.ranks.is_chief:
            self.ranks.announce((self.logdir, self._structure))
        super()._begin(recorder)

    def _restore(self, recorder: SessionRecorder) -> None:
        super()._restore(recorder)
        self._due.step, self._due.at = self._step + 1, math.inf

    # What the program calls.

    def should_stop(self) -> bool:
        """Return whether all ranks have agreed to end after the present step."""
        return self._is_agreed or self.goal.is_finished

    def finish(self) -> None:
        """See `Run.finish`: a rank that waits for others which train on gets an error, as where it leaves the loop."""
        self._is_left = True
        super().finish()

    def stop_probe(self) -> Callable[[], object]:
        """See `Run.stop_probe`."""
        super().stop_probe()  # the loop asks
        return self.should_stop

    def ask_for_save(self, trigger: Trigger = "manual") -> None:
        """Ask for a checkpoint at the next agreement; from any thread, on any rank."""
        self._saves_due.ask(trigger)

    def left_by(self, left: LoopExit) -> None:
        """See `Run.left_by`: the others are waited for, since they may not leave."""
        self._is_left |= left.is_by_error is False
        super().left_by(left)

    def steps(self, until: int) -> Iterator[int]:
        """See `Run.steps`."""
        self._is_left = False
        return super().steps(until)

    def left_step(self, is_done: bool) -> None:
        """See `Run.left_step`: the others are waited for, since they may not leave."""
        self._is_left = True
        super().left_step(is_done)

    # How it works inside.

    @property
    def _signum(self) -> int | None:
        """The signal that asked for the end, on whatever rank; None after an error in the loop: where a rank dies, the
        others' collectives fail, and the launcher sends them SIGTERM in the same moment."""
        return None if self._has_failed else super()._signum

    def _save_due(self) -> None:
        """Agree with the other ranks; called after the step that rank 0 has named."""
        if self._ended or self._disagreement is not None:
            return
        step, stops = self._step, self._coord.should_stop()
        try:
            rows = self._compare(self._row(step, stops))
        except RanksError:
            if self._is_left:
                return
            raise
        chief = rows[0]
        self._due.step = chief.next_step
        if any(row.stops for row in rows):
            self._is_agreed = True
            self._agree_on_signal(max(row.signum for row in rows))
            self._coord.request_stop()
        elif chief.can_save and (chief.is_due or any(row.asks for row in rows)):
            self._save_together("timer" if chief.is_due else "manual")
        self._recorder_now.progress.begins(self._monotonic())

    def _hold(self) -> bool:
        """See `Run._hold`: the ranks do not meet here, as rank 0 may evaluate alone."""
        return False

    def _save_together(self, trigger: Trigger) -> None:
        """Save what is due, or was asked for; called by all ranks at the same step."""
        try:
            with self._recorder_now.progress.held():
                self._collect()
            if self.ranks.is_chief:
                self._due.asked_by = self._saves_due.asked_by or trigger
                super()._save_due()
        finally:
            self._release()
        self._due.asked_by = self._saves_due.asked_by = None

    def _collect(self) -> None:
        if isinstance(self._saver, RankSaver):
            self._saver.collect(self._step, is_saved=self._loss_finite is not False)

    def _release(self) -> None:
        """Let go what no save has taken."""
        if isinstance(self._saver, RankSaver):
            self._saver.release()

    def _row(self, step: int, stops: bool) -> Row:
        row = Row(At.STEP, step, stops, self._session.reason.signum or 0, self._saves_due.asked_by is not None)
        saver = self._saver
        if not self.ranks.is_chief or saver is None:
            return row
        now, due = self._monotonic(), self._saves_due
        if self._agreed_at is not None:
            secs = (now - self._agreed_at) / self._steps_between
            self._steps_between = max(1, min(GROWTH * self._steps_between, int(AGREE_SECS / max(secs, 1e-6))))
        self._agreed_at = now
        is_due = now >= due.at or step >= due.step
        can_save = saver.is_idle
        save_step = due.step
        if is_due and can_save:
            save_step = step + (self._policy.save_steps or math.inf)
        next_step = step + self._steps_between
        if save_step > step:
            next_step = int(min(next_step, save_step))
        self._steps_between = next_step - step
        return row._replace(is_due=is_due, can_save=can_save, next_step=next_step)

    def _compare(self, row: Row) -> list[Row]:
        """Return the rows of all ranks.

        Raises:
            RanksError: if they are not all at the same step, or one of them has ended.
        """
        try:
            has_met = row.at in (At.LEAVING, At.RECORDED)  # at its end; the last save takes its time
            if self._is_left and not has_met:
                self.ranks.meet()
            rows = [Row(*numbers) for numbers in self.ranks.compare(row)]
            for rank, other in enumerate(rows):
                if (other.at, other.step) != (rows[0].at, rows[0].step):
                    raise RanksError(
                        f"Rank {rank} is {_PLACES[At(other.at)]} at step {other.step}, and rank 0 is "
                        f"{_PLACES[At(rows[0].at)]} at step {rows[0].step}: all ranks need the same number of steps. "
                        "Give each the same number of batches, as DistributedSampler does, and leave the loop on all "
                        "of them."
                    )
        except RanksError as error:
            self._disagreement = error
            raise
        return rows

    def _stop_at_exit(self, error: BaseException | None) -> None:
        self._is_left = True
        super()._stop_at_exit(error)

    def end(self, error: BaseException | None) -> None:
        """See `Run.end`."""
        ending, reason = self._ending, self._session.reason
        if self._ended or ending.is_inactive or not self._lifecycle.has_begun:
            super().end(error)
            return
        self._end_thread = threading.get_ident()
        reason.body_error = error
        ending.signals.catch_up(STOP_GRACE_SECS)
        own_signum, failure = ending.signals.received, ending.failure()
        self._has_failed = failure is not None and error is not None
        raised: RanksError | None = None
        if error is None or (failure is None and isinstance(error, (GeneratorExit, SystemExit))):
            try:
                self._agree_on_end(failure)
                raised = self._others_error
            except RanksError as disagreement:
                raised = disagreement
                _LOG.error("Nothing is saved at the end: %s", disagreement)
            self._has_failed |= raised is not None
        try:
            super().end(raised or error)
        finally:
            self._release()
            if self._has_begun and not self._met_at_end:
                self.ranks.close()  # the others do not wait for one that does not come
        raised = raised or self._others_error
        if raised is not None and error is None:
            raise raised
        self._end_as_the_others(own_signum)

    def _agree_on_end(self, failure: BaseException | None) -> None:
        """Meet the others after the last step, and collect their states for the final checkpoint.

        Raises:
            RanksError: if they do not come, or stand at another step.
        """
        if self._disagreement is not None:
            raise self._disagreement
        is_saved = self._task is None and self._ending.is_save_wanted()
        own = Row(
            At.END, self._step, signum=self._session.reason.signum or 0, can_save=is_saved, fails=failure is not None
        )
        rows = self._compare(own)
        self._share_errors(rows, failure)
        self._agree_on_signal(max(row.signum for row in rows))
        if rows[0].can_save:
            self._collect()
        self._met_at_end = True

    def _share_errors(self, rows: list[Row], own: BaseException | None) -> None:
        """Exchange the errors that the ranks end with, if there are any: the first one is an error on all ranks."""
        if not any(row.fails for row in rows):
            return
        self._has_shared = True
        texts = self.ranks.exchange(None if own is None else f"{type(own).__name__}: {text_of(own)}")
        rank, text = next((rank, text) for rank, text in enumerate(texts) if text is not None)
        if own is None:
            self._others_error = RanksError(f"Rank {rank} has ended with an error: {text}")

    def _agree_on_signal(self, signum: int) -> None:
        """A signal that came to any rank ends all of them."""
        reason = self._session.reason
        if signum and reason.signum is None:
            reason.signum = signum
            self._session.deadline.signalled(None)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Rank 0 records last: its record says how the others have ended. A signal's thread records at once."""
        meets = self._met_at_end and not self._ended and threading.get_ident() == self._end_thread
        if meets and self.ranks.is_chief:
            self._meet_leaving()
        yield
        if meets and not self.ranks.is_chief:
            self._meet_leaving()

    def _meet_leaving(self) -> None:
        with suppress(RanksError):  # `_recorded` logs it
            self._compare(Row(At.LEAVING, self._step))

    def _recorded(self, error: BaseException | None) -> None:
        """Wait until rank 0 has written the last checkpoint: a launcher ends all ranks as soon as one has ended."""
        if self._met_at_end:
            try:
                is_new = error is not None and not self._has_shared
                self._share_errors(self._compare(Row(At.RECORDED, self._step, fails=is_new)), error)
            except RanksError as error:
                _LOG.warning("Another rank ended while the last checkpoint was written: %s", error)
            else:
                if self._signum is not None:
                    self.ranks.leave()

    def _end_as_the_others(self, own: int | None) -> None:
        """End by the signal that ended another rank: the program does not go on as if the training were complete."""
        signum = self._signum
        if signum is None or own is not None or threading.current_thread() is not threading.main_thread():
            return
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os.kill(os.getpid(), signum)

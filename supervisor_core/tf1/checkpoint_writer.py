"""`CheckpointWriter`: one checkpoint from its first moment to its last.

    bind, prepare   everything that takes time is done before, while training goes on
    snapshot        between two steps: is the watched loss finite, which step is it, put the values aside
    write           in the background, in a directory where no reader looks for checkpoints (`StagedCheckpoint`)
    sync, verify    the files survive a power cut; every byte is read back and compared with its checksum
    announce        the ledger says what is going to happen, so that nothing is leaked if the process is killed
    publish         the files are moved into their place
    record          the state file, durably; then older checkpoints are deleted; then ``.meta``

Whatever fails before the state file is replaced leaves the checkpoints as they were.
"""

from __future__ import annotations

import logging
import math
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.errors import DamagedCheckpointError, LogdirInUseError
from supervisor_core.base.options import Options
from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint.blocks import URGENT, BlockWriter
from supervisor_core.checkpoint.guard import Publisher
from supervisor_core.checkpoint.names import last_part, step_in_name
from supervisor_core.checkpoint.recovery import Skipped
from supervisor_core.checkpoint.retention import Doubt, doubt_of
from supervisor_core.checkpoint.store import CheckpointStore, StagedCheckpoint
from supervisor_core.engine.coordinator import text_of
from supervisor_core.engine.step_lock import StepLock
from supervisor_core.events.record_fields import shared
from supervisor_core.events.telemetry import CheckpointRecord, Trigger
from supervisor_core.storage.local import filesystem_for
from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.global_step import read_global_step
from supervisor_core.tf1.retention import CheckpointRetention
from supervisor_core.tf1.saver_graph import CannotSnapshot, has_own_save
from supervisor_core.tf1.snapshot import Snapshot, WatchedLoss

_LOG = logging.getLogger("supervisor_core")
_AT_NODE = re.compile(r"^Node: '[^']*'\n(.+)$", re.MULTILINE)
"""Where ``Session.run`` hides what went wrong, between the stack of the node's making and the node."""

STEPS_WAITED, WAITS = 2, 20
"""A snapshot waits this many times as long as the longest of the recent steps took, and at most this many times
`Options.snapshot_wait_secs`."""


@dataclass(kw_only=True)
class SaveResult:
    """One save, filled in as it goes on. The fields up to ``error`` go into its `CheckpointRecord`."""

    trigger: Trigger
    path: str | None = None
    step: int | None = None
    bytes: int | None = None
    secs: float = 0.0
    blocked_secs: float = 0.0
    consistent: bool | None = None
    verified: bool | None = None
    error: str | None = None
    doubt: str | None = None
    cause: Exception | None = None
    """The exception of a save that failed; None for a good one, and for one that was refused."""
    skipped: bool = False
    """Whether nothing was written because this moment was on disk already."""

    def record(self, session: str) -> CheckpointRecord:
        """Return the save as a session's record of it."""
        return CheckpointRecord(**shared(CheckpointRecord, self), session=session)

    def failed(self, error: Exception) -> None:
        """Record that no checkpoint was written, and why."""
        self.path = self.bytes = self.consistent = self.doubt = None
        self.verified = False if isinstance(error, DamagedCheckpointError) else None
        text = text_of(error)
        found = _AT_NODE.search(text)
        cause = found.group(1) if found else text.partition("\n")[0]
        self.error = f"{type(error).__name__}: {cause}"
        self.cause = error


def step_wait_secs(wait_secs: float, step_secs: float) -> float:
    """Return how long a snapshot waits for the steps under way, in seconds.

    Args:
        wait_secs: `Options.snapshot_wait_secs`.
        step_secs: how long the longest of the recent steps took; 0 where that is not known.
    """
    return max(wait_secs, min(STEPS_WAITED * step_secs, WAITS * wait_secs))


class SaveLocation:
    """What those share that save under one name in one directory: one save at a time, one store with its ledger.

    Args:
        save_path: what checkpoints' paths begin with.
        logdir: the run's directory, where the state file is. Default: the one of ``save_path``.
        lock: held during each save. Shared with the other names of the directory, which have the same state file.
    """

    def __init__(self, save_path: str, *, logdir: str | None = None, lock: threading.RLock | None = None) -> None:
        directory = os.path.dirname(save_path) if logdir is None else logdir
        self._location = (directory, os.path.relpath(save_path, directory) if logdir else last_part(save_path))
        self.lock = threading.RLock() if lock is None else lock
        self.hurry = threading.Event()
        """Set while another save waits: older checkpoints are not read back then."""
        self._publisher: Publisher | None = None
        self._store = CheckpointStore(*self._location)

    def store(self, publisher: Publisher | None) -> CheckpointStore:
        """Return the checkpoints on disk for a session: the same ones as long as it lasts, so that it goes on counting
        when it has recovered."""
        if publisher is None or publisher is not self._publisher:
            self._publisher = publisher
            self._store = CheckpointStore(*self._location, publisher=publisher)
        return self._store


class CheckpointWriter:
    """Writes the checkpoints of one saver, one at a time, from any thread but the one that trains. Thread-safe.

    Args:
        graph: the saver's graph, finalized or not; nothing is added to it.
        saver: a ``tf.compat.v1.train.Saver``. One of which no snapshot can be taken is run as it is, without holding
            training up: such checkpoints may mix steps.
        save_path: what checkpoints' paths begin with; the step follows after a dash.
        global_step: the step in their names, an integer of size 1; None for none.
        meta_graph_def: what goes into ``.meta``; None writes none.
        step_lock: keeps steps out while a snapshot is taken.
        options: how saves behave.
        blocking: whether the caller keeps training waiting for as long as a save takes, without a lock on the
            directory: then nothing is swept, which may be another's save under way.
        location: what it shares with others of the same ``save_path``. Default: nothing.
        watched: returns a loss that must be finite too, besides ``options.watched_loss``; None as long as there is
            none.

    Raises:
        OptionsError: if ``options.watched_loss`` cannot be read.
    """

    def __init__(
        self,
        *,
        graph: Any,
        saver: Any,
        save_path: str,
        global_step: Any,
        meta_graph_def: Any,
        step_lock: StepLock,
        options: Options,
        blocking: bool = False,
        location: SaveLocation | None = None,
        watched: Callable[[], Any] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._saver = saver
        self.save_path = os.fspath(save_path)
        self._global_step = global_step
        self._meta_graph_def = meta_graph_def
        self.step_lock = step_lock
        self.options = options
        self._clock = clock
        self._location = location or SaveLocation(self.save_path)
        self.lock = self._location.lock
        self._wait_secs = options.snapshot_wait_secs  # in the present save
        self._blocking = blocking
        self._is_last = False
        self._blocks = BlockWriter(has_process=not blocking)
        self._failure: str | None = None
        self.attach()
        self._watched = watched
        self._loss: WatchedLoss | None = None
        if options.watched_loss is not None:
            self._loss = WatchedLoss(graph, options.watched_loss)
        self._snapshot: Snapshot | None = None
        try:
            self._snapshot = Snapshot(graph, saver, global_step, self._blocks)
        except CannotSnapshot as reason:
            self._give_up_snapshots(reason)

    def attach(
        self,
        publisher: Publisher | None = None,
        *,
        holds: Callable[[str], bool] = lambda directory: False,
        restored: str | None = None,
        skipped: Sequence[Skipped] = (),
        losses: Callable[[], tuple[str, ...]] = tuple,
    ) -> tuple[str, ...]:
        """Begin a session; return the losses that were not finite when its checkpoint was saved.

        Args:
            publisher: the session that saves, whose check comes before each write; None for none.
            holds: whether a directory is the session's own; see `CheckpointRetention`.
            skipped: the damaged checkpoints that were passed over.
            losses: returns the tags of the losses whose newest values are not finite.
        """
        with self.lock:
            self._store = self._location.store(publisher)
            self._losses, self._failure = losses, None
            self._retention = CheckpointRetention(
                self._saver,
                self._store,
                read_data=self.options.verify_checkpoints,
                holds=holds,
                restored=restored,
                skipped=skipped,
                hurry=self._location.hurry,
                clock=self._clock,
            )
            self._taken_over = self._swept = self._blocking
            self._holds = holds
            doubt = None if restored is None else self._store.ledger.doubt(restored)
            return () if doubt is None else doubt.losses

    def training_failed(self, error: BaseException) -> None:
        """Say that training has ended with an error: what is saved from now on, in this session, is in doubt."""
        self._failure = f"{type(error).__name__}: {text_of(error)}"

    def hurry(self) -> None:
        """Say that another save is about to wait for the one under way, which then leaves out what can wait."""
        self._location.hurry.set()

    @property
    def consistent(self) -> bool:
        """Whether checkpoints hold values of one step only, as far as runs end within the time to wait for them."""
        return self._snapshot is not None

    @property
    def size_bytes(self) -> float:
        """How much a snapshot holds; infinite where that is not known."""
        return math.inf if self._snapshot is None else self._snapshot.size_bytes

    def save(
        self,
        sess: Any,
        trigger: Trigger,
        is_new: Callable[[int | None], bool] = lambda step: True,
        wait_secs: float = math.inf,
        step_secs: float = 0.0,
        interval_secs: float | None = None,
        training_waits: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> SaveResult:
        """Save a checkpoint now, and return when it is durable, or has failed.

        Args:
            sess: the session; of a supervised one the plain session inside is used, past the step lock.
            trigger: why, for the record.
            is_new: asked with the snapshot's step, between two steps, whether to write it at all.
            wait_secs: how long to wait for the steps under way, if that is less than `step_wait_secs`.
            step_secs: how long the longest of the recent steps took.
            interval_secs: the time from one save to the next; None without any.
            training_waits: entered while the save may keep training waiting: not while a snapshot is being written.

        Returns:
            The finished result; a failure is in it, not raised.
        """
        with self.lock:
            self._location.hurry.clear()
            self._is_last = trigger in URGENT
            self._blocks.begin(interval_secs, lambda: self._is_last or self._location.hurry.is_set())
            started = self._clock.monotonic()
            result = SaveResult(trigger=trigger)
            try:
                self._tidy()
                self._retention.set_aside_skipped()
                self._wait_secs = min(wait_secs, step_wait_secs(self.options.snapshot_wait_secs, step_secs))
                session = sess.plain_session() if hasattr(sess, "plain_session") else sess
                self._save(session, result, is_new, training_waits)
            except Exception as error:
                result.failed(error)
            result.secs = self._clock.monotonic() - started
            return result

    def _save(
        self,
        session: Any,
        result: SaveResult,
        is_new: Callable[[int | None], bool],
        training_waits: Callable[[], AbstractContextManager[object]],
    ) -> None:
        fetches = False
        if self._snapshot is not None:
            try:
                fetches = self._snapshot.bind(session)
            except CannotSnapshot as reason:
                self._give_up_snapshots(reason)
        if self._snapshot is not None and fetches:
            self._save_snapshot(session, self._snapshot, result, is_new, training_waits)
            return
        with training_waits():  # the saver reads the variables themselves
            if has_own_save(self._saver):
                self._let_save(session, result)
            else:
                self._save_as_is(session, result, is_new, between_steps=self._snapshot is not None)

    def _save_snapshot(
        self,
        session: Any,
        snapshot: Snapshot,
        result: SaveResult,
        is_new: Callable[[int | None], bool],
        training_waits: Callable[[], AbstractContextManager[object]],
    ) -> None:
        if self._loss is not None:
            self._loss.bind(session)
        try:
            snapshot.prepare()
            with training_waits(), self.step_lock.exclusive(self._wait_secs) as held:
                wanted = not self._refuses(session, result)
                if wanted:
                    result.step = snapshot.take()
                    result.skipped = not is_new(result.step)
            result.blocked_secs = held.blocked_secs
            if not wanted or result.skipped:
                return
            losses = self._losses()  # of the moment that is saved: writing may take minutes
            with self._staged(result.step) as staged:
                doubt = doubt_of(self._failure, losses, self._write(snapshot, staged.path))
                snapshot.drop()
                result.consistent = held.consistent
                self._complete(result, staged, staged.path, doubt)
            self._write_meta(result)
        finally:
            snapshot.drop()

    def _save_as_is(
        self, session: Any, result: SaveResult, is_new: Callable[[int | None], bool], *, between_steps: bool
    ) -> None:
        """Have the saver write as it does for the original.

        Args:
            between_steps: whether training waits meanwhile, so that all values are of one step.
        """
        if self._loss is not None:
            self._loss.bind(session)
        step_lock = self.step_lock.exclusive(self._wait_secs) if between_steps else nullcontext()
        with ExitStack() as until_complete:
            with step_lock as held:
                if self._refuses(session, result):
                    return
                if self._global_step is not None:
                    result.step = read_global_step(session, self._global_step)
                result.skipped = not is_new(result.step)
                if result.skipped:
                    return
                staged = until_complete.enter_context(self._staged(result.step))
                base = os.path.join(os.path.dirname(staged.path), last_part(self.save_path))
                with session.graph.as_default():  # or else, in a thread of ours, TensorFlow takes it for eager
                    written = self._saver.save(
                        session, base, global_step=result.step, write_meta_graph=False, write_state=False
                    )
            if held is not None:
                result.blocked_secs = held.blocked_secs
            if written is None:  # a saver without variables writes nothing
                staged.discard()
                return
            result.consistent = held is not None and held.consistent
            self._complete(result, staged, written, doubt_of(self._failure, self._losses(), None))
        self._write_meta(result)

    @contextmanager
    def _staged(self, step: int | None) -> Iterator[StagedCheckpoint]:
        """Be around the writing of a checkpoint; one that fails is discarded."""
        self._store.prepare()
        staged = StagedCheckpoint(self._store, self._path(step))
        try:
            yield staged
        except BaseException:
            staged.discard()
            raise

    def _let_save(self, session: Any, result: SaveResult) -> None:
        """Have a saver of the program's own do all that it does, and record the result."""
        if self._refuses(session, result):
            return
        self._store.prepare()
        with session.graph.as_default():
            path = self._saver.save(session, self.save_path, global_step=self._global_step)
        result.path, result.step, result.consistent = path, step_in_name(path or ""), False
        filesystem, name = filesystem_for(path or "")
        if path and filesystem.is_file(f"{name}.index"):
            self._verify(result, path)

    @staticmethod
    def _write(snapshot: Snapshot, path: str) -> str | None:
        try:
            return snapshot.write(path)
        except tf.errors.DataLossError as error:  # shards are read back as they are merged
            raise DamagedCheckpointError(f"{path} did not read back as written: {error.message}") from error

    def _complete(self, result: SaveResult, staged: StagedCheckpoint, written: str, doubt: Doubt | None) -> None:
        """Make a checkpoint that is written one that counts."""
        self._store.sync(written)
        stored = self._verify(result, written)
        if not result.consistent and staged.is_elsewhere and self._is_later(stored, result.step):
            result.step = stored  # others have gone on while it was saved: its name says what is in it
        path = self._path(result.step)
        result.doubt = None if doubt is None else doubt.text
        plan = self._retention.announce(staged.destination(written, path), self._clock.wall(), doubt)
        staged.publish(written, path)
        self._retention.record(plan, quick=self._is_last)
        result.path = plan.path

    def _is_later(self, stored: int | None, step: int | None) -> bool:
        """Whether the step that is stored in a checkpoint is the run's own, and later than the one that was read."""
        is_own = self._global_step is not None and self._global_step.op.name == bundle.GLOBAL_STEP
        return is_own and stored is not None and step is not None and stored > step

    def _verify(self, result: SaveResult, path: str) -> int | None:
        """Verify what was written; return the step that is stored in it."""
        verified = bundle.verify(path, data=self.options.verify_checkpoints, blocks=self._blocks)
        result.bytes = verified.bytes
        result.verified = self.options.verify_checkpoints
        return verified.step

    def _write_meta(self, result: SaveResult) -> None:
        """Write the graph beside a checkpoint that counts: nothing that is restored is in it, so no failure of it is
        the save's."""
        if self._meta_graph_def is None:
            return
        path = self._path(result.step) + ".meta"
        try:
            if not isinstance(self._meta_graph_def, bytes):
                self._meta_graph_def = self._meta_graph_def.SerializeToString()
            self._store.filesystem.replace(filesystem_for(path)[1], self._meta_graph_def)
        except LogdirInUseError:
            raise
        except Exception as error:  # protobuf has errors of its own for a graph of more than 2 GB
            _LOG.warning("The graph beside the checkpoint, %s, cannot be written: %s", path, error)

    def _refuses(self, session: Any, result: SaveResult) -> bool:
        """Whether the watched loss, at this moment, forbids a checkpoint; the result then says so."""
        readers = [self._watched] if self._loss is None else [self._loss.read, self._watched]
        losses = [read() for read in readers if read is not None]
        loss = next((each for each in losses if each is not None and not np.all(np.isfinite(each))), None)
        if loss is None:
            return False
        if self._global_step is not None:
            result.step = read_global_step(session, self._global_step)
        result.error = f"the watched loss is {np.asarray(loss)}: a model like this is not worth a checkpoint"
        return True

    def _path(self, step: int | None) -> str:
        if step is None:
            return self.save_path
        padded = private.PAD_STEP.get(self._saver, False)
        return f"{self.save_path}-{step:08d}" if padded else f"{self.save_path}-{step}"

    def _tidy(self) -> None:
        """Take over what earlier sessions left; again at each save as long as some of it may be a save under way."""
        if not self._taken_over:
            self._taken_over = True
            self._retention.take_over()
        if self._swept:
            return
        self._swept = True
        try:
            swept = self._store.sweep_leftovers(alone=self._holds(self._store.logdir), clock=self._clock)
            self._swept = not swept.too_young
            for path in swept.deleted:
                _LOG.info("Deleted %s, which an earlier save left behind.", path)
        except OSError as error:
            _LOG.warning("Cannot delete leftover files of earlier saves: %s", error)

    def _give_up_snapshots(self, reason: CannotSnapshot) -> None:
        self._snapshot = None
        if self._blocking:
            return
        _LOG.warning("Checkpoints of this saver may mix steps, since %s: it runs while training continues.", reason)

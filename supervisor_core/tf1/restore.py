"""Restoring a session: from the newest checkpoint that can be read, walking back over damaged ones.

A checkpoint is damaged when its index does not verify or a restore finds data that does not match its checksums;
TensorFlow checks those as it reads, so nothing is read twice. A checkpoint of another model is not damaged: that is an
error which lists what differs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint.store import CheckpointStore, Skipped
from supervisor_core.errors import DamagedCheckpointError
from supervisor_core.tf1.mismatch import explain_mismatch

_LOG = logging.getLogger("supervisor_core")

_DAMAGE = (tf.errors.DataLossError, tf.errors.OutOfRangeError)


@dataclass(frozen=True, kw_only=True)
class Restored:
    """What a session was restored from, and what was passed over on the way."""

    path: str
    step: int | None = None
    """The step in the checkpoint, or else in its name."""
    saved_at: float | None = None
    """Wall time at which it was saved, where known."""
    bytes: int | None = None
    skipped: tuple[Skipped, ...] = ()
    """Newest first."""
    state_problem: str | None = None


def restore_explicit(sess: Any, saver: Any, path: str) -> Restored:
    """Restore one checkpoint, chosen by the program; the saver's own list of checkpoints stays as it is."""
    _restore(sess, saver, path)
    return Restored(path=path)


def restore_newest(
    sess: Any, saver: Any, directory: str, *, basename: str | None, on_restore: Callable[[], None]
) -> Restored | None:
    """Restore the newest checkpoint of a directory that can be read; return None where there is none at all.

    Args:
        sess: the session.
        saver: restores; is then handed the checkpoints that it may delete as it saves.
        directory: where the checkpoints are.
        basename: what checkpoint files are called, for those that the state file does not name.
        on_restore: called before the first byte is read, if there is anything to restore.

    Raises:
        NoUsableCheckpointError: if there are checkpoints and none can be read; each is listed with its damage.
        tf.errors.NotFoundError, tf.errors.InvalidArgumentError: if the checkpoint is of another model.
    """
    store = CheckpointStore(directory, basename or "model.ckpt")
    damaged: dict[str, str] = {}

    def check(path: str) -> bundle.VerifiedCheckpoint:
        if path in damaged:
            raise DamagedCheckpointError(damaged[path])
        return bundle.verify(path, data=False)

    while True:
        recovery = store.newest_usable(verify=check)
        if recovery.chosen is None:
            return None
        on_restore()
        path = recovery.chosen.path
        try:
            _restore(sess, saver, path)
        except _DAMAGE as error:
            damaged[path] = str(error).partition("\n")[0]
            continue
        for skipped in recovery.skipped:
            _LOG.warning("Passed over the damaged checkpoint %s: %s", skipped.path, skipped.reason)
        if recovery.state_problem:
            _LOG.warning("Checkpoint state file: %s", recovery.state_problem)
        _LOG.info("Restored %s.", path)
        _hand_over(saver, store)
        verified = recovery.verified
        stored = verified.step if verified is not None else None
        return Restored(
            path=path,
            step=stored if stored is not None else recovery.chosen.step,
            saved_at=recovery.chosen.saved_at,
            bytes=verified.bytes if verified is not None else None,
            skipped=recovery.skipped,
            state_problem=recovery.state_problem,
        )


def hand_over(saver: Any, directory: str | None, basename: str | None) -> None:
    """Hand a saver the checkpoints of a directory that it may delete as it saves, though none of them was restored."""
    if saver and directory:
        _hand_over(saver, CheckpointStore(directory, basename or "model.ckpt"))


def _hand_over(saver: Any, store: CheckpointStore) -> None:
    saver.recover_last_checkpoints([saved.path for saved in store.history().kept if saved.deletable])


def _restore(sess: Any, saver: Any, path: str) -> None:
    """Run saved-model initializers, then the restore; an error over another model says what differs."""
    initializers = sess.graph.get_collection("saved_model_initializers")
    if initializers:
        sess.run(initializers)
    try:
        saver.restore(sess, path)
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as error:
        difference = explain_mismatch(saver, sess.graph, path)
        if not difference:
            raise
        text = f"{error.message}\n\nThe checkpoint {path} is of another model:\n{difference}"
        raise type(error)(error.node_def, error.op, text) from error

"""Where a session's model comes from: the newest checkpoint that can be read, walking back over damaged ones.

Before a restore the index is verified, and that each data file is there, regular and long enough. The data's checksums
are compared by TensorFlow as it reads, so that nothing is read twice; only where that fails the checkpoint is verified
whole, which says which tensor of which file is damaged. A checkpoint of another model is not damaged: that is an error
which lists what differs.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from supervisor_core.base.errors import DamagedCheckpointError, NoUsableCheckpointError
from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint.names import last_part
from supervisor_core.checkpoint.recovery import Skipped, log_skipped
from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.tf1.cluster.wait import SessionContext
from supervisor_core.tf1.global_step import read_global_step
from supervisor_core.tf1.graph import reached
from supervisor_core.tf1.tf_errors import error_text

_LOG = logging.getLogger("supervisor_core")

_DAMAGE = (tf.errors.DataLossError, tf.errors.OutOfRangeError)
_POSSIBLE_DAMAGE = (
    *_DAMAGE,
    tf.errors.NotFoundError,
    tf.errors.InvalidArgumentError,
    tf.errors.FailedPreconditionError,
    tf.errors.PermissionDeniedError,
    tf.errors.UnimplementedError,
    tf.errors.InternalError,
    tf.errors.UnknownError,
)
"""What TensorFlow raises for files that it cannot read, and for other reasons too."""
_NO_FILE = (errno.EISDIR, errno.EINVAL)

MAX_NAMES = 20
"""How many names of a kind are listed."""

_PASSING = ("Identity", "Reshape", "Cast")


@dataclass(frozen=True, kw_only=True)
class Restored:
    """What a session was restored from."""

    path: str
    step: int | None = None
    """The step in the checkpoint, or else in its name."""
    saved_at: float | None = None
    """Wall time at which it was saved, where known."""
    bytes: int | None = None
    state_problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class RestoreInfo:
    """Where a session's model came from: a checkpoint, its own initialisation, or a cluster that had kept it."""

    restored: Restored | None = None
    """The checkpoint; None where none was read."""
    adopted: bool = False
    """Whether it was found alive in the cluster, and kept."""
    skipped: tuple[Skipped, ...] = ()
    """The damaged checkpoints that were passed over, newest first."""
    step: int | None = None
    """The step at which training goes on; None for a new model, and where nothing counts."""

    @classmethod
    def of(cls, maker: Any, sess: Any, global_step: Any) -> RestoreInfo:
        """Return what the maker of a session recorded; a maker of the program's own records nothing.

        Args:
            maker: a `SessionManager`, a session creator, or whatever made the session.
            global_step: what counts its steps, or None.
        """
        found = getattr(maker, "restore_info", None)
        if not isinstance(found, RestoreInfo):
            return cls()
        if not found.adopted or global_step is None:
            return found
        return replace(found, step=read_global_step(sess, global_step))


def restore_explicit(sess: Any, saver: Any, path: str) -> Restored:
    """Restore one checkpoint, chosen by the program; the saver's own list of checkpoints stays as it is.

    Raises:
        DamagedCheckpointError: if one of its files is no regular file, for which TensorFlow would wait without end.
        tf.errors.OpError: what TensorFlow raises; the text then says what is damaged, or differs.
    """
    try:
        bundle.verify(path, data=False)
    except DamagedCheckpointError as damage:
        if isinstance(damage.__cause__, OSError) and damage.__cause__.errno in _NO_FILE:
            raise
    try:
        _restore(sess, saver, path)
    except _POSSIBLE_DAMAGE as error:
        damage_found = _damage_of(path, error)
        if damage_found is None:
            raise
        said = "" if isinstance(damage_found, bundle.LinkedCheckpointError) else f"{error.message}\n\n"
        text = f"{said}The checkpoint {path} is damaged: {damage_found}"
        raise type(error)(error.node_def, error.op, text) from error
    return Restored(path=path)


def restore_newest(
    sess: Any,
    saver: Any,
    directory: str,
    basename: str,
    context: SessionContext,
    *,
    waits: bool,
) -> RestoreInfo:
    """Restore the newest checkpoint of a directory that can be read.

    Args:
        saver: restores; is then handed the checkpoints that it may delete as it saves.
        basename: what checkpoint files are called, for those that the state file does not name.
        context: hears of the restore before the first byte is read; says whether to restore nothing where all are
            damaged, rather than raise, and whether it saves there: then it finishes what a killed save has begun.
        waits: whether to come again for one: then none is restored where none is usable yet.

    Returns:
        What was restored, and what was passed over.

    Raises:
        NoUsableCheckpointError: if there are checkpoints and none can be read; each is listed with its damage.
        tf.errors.NotFoundError, tf.errors.InvalidArgumentError: if the checkpoint is of another model.
    """
    store = CheckpointStore(directory, basename)
    publisher = context.publisher(directory)
    if publisher is not None:
        CheckpointStore(directory, basename, publisher=publisher).finish_moves()
    damaged: dict[str, DamagedCheckpointError] = {}
    looked_at: set[str] = set()

    def check(path: str) -> bundle.VerifiedCheckpoint:
        looked_at.add(path)
        if path in damaged:
            raise damaged[path]
        return bundle.verify(path, data=False)

    while True:
        before = frozenset(looked_at)
        try:
            recovery = store.newest_usable(verify=check, start_over=context.starts_over)
        except NoUsableCheckpointError:  # whoever writes them may be about to
            if waits:
                return RestoreInfo()
            if looked_at > before:  # a training beside this session may have replaced them all meanwhile
                continue
            raise
        if recovery.chosen is None:
            log_skipped(recovery.skipped, None)
            return RestoreInfo(skipped=recovery.skipped)
        context.restoring()
        path = recovery.chosen.path
        try:
            _restore(sess, saver, path)
        except _POSSIBLE_DAMAGE as error:
            damage = _damage_of(path, error)
            if damage is None:
                raise
            damaged[path] = damage
            continue
        log_skipped(recovery.skipped, path)
        if recovery.state_problem:
            _LOG.warning("Checkpoint state file: %s", recovery.state_problem)
        _LOG.info("Restored %s.", path)
        hand_over(saver, store, {item.path for item in recovery.skipped})
        verified = recovery.verified
        stored = verified.step if verified is not None else None
        restored = Restored(
            path=path,
            step=stored if stored is not None else recovery.chosen.step,
            saved_at=recovery.chosen.saved_at,
            bytes=verified.bytes if verified is not None else None,
            state_problem=recovery.state_problem,
        )
        return RestoreInfo(restored=restored, skipped=recovery.skipped, step=restored.step)


def hand_over(saver: Any, store: CheckpointStore, skipped: Collection[str] = ()) -> None:
    """Hand a saver the checkpoints of a directory that it may delete as it saves; not those that were skipped."""
    kept = [saved.path for saved in store.history().kept if saved.deletable and saved.path not in skipped]
    saver.recover_last_checkpoints(kept)


def _damage_of(path: str, error: tf.errors.OpError) -> DamagedCheckpointError | None:
    """Return what is damaged of a checkpoint that could not be restored; None where nothing is."""
    try:
        bundle.verify(path)
    except DamagedCheckpointError as damage:
        return damage
    if isinstance(error, _DAMAGE):
        words = "TensorFlow cannot read it, though its checksums match"
        return DamagedCheckpointError(f"{last_part(path)}: {words}: {error_text(error)}")
    return None


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


def explain_mismatch(saver: Any, graph: Any, path: str) -> str:
    """Return what differs between what a saver restores and what a checkpoint holds, one line for each kind.

    Empty when nothing differs, or the checkpoint cannot be read.
    """
    try:
        entries = bundle.read_index(path).entries
    except DamagedCheckpointError:  # its damage is reported elsewhere
        return ""
    wanted = restored_shapes(saver, graph)
    missing = sorted(set(wanted) - set(entries))
    extra = sorted(name for name in set(entries) - set(wanted) if not name.startswith("_CHECKPOINTABLE"))
    reshaped = [
        f"{name} (model {list(shape)}, checkpoint {list(entries[name].shape)})"
        for name, shape in sorted(wanted.items())
        if shape is not None and name in entries and not entries[name].sliced and entries[name].shape != shape
    ]
    lines = [
        _line("in the model, not in the checkpoint", missing),
        _line("in the checkpoint, not in the model", extra),
        _line("of another shape", reshaped),
    ]
    return "\n".join(line for line in lines if line)


def restored_shapes(saver: Any, graph: Any) -> Mapping[str, tuple[int, ...] | None]:
    """Return what a saver's restore op asks a checkpoint for: name -> shape, None where the graph does not say."""
    shapes: dict[str, tuple[int, ...] | None] = {}
    for op in reached([graph.get_operation_by_name(saver.saver_def.restore_op_name)]):
        if op.type != "RestoreV2":
            continue
        names = tf.get_static_value(op.inputs[1])
        slices = tf.get_static_value(op.inputs[2])
        if names is None:
            continue
        for position, raw in enumerate(names.reshape(-1)):
            whole = slices is not None and not slices.reshape(-1)[position]
            shapes[raw.decode()] = _target_shape(op.outputs[position]) if whole else None
    return shapes


def _target_shape(tensor: Any) -> tuple[int, ...] | None:
    for consumer in tensor.consumers():
        if consumer.type in _PASSING:
            found = _target_shape(consumer.outputs[0])
            if found is not None:
                return found
        elif consumer.type in ("Assign", "AssignVariableOp"):
            target = consumer.inputs[0]
            if consumer.type == "Assign":
                shape = target.shape
            elif target.op.type == "VarHandleOp":
                shape = tf.TensorShape(target.op.get_attr("shape"))
            else:
                continue
            return tuple(shape.as_list()) if shape.is_fully_defined() else None
    return None


def _line(what: str, names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"  {what} ({len(names)}): {', '.join(names[:MAX_NAMES])}{more}"

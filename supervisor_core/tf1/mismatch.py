"""Why a checkpoint does not fit a model: missing, extra and reshaped variables, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from supervisor_core.checkpoint import bundle
from supervisor_core.errors import DamagedCheckpointError

MAX_NAMES = 20
"""How many names of a kind are listed."""

_PASSING = ("Identity", "Reshape", "Cast")


def explain_mismatch(saver: Any, graph: Any, path: str) -> str:
    """Return what differs between what a saver restores and what a checkpoint holds, one line for each kind.

    Empty when nothing differs, or the checkpoint cannot be read.
    """
    try:
        entries = bundle.read_index(path).entries
    except DamagedCheckpointError:  # then its damage is the story, and told elsewhere
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
    """Return what a saver's restore op asks a checkpoint for: name -> shape, None where the graph does not tell."""
    shapes: dict[str, tuple[int, ...] | None] = {}
    for op in _restore_ops(graph.get_operation_by_name(saver.saver_def.restore_op_name)):
        names = tf.get_static_value(op.inputs[1])
        slices = tf.get_static_value(op.inputs[2])
        if names is None:
            continue
        for position, raw in enumerate(names.reshape(-1)):
            whole = slices is not None and not slices.reshape(-1)[position]
            shapes[raw.decode()] = _target_shape(op.outputs[position]) if whole else None
    return shapes


def _restore_ops(restore_op: Any) -> Iterator[Any]:
    seen, pending = {restore_op}, [restore_op]
    while pending:
        op = pending.pop()
        if op.type == "RestoreV2":
            yield op
            continue
        sources = {tensor.op for tensor in op.inputs} | set(op.control_inputs)
        pending.extend(sources - seen)
        seen |= sources


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

"""Checkpoints of the older format (``SaverDef.V1``): each file is one table, which holds names and values alike.

Source: tensorflow's ``core/util/tensor_slice_writer.cc`` and ``saved_tensor_slice.proto``. Key "" holds the names,
types and shapes; every other key is a slice: byte 0, the tensor's name (with 00 as 00 ff, ff as ff 00), 00 01, extent.
An unsharded one is a file of the prefix's very name. A sharded one is recorded with question marks,
``model.ckpt-5-?????-of-00002``, for ``model.ckpt-5-00000-of-00002`` and its fellows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from supervisor_core.base.errors import DamagedCheckpointError
from supervisor_core.checkpoint.schema import message_class
from supervisor_core.checkpoint.table import Meter, Table
from supervisor_core.storage.filesystem import Filesystem, Reader

_MAX_VALUE_BYTES = 4 << 20
"""Limit of an entry with the names and types of all tensors: some 40,000."""

SHARDED = re.compile(r"-\?{5}-of-(\d{5})$")
"""The end of the path of a sharded checkpoint of this format."""


Open = Callable[[str], Reader]
"""Opens a file for reading."""


def files_of(filesystem: Filesystem, prefix: str) -> tuple[str, ...]:
    """Return the files of a prefix in this format; empty for a prefix of the newer one."""
    sharded = SHARDED.search(prefix)
    if sharded:
        count = sharded.group(1)
        return tuple(f"{prefix[: sharded.start()]}-{shard:05d}-of-{count}" for shard in range(int(count)))
    if filesystem.is_file(prefix) and not filesystem.is_file(prefix + ".index"):
        return (prefix,)
    return ()


def first_file(filesystem: Filesystem, prefix: str) -> str | None:
    """Return the first of these files if it exists; at most two requests, whatever the number of shards."""
    sharded = SHARDED.search(prefix)
    if sharded:
        first = f"{prefix[: sharded.start()]}-00000-of-{sharded.group(1)}"
        return first if filesystem.is_file(first) else None
    return next(iter(files_of(filesystem, prefix)), None)


def verify(
    open_file: Open,
    paths: tuple[str, ...],
    step_name: str,
    *,
    data: bool,
    on_progress: Callable[[int, int], None] | None,
) -> tuple[int, int, int | None]:
    """Check every block of every file; return bytes, tensors and the step.

    Raises:
        DamagedCheckpointError: for the first damage found.
        OSError: if a file cannot be read.
    """
    meter = Meter(on_progress)
    names: set[str] = set()
    for path in paths:
        with open_file(path) as reader:
            meter.total += reader.size
            table = Table(reader, path)
            names.update(_names(table, path))
            if data:
                table.check(meter.add)
    try:
        step = _integer(open_file, paths, step_name) if step_name in names else None
    except KeyError:
        file = os.path.basename(paths[0])
        raise DamagedCheckpointError(f"{file}: it lists the tensor {step_name!r} and does not hold it") from None
    return meter.total, len(names), step


def _integer(open_file: Open, paths: tuple[str, ...], name: str) -> int | None:
    """Return an integer tensor of one element, None if it is something else; KeyError if no file has it."""
    escaped = name.encode().replace(b"\xff", b"\xff\x00").replace(b"\x00", b"\x00\xff")
    for path in paths:
        with open_file(path) as reader:
            value = Table(reader, path).find(b"\x00" + escaped + b"\x00\x01")
        if value is not None:
            tensor = _parse(value, path).data.data
            values = (*tensor.int64_val, *tensor.int_val)
            return int(values[0]) if len(values) == 1 else None
    raise KeyError(name)


def _names(table: Table, path: str) -> list[str]:
    key, value = next(table.entries(), (None, b""))
    if key != b"":
        raise DamagedCheckpointError(f"{os.path.basename(path)}: it holds no list of tensors")
    return [tensor.name for tensor in _parse(value, path).meta.tensor]


def _parse(value: bytes, path: str) -> Any:
    if len(value) > _MAX_VALUE_BYTES:
        raise DamagedCheckpointError(f"{os.path.basename(path)}: an entry has {len(value):,} bytes")
    try:
        return message_class("SavedTensorSlices").FromString(value)
    except Exception as error:  # protobuf's DecodeError, from whichever implementation is in use
        raise DamagedCheckpointError(f"{os.path.basename(path)}: an entry cannot be read: {error}") from error

"""The messages inside checkpoint files, as protobuf classes of our own.

Only the fields that are read or written here, under names of our own, in a descriptor pool of our own: tensorflow puts
messages of the original names into the default pool, and a process may hold both. Sources (tensorflow/tensorflow):
``python/training/checkpoint_state.proto``, ``core/protobuf/tensor_bundle.proto``. Enums are read as numbers.
"""

from __future__ import annotations

import functools
from typing import Any, cast

_DOUBLE, _INT64, _INT32, _FIXED32, _BOOL, _STRING, _MESSAGE, _BYTES = 1, 3, 5, 7, 8, 9, 11, 12

_MESSAGES: dict[str, tuple[tuple[str, int, int | str, bool], ...]] = {
    # message: (field, number, type or message, repeated)
    "CheckpointState": (
        ("model_checkpoint_path", 1, _STRING, False),
        ("all_model_checkpoint_paths", 2, _STRING, True),
        ("all_model_checkpoint_timestamps", 3, _DOUBLE, True),
        ("last_preserved_timestamp", 4, _DOUBLE, False),
    ),
    "Dim": (("size", 1, _INT64, False),),
    "Shape": (("dim", 2, "Dim", True), ("unknown_rank", 3, _BOOL, False)),
    "BundleHeader": (("num_shards", 1, _INT32, False), ("endianness", 2, _INT32, False)),
    "BundleEntry": (
        ("dtype", 1, _INT32, False),
        ("shape", 2, "Shape", False),
        ("shard_id", 3, _INT32, False),
        ("offset", 4, _INT64, False),
        ("size", 5, _INT64, False),
        ("crc32c", 6, _FIXED32, False),
        ("slices", 7, _BYTES, True),
    ),
}


@functools.cache
def message_class(name: str) -> Any:
    """Return the class of one message, by its name above; protobuf is loaded at the first call.

    Example:
        >>> message_class("Dim")(size=3).SerializeToString()
        b'\\x08\\x03'
    """
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"supervisor_core.checkpoint.{name}"))


@functools.cache
def _pool() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool

    package = "supervisor_core.checkpoint"
    file = descriptor_pb2.FileDescriptorProto(name="supervisor_core/checkpoint.proto", package=package, syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    for message, members in _MESSAGES.items():
        descriptor = file.message_type.add(name=message)
        for name, number, kind, repeated in members:
            item = descriptor.field.add(name=name, number=number)
            item.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
            if isinstance(kind, str):
                item.type, item.type_name = field.TYPE_MESSAGE, f".{package}.{kind}"
            else:
                item.type = cast(Any, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool

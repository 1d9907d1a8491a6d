"""Writes checkpoints of both formats, byte by byte, so that tests without tensorflow have some to damage."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import google_crc32c

from supervisor_core.checkpoint.schema import message_class

MAGIC = bytes.fromhex("57fb808b247547db")
NUMBERS = {"float32": 1, "int32": 3, "uint8": 4, "string": 7, "int64": 9, "variant": 21}


@dataclass(frozen=True)
class Tensor:
    """A tensor to write: its bytes as they lie in the file, or strings or variants to be laid out."""

    dtype: str
    shape: tuple[int, ...]
    content: bytes | Sequence[bytes]
    shard: int = 0


def floats(count: int, seed: int = 1) -> Tensor:
    """Return ``count`` numbers, others for each seed."""
    values = [(index * 2654435761 * seed) % 1000003 / 7.0 for index in range(count)]
    return Tensor("float32", (count,), struct.pack(f"<{count}f", *values))


def step(value: int, dtype: str = "int64") -> Tensor:
    """Return a step, as a scalar."""
    return Tensor(dtype, (), struct.pack("<q" if dtype == "int64" else "<i", value))


def strings(*values: bytes) -> Tensor:
    """Return a tensor of strings."""
    return Tensor("string", (len(values),), values)


def variants(*values: bytes) -> Tensor:
    """Return a tensor of variants, each by its serialized bytes."""
    return Tensor("variant", (len(values),), values)


def mask(crc: int) -> int:
    """Return a CRC32C as files hold it."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value: int) -> bytes:
    """Return a number, seven bits to a byte."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def lay_out(tensor: Tensor, order: str = "<") -> tuple[bytes, int]:
    """Return a tensor's bytes and their CRC32C, as the index has it before masking."""
    if isinstance(tensor.content, bytes):
        return tensor.content, google_crc32c.value(tensor.content)
    if tensor.dtype == "string":
        crc = google_crc32c.value(b"".join(struct.pack(f"{order}I", len(item)) for item in tensor.content))
        check = struct.pack(f"{order}I", mask(crc))
        body = b"".join(tensor.content)
        lengths = b"".join(varint(len(item)) for item in tensor.content)
        return lengths + check + body, google_crc32c.extend(google_crc32c.extend(crc, check), body)
    data, crc = b"", 0
    for item in tensor.content:
        crc = google_crc32c.extend(google_crc32c.extend(crc, struct.pack(f"{order}Q", len(item))), item)
        check = struct.pack(f"{order}I", mask(crc))
        crc = google_crc32c.extend(crc, check)
        data += varint(len(item)) + item + check
    return data, crc


def write_table(path: Path, items: Iterable[tuple[bytes, bytes]], block_bytes: int = 200, compression: int = 0) -> None:
    """Write a table of sorted items with small blocks, keys prefix-compressed and restarted every 4 entries."""
    out = bytearray()

    def put(block: bytes) -> bytes:
        handle = varint(len(out)) + varint(len(block))
        sealed = block + bytes([compression])
        out.extend(sealed + struct.pack("<I", mask(google_crc32c.value(sealed))))
        return handle

    index = []
    pending: list[tuple[bytes, bytes]] = []
    for key, value in sorted(items):
        pending.append((key, value))
        if sum(len(item[0]) + len(item[1]) for item in pending) >= block_bytes:
            index.append((pending[-1][0] + b"\0", put(_block(pending))))
            pending = []
    if pending:
        index.append((pending[-1][0] + b"\0", put(_block(pending))))
    metaindex = put(_block([]))
    footer = metaindex + put(_block(index))
    path.write_bytes(bytes(out) + footer.ljust(40, b"\0") + MAGIC)


def _block(items: Sequence[tuple[bytes, bytes]]) -> bytes:
    out, restarts, before = b"", [], b""
    for number, (key, value) in enumerate(items):
        shared = 0
        if number % 4 == 0:
            restarts.append(len(out))
        else:
            while shared < min(len(before), len(key)) and before[shared] == key[shared]:
                shared += 1
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    restarts = restarts or [0]
    return out + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def write_bundle(
    prefix: Path | str,
    tensors: Mapping[str, Tensor],
    *,
    big_endian: bool = False,
    padding: int = 0,
    compression: int = 0,
) -> None:
    """Write a checkpoint's index and data files."""
    num_shards = 1 + max((tensor.shard for tensor in tensors.values()), default=0)
    shards = [bytearray() for _ in range(num_shards)]
    header = message_class("BundleHeader")(num_shards=num_shards, endianness=int(big_endian))
    items = [(b"", header.SerializeToString())]
    for name, tensor in tensors.items():
        data, crc = lay_out(tensor, ">" if big_endian else "<")
        entry = message_class("BundleEntry")(
            dtype=NUMBERS[tensor.dtype],
            shard_id=tensor.shard,
            offset=len(shards[tensor.shard]),
            size=len(data),
            crc32c=mask(crc),
        )
        for size in tensor.shape:
            entry.shape.dim.add(size=size)
        shards[tensor.shard] += data + bytes(padding)
        items.append((name.encode(), entry.SerializeToString()))
    prefix = Path(prefix)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(shards):
        Path(f"{prefix}.data-{number:05d}-of-{num_shards:05d}").write_bytes(data)
    write_table(Path(f"{prefix}.index"), items, compression=compression)


def write_run(directory: Path, steps: Iterable[int], *, basename: str = "model.ckpt", state: bool = True) -> list[str]:
    """Write one checkpoint per step, and the state file that names them, paths relative; return the prefixes."""
    names = [f"{basename}-{value}" for value in steps]
    for name, value in zip(names, steps, strict=True):
        write_bundle(directory / name, {"w": floats(300, seed=value + 1), "global_step": step(value)})
    if state:
        lines = [f'model_checkpoint_path: "{names[-1]}"', *(f'all_model_checkpoint_paths: "{name}"' for name in names)]
        (directory / "checkpoint").write_text("\n".join(lines) + "\n")
    return [str(directory / name) for name in names]

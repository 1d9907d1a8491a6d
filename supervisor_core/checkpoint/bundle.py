"""Reading and verifying checkpoints without tensorflow.

A checkpoint is named by its prefix, ``/logs/run/model.ckpt-1200``. Its files (a "tensor bundle", source:
tensorflow's ``core/util/tensor_bundle``):

    <prefix>.index                  a `supervisor_core.checkpoint.table.SortedTable`: key "" holds the header (how many
                                    data files, byte order), every other key a tensor's name with its type, shape,
                                    data file, offset, size and masked CRC32C
    <prefix>.data-00000-of-00001    the tensors' bytes, one after the other:

        numbers   the values, in the byte order that the header names; CRC32C of those bytes
        string    a varint for each string's length, 4 bytes, then the strings. CRC32C of the lengths as uint32 (uint64
                  from 2**32), of the 4 bytes, and of the strings; the 4 bytes are the masked CRC32C up to there
        variant   for each: varint length, that many bytes, 4 bytes. CRC32C of the length as uint64, the bytes, and the
                  4 bytes, running on from one to the next; the 4 bytes are the masked CRC32C up to there

TensorFlow's older format (``SaverDef.V1``: files without ``.index``) is not read.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from supervisor_core.base import checksum
from supervisor_core.base.errors import DamagedCheckpointError, UnreadableCheckpointError
from supervisor_core.base.wire import read_varint
from supervisor_core.checkpoint.blocks import IN_THREAD, BlockWriter
from supervisor_core.checkpoint.manifest import Holes, Manifest
from supervisor_core.checkpoint.schema import message_class
from supervisor_core.checkpoint.table import Meter, SortedTable, crc_of, unmask
from supervisor_core.storage.filesystem import Filesystem, Reader
from supervisor_core.storage.local import filesystem_for
from supervisor_core.storage.opening import is_wrong_kind

GLOBAL_STEP = "global_step"
"""The name under which tensorflow's savers store the step."""

_INTEGERS = (("int32", 4), ("int64", 8))
_MAX_ENTRY_BYTES = 1 << 20
"""Limit of one tensor's entry in the index: room for its name in 50,000 slices."""

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all."""


@dataclass(frozen=True)
class TensorEntry:
    """One tensor, as the index describes it. ``crc`` is unmasked; a ``sliced`` tensor's bytes are in other entries."""

    dtype: str
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int
    sliced: bool = False


@dataclass(frozen=True)
class BundleIndex:
    """A decoded index file. Names that are not text (slices of partitioned variables) show their bytes escaped."""

    num_shards: int
    big_endian: bool
    entries: Mapping[str, TensorEntry]
    size_bytes: int
    """Of the index file itself."""


@dataclass(frozen=True)
class VerifiedCheckpoint:
    """What a checkpoint holds whose files passed `verify`."""

    bytes: int
    """Size of all its files that a restore reads."""
    tensors: int | None
    """Number of its tensors; None where the format does not say."""
    step: int | None
    """The step stored inside (which need not be the one in the name); None where no integer of that name is."""
    manifest: Manifest | None = None
    """Of a sealed checkpoint."""


def data_path(prefix: str, shard: int, num_shards: int) -> str:
    """Return the name of one data file.

    Example:
        >>> data_path("/logs/model.ckpt-5", 0, 2)
        '/logs/model.ckpt-5.data-00000-of-00002'
    """
    return f"{prefix}.data-{shard:05d}-of-{num_shards:05d}"


def read_index(prefix: str | os.PathLike[str]) -> BundleIndex:
    """Read a checkpoint's index file, every checksum in it checked.

    Raises:
        DamagedCheckpointError: if it is missing, cannot be read, or is damaged; says where.
    """
    filesystem, name = filesystem_for(prefix)
    with _without_linked_content(_Opener(filesystem), name) as opener:
        return _read_index(opener, name)


def verify(
    prefix: str | os.PathLike[str],
    *,
    data: bool = True,
    step_name: str = GLOBAL_STEP,
    on_progress: Progress | None = None,
    filesystem: Filesystem | None = None,
    blocks: BlockWriter = IN_THREAD,
) -> VerifiedCheckpoint:
    """Read a whole checkpoint and check every checksum in it.

    Reads numbers 256 KiB at a time. Bytes that no tensor uses (padding, a longer data file) are not read. Where a file
    is a symbolic link, an error says nothing of the content: anybody with access to a logdir may put a link there to a
    file that only the reader may read.

    Args:
        prefix: the checkpoint's path without ``.index``.
        data: False checks the index, and that the data files exist and are long enough, without reading them.
        step_name: the tensor that holds the global step.
        on_progress: called with (bytes done, bytes in all) while data is read.
        filesystem: reads the files. Default: by the path's scheme.
        blocks: what has written it, and may read it back.

    Raises:
        DamagedCheckpointError: for the first damage found; names file, tensor and bytes.
        UnreadableCheckpointError: where the file system refuses a file that may be whole.
    """
    filesystem, name = filesystem_for(prefix) if filesystem is None else (filesystem, os.fspath(prefix))
    with _without_linked_content(_Opener(filesystem), name) as opener:
        index = _read_index(opener, name)
        with BundleShards(opener, name, index) as shards:
            size = index.size_bytes + shards.check_sizes()
            if data:
                shards.check_tensors(on_progress, blocks)
            step = index.entries.get(step_name)
            stored_step = None if step is None else shards.integer(step_name, step)
            return VerifiedCheckpoint(size, sum(not name.startswith("\0") for name in index.entries), stored_step)


@contextmanager
def opened(
    prefix: str | os.PathLike[str], filesystem: Filesystem | None = None
) -> Iterator[tuple[BundleIndex, BundleShards]]:
    """Open a checkpoint to read its tensors; no file of it may be a symbolic link.

    Args:
        prefix: the checkpoint's path without ``.index``.
        filesystem: reads the files. Default: by the path's scheme.

    Raises:
        DamagedCheckpointError: for the first damage found; names file, tensor and bytes.
        UnreadableCheckpointError: if the file system refuses a file, or it is a link.
    """
    filesystem, name = filesystem_for(prefix) if filesystem is None else (filesystem, os.fspath(prefix))
    with _without_linked_content(_Opener(filesystem), name) as opener:
        index = _read_index(opener, name)
        with BundleShards(opener, name, index) as shards:
            shards.check_sizes()
            if opener.linked is not None:
                raise UnreadableCheckpointError(
                    f"{opener.linked} is a symbolic link: the values of what it leads to are not read. Copy the file."
                )
            yield index, shards


class _Opener:
    """Opens files, and remembers whether one was a symbolic link."""

    def __init__(self, filesystem: Filesystem) -> None:
        self._filesystem = filesystem
        self.linked: str | None = None

    def open(self, path: str) -> Reader:
        reader = self._filesystem.open(path)
        self.linked = os.path.basename(path) if reader.is_linked else self.linked
        return reader


class LinkedCheckpointError(DamagedCheckpointError):
    """A checkpoint does not verify, and a file of it is a symbolic link: of its content nothing is said."""


@contextmanager
def _without_linked_content(opener: _Opener, prefix: str) -> Iterator[_Opener]:
    try:
        yield opener
    except UnreadableCheckpointError:  # which has what the file system says
        raise
    except DamagedCheckpointError as error:
        if opener.linked is None:
            raise
        what = f"it does not verify; {opener.linked} is a symbolic link, of whose target no more is said"
        raise LinkedCheckpointError(f"{os.path.basename(prefix)}: {what}") from error.__cause__


@contextmanager
def _damage_of(path: str) -> Iterator[None]:
    """Turn an `OSError` into the error of a damaged or unreadable checkpoint, with the file's name."""
    file = os.path.basename(path)
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedCheckpointError(f"{file}: the file is missing") from error
    except OSError as error:
        kind = DamagedCheckpointError if is_wrong_kind(error) else UnreadableCheckpointError
        raise kind(f"{file}: it cannot be read: {error.strerror or error}") from error


def _read_index(opener: _Opener, prefix: str) -> BundleIndex:
    path = prefix + ".index"
    with _damage_of(path), opener.open(path) as reader:
        entries = dict(SortedTable(reader, path).entries())
        header_bytes = entries.pop(b"", None)
        if header_bytes is None:
            raise DamagedCheckpointError(f"{os.path.basename(path)}: it has no header")
        try:
            header = message_class("BundleHeader").FromString(header_bytes)
            tensors = {key.decode("utf-8", "backslashreplace"): _entry(value) for key, value in entries.items()}
        except Exception as error:  # protobuf's DecodeError, from whichever implementation is in use
            raise DamagedCheckpointError(f"{os.path.basename(path)}: an entry cannot be read: {error}") from error
        return BundleIndex(header.num_shards, header.endianness == 1, MappingProxyType(tensors), reader.size)


def _entry(data: bytes) -> TensorEntry:
    if len(data) > _MAX_ENTRY_BYTES:
        raise ValueError(f"it has {len(data):,} bytes")
    raw = message_class("BundleEntry").FromString(data)
    shape = tuple(dim.size for dim in raw.shape.dim)
    _expected_bytes("", shape)
    dtype, _ = _DTYPES.get(raw.dtype, (f"dtype{raw.dtype}", None))  # one that came later has a number only
    return TensorEntry(dtype, shape, raw.shard_id, raw.offset, raw.size, unmask(raw.crc32c), sliced=bool(raw.slices))


class BundleShards:
    """The data files of one checkpoint, opened when needed."""

    def __init__(self, opener: _Opener, prefix: str, index: BundleIndex) -> None:
        self._opener = opener
        self._prefix = prefix
        self._index = index
        self._order = ">" if index.big_endian else "<"
        self._readers: dict[int, Reader] = {}
        self._holes = Holes()
        self._stack = ExitStack()

    def __enter__(self) -> BundleShards:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def check_sizes(self) -> int:
        """Check that each tensor lies within its data file, and all of them fit; return how much of those is used."""
        ends: dict[int, tuple[int, str]] = {}
        totals: dict[int, int] = {}
        for name, entry in self.stored():
            wanted = _expected_bytes(entry.dtype, entry.shape)
            if entry.offset < 0 or entry.size < 0 or (wanted is not None and entry.size != wanted):
                file = os.path.basename(self._prefix) + ".index"
                raise DamagedCheckpointError(
                    f"{file}: tensor {name!r} is said to have {entry.size:,} bytes at {entry.offset:,}; "
                    f"{entry.dtype}{list(entry.shape)} has {wanted}"
                )
            ends[entry.shard] = max(ends.get(entry.shard, (0, "")), (entry.offset + entry.size, name))
            totals[entry.shard] = totals.get(entry.shard, 0) + entry.size
        for shard, (end, name) in sorted(ends.items()):
            size = self._reader(shard).size
            if size < end:
                raise DamagedCheckpointError(
                    f"{self._file(shard)}: it ends at byte {size:,}, {end - size:,} bytes before the end of {name!r}"
                )
            if totals[shard] > size:  # some share their bytes, which would be read once for each of them
                raise DamagedCheckpointError(
                    f"{self._file(shard)}: it has {size:,} bytes, and its tensors {totals[shard]:,} together"
                )
        return sum(end for end, _ in ends.values())

    def check_tensors(self, on_progress: Progress | None, blocks: BlockWriter = IN_THREAD) -> None:
        """Compare each tensor's checksum with the index."""
        stored = sorted(self.stored(), key=lambda item: (item[1].shard, item[1].offset))
        if self._are_as_written(stored, blocks):
            return
        meter = Meter(on_progress, sum(entry.size for _, entry in stored))
        for name, entry in stored:
            reader = self._reader(entry.shard)
            try:
                with _damage_of(self._path(entry.shard)):
                    crc = _checksum(reader, entry, self._order, meter.add)
            except (EOFError, ValueError) as error:
                raise DamagedCheckpointError(f"{self._where(name, entry)}: {error}") from error
            self._compare(name, entry, crc)

    def _are_as_written(self, stored: list[tuple[str, TensorEntry]], blocks: BlockWriter) -> bool:
        """Return whether the saver process finds nothing wrong; else each tensor is looked at here."""
        entries = [entry for _, entry in stored]
        if len({entry.shard for entry in entries}) != 1 or any(item.dtype in ("string", "variant") for item in entries):
            return False
        descriptor = self._reader(entries[0].shard).descriptor
        if descriptor is None:
            return False
        crcs = blocks.checksums(descriptor, [(entry.offset, entry.size) for entry in entries])
        return crcs == [entry.crc for entry in entries]

    def integer(self, name: str, entry: TensorEntry) -> int | None:
        """Return an integer tensor of one element; None if it is something else."""
        if entry.sliced or (entry.dtype, entry.size) not in _INTEGERS or math.prod(entry.shape) != 1:
            return None
        with _damage_of(self._path(entry.shard)):
            data = self._reader(entry.shard).read_at(entry.offset, entry.size)
        if len(data) < entry.size:
            raise DamagedCheckpointError(
                f"{self._where(name, entry)}: the file ends {entry.size - len(data)} bytes early"
            )
        self._compare(name, entry, checksum.value(data))
        return int.from_bytes(data, "big" if self._index.big_endian else "little", signed=True)

    def blocks(self, name: str, entry: TensorEntry, most: int) -> Iterator[bytes]:
        """Yield a tensor's bytes, at most this many at a time."""
        end = entry.offset + entry.size
        for offset in range(entry.offset, end, most):
            with _damage_of(self._path(entry.shard)):
                data = self._reader(entry.shard).read_at(offset, min(most, end - offset))
            if len(data) < min(most, end - offset):
                raise DamagedCheckpointError(f"{self._where(name, entry)}: the file ends early")
            yield data

    def stored(self) -> Iterator[tuple[str, TensorEntry]]:
        """Return the tensors whose bytes are in the data files."""
        return ((name, entry) for name, entry in self._index.entries.items() if not entry.sliced)

    def _path(self, shard: int) -> str:
        return data_path(self._prefix, shard, self._index.num_shards)

    def _file(self, shard: int) -> str:
        return os.path.basename(self._path(shard))

    def _reader(self, shard: int) -> Reader:
        if shard not in self._readers:
            with _damage_of(self._path(shard)):
                reader = self._stack.enter_context(self._opener.open(self._path(shard)))
            problem = None if reader.status is None else self._holes.problem(reader.status)
            if problem is not None:
                raise DamagedCheckpointError(f"{self._file(shard)}: {problem}")
            self._readers[shard] = reader
        return self._readers[shard]

    def _compare(self, name: str, entry: TensorEntry, crc: int) -> None:
        if crc != entry.crc:
            detail = f"(CRC32C {crc:08x}, expected {entry.crc:08x})"
            raise DamagedCheckpointError(f"{self._where(name, entry)} was altered {detail}")

    def _where(self, name: str, entry: TensorEntry) -> str:
        return f"{self._file(entry.shard)}: tensor {name!r} (bytes {entry.offset:,} to {entry.offset + entry.size:,})"


_DTYPES: dict[int, tuple[str, int | None]] = {
    1: ("float32", 4),
    2: ("float64", 8),
    3: ("int32", 4),
    4: ("uint8", 1),
    5: ("int16", 2),
    6: ("int8", 1),
    7: ("string", None),
    8: ("complex64", 8),
    9: ("int64", 8),
    10: ("bool", 1),
    11: ("qint8", 1),
    12: ("quint8", 1),
    13: ("qint32", 4),
    14: ("bfloat16", 2),
    15: ("qint16", 2),
    16: ("quint16", 2),
    17: ("uint16", 2),
    18: ("complex128", 16),
    19: ("float16", 2),
    20: ("resource", None),
    21: ("variant", None),
    22: ("uint32", 4),
    23: ("uint64", 8),
    24: ("float8_e5m2", 1),
    25: ("float8_e4m3fn", 1),
}
"""tensorflow's numbers for types -> name and bytes per element (None: it varies)."""

_MAX_DIMENSIONS = 254
"""The limit of tensorflow's shapes."""
_MAX_ELEMENTS = 1 << 48

_WIDTHS = dict(_DTYPES.values())


def _expected_bytes(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Return how many bytes a tensor must have; None where that varies.

    Raises:
        ValueError: if there can be no tensor of that shape.
    """
    if len(shape) > _MAX_DIMENSIONS or any(not 0 <= size <= _MAX_ELEMENTS for size in shape):
        raise ValueError(f"a shape of {len(shape):,} dimensions, or of one that is negative or too large")
    elements = 1
    for size in shape:
        elements *= size
        if elements > _MAX_ELEMENTS:
            raise ValueError(f"a shape of more than {_MAX_ELEMENTS:,} elements")
    width = _WIDTHS.get(dtype)
    return None if width is None else width * elements


def _checksum(reader: Reader, entry: TensorEntry, order: str, done: Callable[[int], None]) -> int:
    """Return the (unmasked) CRC32C of one tensor's bytes; texts and variants are in memory as a whole meanwhile.

    Args:
        reader: the data file.
        order: the byte order, as `struct` writes it.
        done: called with the number of bytes that were read.

    Raises:
        EOFError: if the file ends before the tensor does.
        ValueError: if the bytes cannot be a tensor of that type.
    """
    if entry.dtype not in ("string", "variant"):
        return crc_of(reader, entry.offset, entry.size, done=done)
    data = reader.read_at(entry.offset, entry.size)
    done(len(data))
    if len(data) < entry.size:
        raise EOFError(f"the file ends {entry.size - len(data):,} bytes too early")
    sum_up = _string_checksum if entry.dtype == "string" else _variant_checksum
    return sum_up(data, math.prod(entry.shape), order)


def _string_checksum(data: bytes, count: int, order: str) -> int:
    lengths, position = bytearray(), 0
    for _ in range(count if data else 0):
        length, position = read_varint(data, position, len(data))
        lengths += struct.pack(f"{order}{'I' if length < 1 << 32 else 'Q'}", length)
    crc: int = checksum.extend(checksum.value(bytes(lengths)), data[position:])
    return crc


def _variant_checksum(data: bytes, count: int, order: str) -> int:
    crc = position = 0
    for _ in range(count):
        length, position = read_varint(data, position, len(data))
        end = position + length + 4
        if end > len(data):
            raise ValueError(f"an element is said to have {length:,} bytes, and {len(data) - position:,} are left")
        crc = checksum.extend(checksum.extend(crc, struct.pack(f"{order}Q", length)), data[position:end])
        position = end
    return crc

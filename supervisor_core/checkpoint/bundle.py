"""Reading and verifying checkpoints without tensorflow.

A checkpoint is named by its prefix, ``/logs/run/model.ckpt-1200``. Its files (a "tensor bundle", source:
tensorflow's ``core/util/tensor_bundle``):

    <prefix>.index                  a `supervisor_core.checkpoint.table.Table`: key "" holds the header (how many
                                    data files, byte order), every other key a tensor's name with its type, shape,
                                    data file, offset, size and masked CRC32C
    <prefix>.data-00000-of-00001    the tensors' bytes, see `supervisor_core.checkpoint.tensors`

A prefix without an ``.index`` may be a checkpoint of the older, single-file format (`legacy`).
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from supervisor_core.checkpoint import legacy
from supervisor_core.checkpoint.filesystem import Filesystem, Reader, filesystem_for
from supervisor_core.checkpoint.schema import message_class
from supervisor_core.checkpoint.table import Table, extend, unmask
from supervisor_core.checkpoint.tensors import checksum, dtype_name, expected_bytes
from supervisor_core.errors import DamagedCheckpointError, UnreadableCheckpointError

GLOBAL_STEP = "global_step"
"""The name under which tensorflow's savers store the step."""

_INTEGERS = (("int32", 4), ("int64", 8))
_WRONG_FILES = (errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ELOOP, errno.ENAMETOOLONG)
"""What the operating system says of something that is no file, whoever asks, however often."""

_MAX_ENTRY_BYTES = 1 << 20
"""What the index says of one tensor is no longer: room for its name in 50,000 slices."""

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all."""


@dataclass(frozen=True)
class Entry:
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
    """What an index file says. Names that are not text (slices of partitioned variables) show their bytes escaped."""

    num_shards: int
    big_endian: bool
    entries: Mapping[str, Entry]
    size_bytes: int
    """Of the index file itself."""


@dataclass(frozen=True)
class VerifiedCheckpoint:
    """A checkpoint whose files are whole: what they hold."""

    bytes: int
    """Size of all its files that a restore reads."""
    tensors: int
    step: int | None
    """The step stored inside (which need not be the one in the name); None where no integer of that name is."""


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
    return _read_index(filesystem, name)


def verify(
    prefix: str | os.PathLike[str],
    *,
    data: bool = True,
    step_name: str = GLOBAL_STEP,
    on_progress: Progress | None = None,
    filesystem: Filesystem | None = None,
) -> VerifiedCheckpoint:
    """Read a whole checkpoint back and check every checksum in it.

    Reads at most 256 KiB at a time. Bytes that no tensor uses (padding, a longer data file) are not looked at.

    Args:
        prefix: the checkpoint's path without ``.index``.
        data: False checks the index, and that the data files are there and long enough, without reading them.
        step_name: the tensor that holds the global step.
        on_progress: called with (bytes done, bytes in all) while data is read.
        filesystem: what to read it with. Default: what the path's scheme asks for.

    Raises:
        DamagedCheckpointError: for the first damage found; says in which file, what and where.
        UnreadableCheckpointError: where the file system refuses a file that may be whole.
    """
    filesystem, name = filesystem_for(prefix) if filesystem is None else (filesystem, os.fspath(prefix))
    with _damage_of(name):
        tables = legacy.files_of(filesystem, name)
        if tables:
            return VerifiedCheckpoint(*legacy.verify(filesystem, tables, step_name, data=data, on_progress=on_progress))
    index = _read_index(filesystem, name)
    with _Shards(filesystem, name, index) as shards:
        size = index.size_bytes + shards.check_sizes()
        if data:
            shards.check_tensors(on_progress)
        step = index.entries.get(step_name)
        stored_step = None if step is None else shards.integer(step_name, step)
        return VerifiedCheckpoint(size, sum(not name.startswith("\0") for name in index.entries), stored_step)


def read_scalar(prefix: str | os.PathLike[str], name: str = GLOBAL_STEP) -> int:
    """Return an int32 or int64 tensor of one element, such as the global step.

    Raises:
        KeyError: if the checkpoint has no tensor of that name.
        ValueError: if it is not one integer.
        DamagedCheckpointError: if it cannot be read; says why.
    """
    filesystem, path = filesystem_for(prefix)
    with _damage_of(path):
        tables = legacy.files_of(filesystem, path)
        value = legacy.read_scalar(filesystem, tables, name) if tables else None
    if not tables:
        index = _read_index(filesystem, path)
        with _Shards(filesystem, path, index) as shards:
            value = shards.integer(name, index.entries[name])
    if value is None:
        raise ValueError(f"The tensor {name!r} of {path} is not one integer.")
    return value


@contextmanager
def _damage_of(path: str) -> Iterator[None]:
    """Say of which file an `OSError` is, in the words of a damaged checkpoint."""
    file = os.path.basename(path)
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedCheckpointError(f"{file}: the file is missing") from error
    except OSError as error:
        kind = DamagedCheckpointError if error.errno in _WRONG_FILES else UnreadableCheckpointError
        raise kind(f"{file}: it cannot be read: {error.strerror or error}") from error


def _read_index(filesystem: Filesystem, prefix: str) -> BundleIndex:
    path = prefix + ".index"
    with _damage_of(path), filesystem.open(path) as reader:
        entries = dict(Table(reader, path).entries())
        header_bytes = entries.pop(b"", None)
        if header_bytes is None:
            raise DamagedCheckpointError(f"{os.path.basename(path)}: it has no header")
        try:
            header = message_class("BundleHeader").FromString(header_bytes)
            tensors = {_text(key): _entry(value) for key, value in entries.items()}
        except Exception as error:  # protobuf's DecodeError, from whichever implementation is in use
            raise DamagedCheckpointError(f"{os.path.basename(path)}: an entry cannot be read: {error}") from error
        return BundleIndex(header.num_shards, header.endianness == 1, MappingProxyType(tensors), reader.size)


def _text(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")


def _entry(data: bytes) -> Entry:
    if len(data) > _MAX_ENTRY_BYTES:
        raise ValueError(f"it has {len(data):,} bytes")
    raw = message_class("BundleEntry").FromString(data)
    shape = tuple(dim.size for dim in raw.shape.dim)
    expected_bytes("", shape)
    return Entry(
        dtype_name(raw.dtype), shape, raw.shard_id, raw.offset, raw.size, unmask(raw.crc32c), sliced=bool(raw.slices)
    )


class _Shards:
    """The data files of one checkpoint, opened when needed."""

    def __init__(self, filesystem: Filesystem, prefix: str, index: BundleIndex) -> None:
        self._filesystem = filesystem
        self._prefix = prefix
        self._index = index
        self._readers: dict[int, Reader] = {}
        self._stack = ExitStack()

    def __enter__(self) -> _Shards:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def check_sizes(self) -> int:
        """Check that each tensor lies within its data file, and all of them fit; return the size of those files."""
        ends: dict[int, tuple[int, str]] = {}
        totals: dict[int, int] = {}
        for name, entry in self._stored():
            wanted = expected_bytes(entry.dtype, entry.shape)
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
        return sum(self._reader(shard).size for shard in ends)

    def check_tensors(self, on_progress: Progress | None) -> None:
        """Compare each tensor's checksum with the index."""
        stored = sorted(self._stored(), key=lambda item: (item[1].shard, item[1].offset))
        total = sum(entry.size for _, entry in stored)
        done = 0

        def add(count: int) -> None:
            nonlocal done
            done += count
            if on_progress is not None:
                on_progress(done, total)

        for name, entry in stored:
            self._check(name, entry, add)

    def integer(self, name: str, entry: Entry) -> int | None:
        """Return an integer tensor of one element; None if it is something else."""
        if entry.sliced or (entry.dtype, entry.size) not in _INTEGERS or math.prod(entry.shape) != 1:
            return None
        with _damage_of(data_path(self._prefix, entry.shard, self._index.num_shards)):
            data = self._reader(entry.shard).read_at(entry.offset, entry.size)
        if len(data) < entry.size:
            raise DamagedCheckpointError(
                f"{self._where(name, entry)}: the file ends {entry.size - len(data)} bytes early"
            )
        self._compare(name, entry, extend(0, data))
        return int.from_bytes(data, "big" if self._index.big_endian else "little", signed=True)

    def _stored(self) -> Iterator[tuple[str, Entry]]:
        return ((name, entry) for name, entry in self._index.entries.items() if not entry.sliced)

    def _file(self, shard: int) -> str:
        return os.path.basename(data_path(self._prefix, shard, self._index.num_shards))

    def _reader(self, shard: int) -> Reader:
        if shard not in self._readers:
            path = data_path(self._prefix, shard, self._index.num_shards)
            with _damage_of(path):
                self._readers[shard] = self._stack.enter_context(self._filesystem.open(path))
        return self._readers[shard]

    def _check(self, name: str, entry: Entry, done: Callable[[int], None] | None) -> None:
        reader = self._reader(entry.shard)
        try:
            with _damage_of(data_path(self._prefix, entry.shard, self._index.num_shards)):
                crc = checksum(
                    reader,
                    entry.dtype,
                    entry.shape,
                    entry.offset,
                    entry.size,
                    big_endian=self._index.big_endian,
                    done=done,
                )
        except (EOFError, ValueError) as error:
            raise DamagedCheckpointError(f"{self._where(name, entry)}: {error}") from error
        self._compare(name, entry, crc)

    def _compare(self, name: str, entry: Entry, crc: int) -> None:
        if crc != entry.crc:
            detail = f"(CRC32C {crc:08x}, expected {entry.crc:08x})"
            raise DamagedCheckpointError(f"{self._where(name, entry)} was altered {detail}")

    def _where(self, name: str, entry: Entry) -> str:
        return f"{self._file(entry.shard)}: tensor {name!r} (bytes {entry.offset:,} to {entry.offset + entry.size:,})"

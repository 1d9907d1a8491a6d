"""A reference reader of events files, and file systems that fail on request."""

from __future__ import annotations

import errno
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.storage.filesystem import AppendFile, DirectoryEntry, ReadFile
from supervisor_core.storage.local import LocalFilesystem


def crc_of_byte(crc: int) -> int:
    """One byte's turn of the polynomial, bit by bit."""
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


CRC_TABLE = [crc_of_byte(byte) for byte in range(256)]


def crc32c(data: bytes) -> int:
    """CRC-32C from its definition: slow, and not what the writer uses."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    """The checksum as records store it."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@dataclass
class Contents:
    """What a reference reader makes of a file: its payloads, and how many bytes of a torn record follow them."""

    payloads: list[bytes]
    torn_bytes: int

    @property
    def events(self) -> list[Any]:
        """The payloads as TensorBoard's ``Event``, the version record left out."""
        from tensorboard.compat.proto.event_pb2 import Event

        events = [Event.FromString(payload) for payload in self.payloads]
        assert events[0].file_version == "brain.Event:2"
        return events[1:]

    @property
    def steps(self) -> list[int]:
        """The events' steps."""
        return [event.step for event in self.events]


def parse(data: bytes, *, check_large: bool = True) -> Contents:
    """Walk the records by the format's description; a torn record may only come last."""
    payloads, at = [], 0
    while at + 12 <= len(data):
        length, length_crc = struct.unpack_from("<QI", data, at)
        assert length_crc == masked(data[at : at + 8]), f"the header at {at} is damaged"
        end = at + 12 + length + 4
        if end > len(data):
            break
        payload = data[at + 12 : end - 4]
        if check_large or length < 10_000:
            assert struct.unpack_from("<I", data, end - 4)[0] == masked(payload), f"the payload at {at} is damaged"
        payloads.append(payload)
        at = end
    return Contents(payloads, len(data) - at)


@dataclass
class FaultyFileSystem:
    """Local files on a disk that is as full, as broken or as stuck as a test wants."""

    prompt: bool = True
    room: int | None = None
    """Bytes that still fit; None for any number."""
    append_error: OSError | None = None
    create_error: OSError | None = None
    sync_error: OSError | None = None
    can_truncate: bool = True
    can_stat: bool = True
    appended: threading.Event = field(default_factory=threading.Event)
    """Set by each append that succeeds, and by each that fails."""
    failed: threading.Event = field(default_factory=threading.Event)
    may_append: threading.Event = field(default_factory=threading.Event)
    """Cleared: appending hangs."""
    appending: threading.Event = field(default_factory=threading.Event)
    syncs: int = 0
    creations: int = 0
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.may_append.set()
        self._local = LocalFilesystem()

    def make_directory(self, path: str) -> None:
        self._local.make_directory(path)

    def create(self, path: str, data: bytes) -> AppendFile:
        if self.create_error is not None:
            raise self.create_error
        if self.room is not None and self.room < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self.creations += 1
        if self.room is not None:
            self.room -= len(data)
        return _FaultyFile(self, self._local.create(path, data))

    def replace(self, path: str, data: bytes) -> None:
        self._local.replace(path, data)


class _FaultyFile:
    def __init__(self, owner: FaultyFileSystem, file: AppendFile) -> None:
        self._owner = owner
        self._file = file

    def append(self, chunks: Sequence[bytes]) -> None:
        owner, data = self._owner, b"".join(chunks)
        owner.appending.set()
        assert owner.may_append.wait(60)
        fits = data if owner.room is None else data[: owner.room]
        if owner.append_error is not None:
            fits = data[: len(data) // 2]
        self._file.append((fits,))
        if owner.room is not None:
            owner.room -= len(fits)
        error = owner.append_error
        if error is None and len(fits) < len(data):
            error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if error is not None:
            owner.failed.set()
            raise error
        owner.appended.set()

    def size(self) -> int:
        if not self._owner.can_stat:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self._file.size()

    def truncate(self, size: int) -> None:
        if not self._owner.can_truncate:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
        if self._owner.room is not None:
            self._owner.room += self._file.size() - size
        self._file.truncate(size)

    def is_gone(self) -> bool:
        return self._file.is_gone()

    def sync(self) -> None:
        self._owner.syncs += 1
        if self._owner.sync_error is not None:
            raise self._owner.sync_error
        self._file.sync()

    def close(self) -> None:
        self._owner.log.append("close")
        self._file.close()


@pytest.fixture
def faulty() -> FaultyFileSystem:
    """A file system without a fault, so far."""
    return FaultyFileSystem()


@pytest.fixture
def no_space() -> OSError:
    """What a full disk says."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def io_error() -> OSError:
    """What a broken disk says."""
    return OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def read_file() -> Callable[..., Contents]:
    """Returns a function that reads one events file."""

    def read(path: str | Path, *, check_large: bool = True) -> Contents:
        return parse(Path(path).read_bytes(), check_large=check_large)

    return read


@pytest.fixture
def read_logdir(read_file: Callable[..., Contents]) -> Callable[..., list[Contents]]:
    """Returns a function that reads the events files of a directory, in the order of their names."""

    def read(logdir: str | Path, **how: Any) -> list[Contents]:
        return [read_file(path, **how) for path in sorted(Path(logdir).glob("*tfevents*"))]

    return read


@pytest.fixture
def clock(clock_at: Callable[[float], Any]) -> Any:
    """A clock at 1,700,000,000.25 s."""
    return clock_at(1_700_000_000.25)


@pytest.fixture
def read_bytes() -> Callable[..., Contents]:
    """Returns a function that reads records from bytes."""
    return parse


@dataclass
class WatchedSource:
    """Local files, with a count of calls, on a disk that fails on request."""

    stat_errors: dict[str, OSError] = field(default_factory=dict)
    open_errors: dict[str, OSError] = field(default_factory=dict)
    list_errors: dict[str, OSError] = field(default_factory=dict)
    pread_errors: dict[int, OSError] = field(default_factory=dict)
    """By how many readings went well before."""
    on_pread: Callable[[int], None] = lambda count: None
    """Called before each reading with how many there were."""
    listed: list[str] = field(default_factory=list)
    preads: int = 0
    bytes_read: int = 0
    open_files: int = 0
    most_open: int = 0

    def stat(self, path: str) -> os.stat_result:
        if path in self.stat_errors:
            raise self.stat_errors[path]
        return os.stat(path)

    def open(self, path: str) -> _WatchedFile:
        if path in self.open_errors:
            raise self.open_errors[path]
        file = _WatchedFile(self, LocalFilesystem().open(path))
        self.open_files += 1
        self.most_open = max(self.most_open, self.open_files)
        return file

    def entries(self, directory: str) -> Iterator[DirectoryEntry]:
        self.listed.append(directory)
        if directory in self.list_errors:
            raise self.list_errors[directory]
        return LocalFilesystem().entries(directory)


class _WatchedFile:
    def __init__(self, owner: WatchedSource, file: ReadFile) -> None:
        self._owner = owner
        self._file = file

    def read_at(self, offset: int, length: int) -> bytes:
        owner = self._owner
        owner.on_pread(owner.preads)
        if owner.preads in owner.pread_errors:
            raise owner.pread_errors.pop(owner.preads)
        data = self._file.read_at(offset, length)
        owner.preads += 1
        owner.bytes_read += len(data)
        return data

    def close(self) -> None:
        self._owner.open_files -= 1
        self._file.close()


@pytest.fixture
def watched() -> WatchedSource:
    """A source that counts its calls, and fails on request."""
    return WatchedSource()


@pytest.fixture(scope="session")
def writing(module_at: Callable[[str], Any]) -> Any:
    """The module that writes events files record by record."""
    return module_at("events/record_writer.py")


@pytest.fixture
def path(tmp_path: Path, writing: Any) -> str:
    """Where an events file is to be."""
    return str(tmp_path / writing.NAME)


@pytest.fixture(scope="session")
def reference(module_at: Callable[[str], Any]) -> Any:
    """The plain reader (`reference.py` beside this file), and what it is compared on."""
    return module_at("events/reference.py")

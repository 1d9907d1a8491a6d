"""The events reader: one file, read at once, record by record, and as it grows.

Bit 0 of an input's first byte says how the rest becomes a file: 0 as it is; 1 with checksums put right, since no fuzzer
guesses those. Then byte 6 of a record's length keeps the payload's checksum wrong, and byte 7 the length's own. Bits 1
and 2 choose the second way of reading, which is compared with reading at once.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from supervisor_core.events import event_format, scan, vector_decode
from supervisor_core.events.chunk import Chunk
from supervisor_core.events.reader import EventsFileReader
from supervisor_core.events.scan import FREE_BYTES, PER_BYTE
from supervisor_core.storage.filesystem import DirectoryEntry

NAME = "events.out.tfevents.1700000000.host"
_FEW = 600
_WORST_READ = 64
"""Bytes that may be fetched for each byte of a small file, beside the budget of `supervisor_core.events.scan`."""


def check_events(data: bytes) -> None:
    """Read a file at once, many records together, and in another way, and compare."""
    flags = data[0] if data else 0
    file = mended(data[1:]) if flags & 1 else data[1:]
    with _together(4):
        at_once = Reading(file).read()
    check = (check_one_by_one, check_growing, check_thorough, check_one_by_one)[flags >> 1 & 3]
    check(file, at_once)


def check_one_by_one(file: bytes, at_once: dict[str, Any]) -> None:
    """Each record alone, a few of them in a piece: the same."""
    with _together(len(file)):
        one_by_one = Reading(file).read(max_bytes=_FEW)
    assert one_by_one == at_once, difference(one_by_one, at_once)


def check_thorough(file: bytes, at_once: dict[str, Any]) -> None:
    """With the checksums of what is skipped: no more than without."""
    thorough = Reading(file, thorough=True).read()
    assert thorough["points"].keys() <= at_once["points"].keys()


def check_growing(file: bytes, at_once: dict[str, Any]) -> None:
    """As it grows: the same."""
    grown = Reading(b"")
    for end in sorted({len(file) // 3, 2 * len(file) // 3, len(file)}):
        grown.source.data = file[:end]
        grown.gather()
    if not has_damaged_length(at_once):  # else what proves itself first depends on what is there by then
        assert grown.result() == at_once, difference(grown.result(), at_once)


@contextmanager
def _together(fewest: int) -> Iterator[None]:
    """Decode records together from this number on; outside of fuzzing that takes 32 of them and 8 KiB."""
    bounds: list[tuple[Any, str, int]] = [
        *((module, "FEWEST", fewest) for module in (scan, vector_decode)),
        (scan, "_TOGETHER_BYTES", 64),
    ]
    before = [getattr(module, name) for module, name, _ in bounds]
    try:
        for module, name, value in bounds:
            setattr(module, name, value)
        yield
    finally:
        for (module, name, _), value in zip(bounds, before, strict=True):
            setattr(module, name, value)


def mended(data: bytes) -> bytes:
    """Return a file whose records have right checksums, but where their lengths ask for wrong ones."""
    out, at = bytearray(data), 0
    while at + event_format.HEADER_BYTES + event_format.FOOTER_BYTES <= len(out):
        wrong_payload, wrong_length = out[at + 6], out[at + 7]
        out[at + 2 : at + 8] = bytes(6)
        length = int.from_bytes(out[at : at + 8], "little")
        end = at + event_format.HEADER_BYTES + length + event_format.FOOTER_BYTES
        if not wrong_length:
            out[at : at + event_format.HEADER_BYTES] = event_format.header(length)
        if end > len(out):
            break
        if not wrong_payload:
            out[end - 4 : end] = event_format.footer(bytes(out[at + event_format.HEADER_BYTES : end - 4]))
        at = end
    return bytes(out)


@dataclass
class _Status:
    st_size: int
    st_mode: int = stat.S_IFREG | 0o644
    st_mtime_ns: int = 0
    st_ino: int = 1
    st_dev: int = 1


class _File:
    def __init__(self, source: MemorySource) -> None:
        self._source = source
        self._data = source.data

    def read_at(self, offset: int, length: int) -> bytes:
        self._source.fetched += max(0, min(length, len(self._data) - offset))
        return self._data[offset : offset + length]

    def close(self) -> None:
        pass


class MemorySource:
    """One file, in memory; its bytes may be replaced by more of them."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.fetched = 0

    def stat(self, path: str) -> Any:
        """See `ReadFilesystem.stat`."""
        return _Status(len(self.data), st_mtime_ns=len(self.data))

    def open(self, path: str) -> _File:
        """See `ReadFilesystem.open`."""
        return _File(self)

    def entries(self, directory: str) -> Iterator[DirectoryEntry]:
        """See `ReadFilesystem.entries`."""
        yield DirectoryEntry(NAME, is_directory=False, is_link=False)


class Reading:
    """What a reader hands out of a file, in a form that can be compared."""

    def __init__(self, data: bytes, **options: bool) -> None:
        self.source = MemorySource(data)
        self._reader = EventsFileReader(NAME, filesystem=self.source, **options)
        self._chunks: list[Chunk] = []

    def read(self, max_bytes: int | None = None) -> dict[str, Any]:
        """Read to the end, in pieces, and return everything."""
        self.gather(max_bytes)
        return self.result()

    def gather(self, max_bytes: int | None = None) -> None:
        """Read what is there, and see that it was done within bounds and that nothing failed."""
        before, size = self.source.fetched, len(self.source.data)
        calls = 0
        while (chunk := self._reader.read(max_bytes)) is not None or self._reader.has_more:
            calls += 1
            assert calls <= size + 2, "the reader does not come to an end"
            if chunk is not None:
                self._chunks.append(chunk)
        fetched = self.source.fetched - before
        most = FREE_BYTES + (PER_BYTE + _WORST_READ) * size + (1 << 20) + calls * (8 << 10)
        assert fetched <= most, f"{fetched:,} bytes were fetched of a file of {size:,}"
        facts = self._reader.facts()
        assert not facts.unreadable, facts.skipped  # the file is in memory: what fails is the reader
        assert 0 <= facts.read_bytes <= size

    def result(self) -> dict[str, Any]:
        """Return everything by name, of all pieces together."""
        assert sum(chunk.from_start for chunk in self._chunks) <= 1
        facts = self._reader.facts()
        chunks = self._chunks
        walls = [chunk.last_at for chunk in chunks if chunk.last_at is not None]
        points: dict[str, list[tuple[Any, ...]]] = {}
        for chunk in chunks:
            for tag, column in chunk.scalars.items():
                arrays = (getattr(column, name).tolist() for name in ("offsets", "steps", "walls", "values"))
                points.setdefault(tag, []).extend((a, b, repr(c), repr(d)) for a, b, c, d in zip(*arrays, strict=True))
        return {
            "read_bytes": facts.read_bytes,
            "records": sum(chunk.records for chunk in chunks),
            "bytes": sum(chunk.bytes for chunk in chunks),
            "corrupt": facts.corrupt_records,
            "torn": facts.torn_bytes,
            "skipped": facts.skipped,
            "first_at": repr(next((chunk.first_at for chunk in chunks if chunk.first_at is not None), None)),
            "last_at": max(walls) if walls else None,
            "first_step": next((chunk.first_step for chunk in chunks if chunk.first_step is not None), None),
            "last_step": next((chunk.last_step for chunk in chunks[::-1] if chunk.last_step is not None), None),
            "max_step": max((chunk.max_step for chunk in chunks if chunk.max_step is not None), default=None),
            "marks": [repr(mark) for chunk in chunks for mark in chunk.marks],
            "problems": [repr(problem) for chunk in chunks for problem in chunk.problems],
            "points": points,
        }


def has_damaged_length(found: dict[str, Any]) -> bool:
    """Say whether a place was found where the length of a record is damaged."""
    return any("corrupt_length" in problem for problem in found["problems"])


def difference(found: dict[str, Any], expected: dict[str, Any]) -> str:
    """Say where two readings differ first."""
    name = next(name for name in expected if found[name] != expected[name])
    return f"{name}: {str(found[name])[:500]} is not {str(expected[name])[:500]}"

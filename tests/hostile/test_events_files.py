"""Events files that are written to hurt their reader: in memory, in time, and through what it says of them."""

from __future__ import annotations

import errno
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from supervisor_core.base import checksum
from supervisor_core.events import event_format, payload, scan
from supervisor_core.events.reader import EventsFileReader
from supervisor_core.storage.local import LOCAL

MIB = 1 << 20


@pytest.fixture(scope="session")
def records(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """The module that writes events files record by record."""
    return module_at("events/record_writer.py")


def varint(number: int) -> bytes:
    """A number as protocol buffers write it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def delimited(number: int, length: int) -> bytes:
    """The key and length of a field whose content follows."""
    return varint(number << 3 | 2) + varint(length)


def nested(size: int, *numbers: int) -> bytes:
    """The heads of fields within each other, the innermost of a size."""
    out = b""
    for number in reversed(numbers):
        out = delimited(number, size + len(out)) + out
    return out


@pytest.mark.parametrize("size", [20 * MIB, 3 << 30])
@pytest.mark.parametrize("numbers", [(5, 1, 1), (7, 2)], ids=["tag", "checkpoint path"])
def test_a_sparse_record_costs_no_memory(
    tmp_path: Path, records: ModuleType, size: int, numbers: tuple[int, ...]
) -> None:
    """Four kilobytes on disk that claim to be a string of gigabytes are refused by their length; reading goes on."""
    head = nested(size, *numbers)
    if numbers[0] == 7:
        head, tail = delimited(7, len(nested(size, 2)) + size + 2) + nested(size, 2), b"\x08\x01"
    else:
        value = nested(size, 1)
        head = nested(len(value) + size + 5, 5, 1) + value
        tail = b"\x15" + struct.pack("<f", 1.0)
    path = tmp_path / records.NAME
    length = len(head) + size + len(tail)
    with open(path, "wb") as file:
        file.write(records.HEAD + event_format.header(length) + head)
        file.seek(size, os.SEEK_CUR)
        file.write(tail + b"\0\0\0\0" + records.scalar(5))
    reader = EventsFileReader(str(path))
    tracemalloc.start()
    chunk = reader.read()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert records.steps(chunk) == [5]
    assert reader.facts().corrupt_records == 1
    assert peak < 24 * MIB


def test_an_event_of_very_many_values_is_refused(
    tmp_path: Path, records: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs a bounded number of them; the events around it are read."""
    monkeypatch.setattr(payload, "MAX_VALUES", 100)
    value = b"\x0a\x06\x0a\x01t\x15" + bytes(4)
    good, bad = (
        records.summary(b"\x0a\x08\x0a\x01t\x15\0\0\0\0" * 100),
        records.summary(b"\x0a\x08\x0a\x01t\x15\0\0\0\0" * 101),
    )
    assert len(value) == 10
    records.write(str(tmp_path / records.NAME), records.HEAD, good, bad, records.scalar(5))
    reader = EventsFileReader(str(tmp_path / records.NAME))
    chunk = reader.read()
    assert (len(records.steps(chunk, "t")), records.steps(chunk)) == (100, [5])
    assert "more than 100 values" in reader.facts().problems[0].text


def test_damage_costs_time_in_proportion_to_the_file(
    tmp_path: Path, records: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of lengths with right checksums that all reach to the end: what is read in vain has a budget. The
    record behind them is found all the same."""
    read = 0
    extend = checksum.extend

    def counted(crc: int, data: bytes) -> int:
        nonlocal read
        read += len(data)
        return int(extend(crc, data))

    monkeypatch.setattr(scan, "FREE_BYTES", MIB)
    monkeypatch.setattr(checksum, "extend", counted)
    count, last = 20_000, records.scalar(5)
    total = count * event_format.HEADER_BYTES + len(last)
    lengths = (total - at * event_format.HEADER_BYTES - 16 for at in range(count))
    heads = b"".join(event_format.header(length) for length in lengths)
    records.write(str(tmp_path / records.NAME), records.HEAD, b"damage", heads, last)
    reader = EventsFileReader(str(tmp_path / records.NAME))
    assert records.steps(reader.read()) == [5]
    assert read < MIB + scan.PER_BYTE * (total + 1000) + total


def test_records_within_records_cost_time_in_proportion_to_the_file(
    tmp_path: Path, records: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damaged payloads that hold further records, each with a damaged payload up to the end: the reader goes back only
    as far as the budget lets it."""
    read = 0
    value = checksum.value

    def counted(data: bytes) -> int:
        nonlocal read
        read += len(data)
        return int(value(data))

    monkeypatch.setattr(scan, "FREE_BYTES", MIB)
    monkeypatch.setattr(checksum, "value", counted)
    good = records.scalar(5)
    body = b"x" * 64
    for _ in range(700):
        body = good + event_format.header(len(body)) + body
    records.write(
        str(tmp_path / records.NAME), records.HEAD, event_format.header(len(body)) + body + b"none" + b"y" * 20
    )
    reader = EventsFileReader(str(tmp_path / records.NAME))
    assert records.steps(reader.read())
    assert read < MIB + (scan.PER_BYTE + 2) * len(body)


def test_what_took_the_place_of_a_file_is_not_opened(tmp_path: Path) -> None:
    """A FIFO, a device or a directory is refused after it was opened, whatever the look before it said."""
    os.mkfifo(tmp_path / "tfevents")
    paths = {str(tmp_path / "tfevents"): errno.EINVAL, "/dev/zero": errno.EINVAL, str(tmp_path): errno.EISDIR}
    for path, number in paths.items():
        with pytest.raises(OSError, match="not a regular file") as caught:
            LOCAL.open(path)
        assert caught.value.errno == number

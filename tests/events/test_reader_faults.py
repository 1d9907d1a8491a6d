from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import SessionLog

from supervisor_core.base import wire
from supervisor_core.events import event_format
from supervisor_core.events.reader import EventsFileReader
from tests.cases import each


def flipped(record: bytes, at: int) -> bytes:
    """A record with one bit changed."""
    return record[:at] + bytes((record[at] ^ 1,)) + record[at + 1 :]


# What is damaged


@each("count", [3, 500])
@each("byte", [12, 20, -1])
def test_a_damaged_payload_costs_one_record(path: str, count: int, byte: int, writing: Any) -> None:
    """It is left out, counted and located, and reading goes on at the next: alone, and in the midst of many alike."""
    records = [writing.scalar(step) for step in range(1, count + 1)]
    at = len(writing.HEAD) + sum(map(len, records[: count // 2]))
    records[count // 2] = flipped(records[count // 2], byte % len(records[count // 2]))
    writing.write(path, writing.HEAD, *records)
    reader = EventsFileReader(path)
    assert writing.steps(reader.read()) == [step for step in range(1, count + 1) if step != count // 2 + 1]
    facts = reader.facts()
    assert (facts.corrupt_records, facts.records) == (1, count)
    assert [(problem.kind, problem.offset) for problem in facts.problems] == [("corrupt_record", at)]


@each("byte", [0, 5, 7, 11])
def test_after_a_damaged_length_reading_goes_on(path: str, byte: int, writing: Any) -> None:
    """At the next record that proves itself; what is between is counted once, with its place."""
    records = [writing.scalar(step) for step in range(1, 101)]
    writing.write(path, writing.HEAD, *records[:50], flipped(records[50], byte), *records[51:])
    reader = EventsFileReader(path)
    assert writing.steps(reader.read()) == [step for step in range(1, 101) if step != 51]
    at = len(writing.HEAD) + sum(map(len, records[:50]))
    assert [(problem.kind, problem.offset) for problem in reader.facts().problems] == [("corrupt_length", at)]
    assert str(at + len(records[50])) in reader.facts().problems[0].text


def test_a_record_that_swallowed_others_gives_them_back(path: str, writing: Any) -> None:
    """Where a writer died within a record and another went on in the same file, only the torn record is lost."""
    torn = writing.scalar(1, "x" * 200)[:50]
    writing.write(path, writing.HEAD, torn, *map(writing.scalar, range(2, 50)))
    reader = EventsFileReader(path)
    assert writing.steps(reader.read()) == list(range(2, 50))
    assert [problem.kind for problem in reader.facts().problems] == ["corrupt_record", "corrupt_length"]


def test_a_tail_that_is_no_record_is_waited_for(path: str, writing: Any) -> None:
    """Zeros after a power cut are a torn tail, not damage, until good records follow them."""
    writing.write(path, writing.HEAD, writing.scalar(1), bytes(40))
    reader = EventsFileReader(path)
    assert writing.steps(reader.read()) == [1]
    assert (reader.facts().torn_bytes, reader.facts().corrupt_records) == (40, 0)
    writing.append(path, bytes(3000), writing.scalar(2)[:-1])
    assert reader.read() is None
    writing.append(path, writing.scalar(2)[-1:], writing.scalar(3))
    assert writing.steps(reader.read()) == [2, 3]
    assert (reader.facts().torn_bytes, reader.facts().corrupt_records) == (0, 1)


def test_only_the_first_problems_are_kept(path: str, writing: Any) -> None:
    """A file that is damaged all over is counted in full and listed in part."""
    writing.write(path, writing.HEAD, *(flipped(writing.scalar(step), 15) for step in range(1, 301)))
    reader = EventsFileReader(path)
    reader.read()
    assert (reader.facts().corrupt_records, len(reader.facts().problems)) == (300, 100)


# What is another file


def replaced_by_another(path: str, data: bytes) -> None:
    """As rsync and editors do."""
    Path(path + ".new").write_bytes(data)
    os.replace(path + ".new", path)


def rewritten_in_place(path: str, data: bytes) -> None:
    """As a store's mount, or a copy over it, does."""
    Path(path).write_bytes(data)


@each("how", [replaced_by_another, rewritten_in_place])
@each("count", [1, 3, 5])
def test_another_file_of_the_name_is_read_from_its_start(
    path: str, how: Callable[[str, bytes], None], count: int, writing: Any
) -> None:
    """Shorter, as long or longer: what was known is void, and the chunk says so."""
    writing.write(path, writing.HEAD, *map(writing.scalar, (1, 2, 3)))
    reader = EventsFileReader(path)
    reader.read()
    how(
        path,
        event_format.frame(event_format.version_event(1.8e9)) + b"".join(map(writing.scalar, range(11, 11 + count))),
    )
    os.utime(path, (1.8e9, 1.8e9))
    chunk = reader.read()
    assert chunk is not None and chunk.from_start
    assert writing.steps(chunk) == list(range(11, 11 + count))
    assert [problem.kind for problem in chunk.problems] == ["replaced"]
    assert reader.facts().records == 1 + count


def test_a_file_that_is_replaced_while_it_is_read(path: str, watched: Any, writing: Any) -> None:
    """What was opened is read to its end; the next look finds the other one."""
    writing.write(path, writing.HEAD, *map(writing.scalar, range(1, 5000)))

    def replace(count: int) -> None:
        if count == 2:
            replaced_by_another(path, writing.HEAD + writing.scalar(7))

    watched.on_pread = replace
    reader = EventsFileReader(path, filesystem=watched)
    assert writing.steps(reader.read()) == list(range(1, 5000))
    chunk = reader.read()
    assert chunk is not None and chunk.from_start and writing.steps(chunk) == [7]


def test_a_file_that_is_cut_while_it_is_read(path: str, watched: Any, writing: Any) -> None:
    """It is read as far as it goes, and nothing is made of bytes that are gone."""
    writing.write(path, writing.HEAD, *map(writing.scalar, range(1, 5000)))

    def cut(count: int) -> None:
        if count == 2:
            os.truncate(path, 70_001)

    watched.on_pread = cut
    reader = EventsFileReader(path, filesystem=watched)
    found = writing.steps(reader.read())
    assert found == list(range(1, len(found) + 1)) and 100 < len(found) < 4000
    assert reader.facts().corrupt_records == 0
    writing.append(path, b"\0")
    reader.read()
    assert reader.facts().torn_bytes > 0


# What is no events file


@each(
    "data, reason",
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "Git LFS pointer"),
        (b"# Notes on tfevents files\n\nThey hold records.\n" * 3000, "no events file"),
        (bytes(100), "no events file"),
    ],
)
def test_what_holds_no_events_is_named(path: str, data: bytes, reason: str, writing: Any) -> None:
    """Nothing is handed out, nothing raised, and the facts say why."""
    writing.write(path, data)
    reader = EventsFileReader(path)
    assert reader.read() is None
    facts = reader.facts()
    assert facts.skipped is not None and reason in facts.skipped
    assert (facts.records, facts.torn_bytes, facts.unreadable, facts.size_bytes) == (0, 0, False, len(data))


def test_an_empty_file_may_still_be_written(path: str, writing: Any) -> None:
    """A writer creates its file before it writes."""
    writing.write(path)
    reader = EventsFileReader(path)
    reader.read()
    writing.append(path, writing.HEAD, writing.scalar(1))
    assert writing.steps(reader.read()) == [1]
    assert reader.facts().skipped is None


@each("length", [11, 12])
def test_a_file_torn_in_its_first_record_is_torn(path: str, length: int, writing: Any) -> None:
    """A file shorter than a header may still become an events file."""
    writing.write(path, writing.HEAD[:length])
    reader = EventsFileReader(path)
    assert reader.read() is None
    assert (reader.facts().skipped, reader.facts().torn_bytes) == (None, length)


def test_a_file_that_is_gone_is_named(path: str, writing: Any) -> None:
    """It vanished between the listing and now; when it is back, it is read."""
    reader = EventsFileReader(path)
    assert reader.read() is None
    assert (reader.facts().skipped, reader.facts().unreadable) == ("it is gone", False)
    writing.write(path, writing.HEAD, writing.scalar(1))
    assert writing.steps(reader.read()) == [1]


def test_a_file_that_vanishes_before_it_is_opened(path: str, watched: Any, writing: Any) -> None:
    """Its status was there, it itself is not: the same."""
    writing.write(path, writing.HEAD)
    watched.open_errors[path] = FileNotFoundError(errno.ENOENT, "gone")
    reader = EventsFileReader(path, filesystem=watched)
    assert reader.read() is None
    assert reader.facts().skipped == "it is gone"


def test_a_file_that_may_not_be_read_is_named(path: str, watched: Any, writing: Any) -> None:
    """It is tried again each time, so that a permission that was given counts."""
    writing.write(path, writing.HEAD, writing.scalar(1))
    watched.open_errors[path] = PermissionError(errno.EACCES, "Permission denied")
    reader = EventsFileReader(path, filesystem=watched)
    assert (reader.read(), reader.read()) == (None, None)
    assert (reader.facts().skipped, reader.facts().unreadable) == ("no permission to read it", True)
    watched.open_errors.clear()
    assert writing.steps(reader.read()) == [1]
    assert (reader.facts().skipped, reader.facts().unreadable) == (None, False)


def test_a_disk_that_fails_costs_nothing_twice(path: str, watched: Any, io_error: OSError, writing: Any) -> None:
    """What was read before the error is returned, the error is reported once; the rest comes when the disk is back."""
    writing.write(path, writing.HEAD, *map(writing.scalar, range(1, 5000)))
    reader = EventsFileReader(path, filesystem=watched)
    watched.pread_errors[2] = io_error
    first = reader.read()
    assert first is not None and [problem.kind for problem in first.problems] == ["unreadable"]
    assert reader.facts().unreadable
    watched.pread_errors[watched.preads] = io_error
    again = reader.read()
    assert again is None
    last = reader.read()
    assert writing.steps(first) + writing.steps(last) == list(range(1, 5000))
    assert (reader.facts().skipped, watched.open_files) == (None, 0)


# What is large


def picture(size: int) -> bytes:
    """The value of an image of some bytes, serialized."""
    return wire.delimited(1, wire.delimited(1, b"image") + wire.delimited(4, bytes(size)))


def test_large_payloads_are_skipped_unread(path: str, watched: Any, writing: Any) -> None:
    """Among images of a megabyte, session logs are found by reading a few kilobytes for each image."""
    log = SessionLog(status=3, checkpoint_path="model.ckpt").SerializeToString()
    mark = event_format.frame(event_format.event_prefix(5.0, 1, 7, len(log)) + log)
    writing.write(path, writing.HEAD, *(writing.summary(picture(1 << 20), step) + mark for step in range(20)))
    reader = EventsFileReader(path, filesystem=watched)
    chunk = reader.read()
    assert chunk is not None
    assert (chunk.records, len(chunk.marks), chunk.max_step) == (41, 20, 19)
    assert watched.bytes_read < 20 * 20_000


def test_a_scalar_beside_an_image_is_found_and_checked(path: str, writing: Any) -> None:
    """What is handed out was checked, however large the record that it was in."""
    beside = wire.delimited(1, wire.delimited(1, b"loss") + b"\x15" + struct.pack("<f", 2.0))
    good = writing.summary(picture(1 << 20) + beside, 5)
    writing.write(path, writing.HEAD, good, flipped(good, 1000), writing.summary(picture(1 << 20), 6))
    reader = EventsFileReader(path)
    chunk = reader.read()
    assert chunk is not None and writing.steps(chunk) == [5]
    assert (chunk.records, chunk.max_step, reader.facts().corrupt_records) == (3, 6, 1)


def test_a_thorough_reader_checks_what_is_skipped_too(path: str, writing: Any) -> None:
    """A flipped byte in the midst of a picture is found and located; nothing else is lost."""
    good = writing.summary(picture(1 << 20), 5)
    writing.write(path, writing.HEAD, good, flipped(good, 500_000), writing.summary(picture(1 << 20), 6))
    trusting, thorough = EventsFileReader(path), EventsFileReader(path, thorough=True)
    trusting.read()
    chunk = thorough.read()
    assert chunk is not None
    assert (trusting.facts().corrupt_records, trusting.facts().records) == (0, 4)
    assert (thorough.facts().corrupt_records, thorough.facts().records) == (1, 3)
    assert [problem.offset for problem in chunk.problems] == [len(writing.HEAD) + len(good)]


@each("grows", [True, False])
def test_a_hole_that_is_filled_later_is_read(path: str, grows: bool, writing: Any) -> None:
    """NFS may show zeros where the writer's bytes are not there yet: they are looked at again when the file grows, and
    once when it has come to rest. What was read is then read again, from the start."""
    records = [writing.scalar(step) for step in range(1, 31)]
    data = b"".join((writing.HEAD, *records))
    begin, end = data.index(records[9]) + 5, data.index(records[19]) + 7
    writing.write(path, data[:begin], bytes(end - begin), data[end:])
    stamp = os.stat(path)
    reader = EventsFileReader(path)
    assert not set(range(11, 20)) & set(writing.steps(reader.read()))
    with open(path, "r+b") as file:
        file.seek(begin)
        file.write(data[begin:end])
    more = [31] if grows else []
    writing.append(path, *map(writing.scalar, more))
    if not grows:
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # the server's time, as before
    chunk = reader.read()
    assert chunk is not None and chunk.from_start
    assert writing.steps(chunk) == [*range(1, 31), *more]
    assert reader.facts().corrupt_records == 0
    assert reader.read() is None


def test_damage_that_stays_is_looked_at_once(path: str, writing: Any) -> None:
    """Nothing is read twice because of it: neither at rest, nor when the file grows right behind it."""
    records = [writing.scalar(step) for step in range(1, 11)]
    writing.write(path, writing.HEAD, *records[:8], flipped(records[8], 20), records[9])
    reader = EventsFileReader(path)
    assert writing.steps(reader.read()) == [*range(1, 9), 10]
    assert reader.read() is None
    writing.append(path, writing.scalar(11))
    assert writing.steps(reader.read()) == [11]
    assert reader.facts().corrupt_records == 1

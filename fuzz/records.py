"""The small files of sessions: liveness, pages of the ledger, a restarter's state (JSON);
progress pages, files of stacks."""

from __future__ import annotations

import struct
import tempfile
import zlib
from pathlib import Path

from supervisor_core.checkpoint import ledger
from supervisor_core.process import progress_page, stacks_file
from supervisor_core.process.stacks import MAX_FRAMES
from supervisor_core.restarter import nodes
from supervisor_core.restarter.launch import LaunchFacts, describe
from supervisor_core.restarter.logdir_view import decode_state, encode_state
from supervisor_core.restarter.policy import Cause, ChildEnd, EndedLaunch, Limits, decide
from supervisor_core.run.watch import liveness


def check_task(data: bytes) -> None:
    """Decode a liveness file; write and read again what was accepted."""
    try:
        record = liveness.decode(data)
    except ValueError:
        return
    assert liveness.decode(liveness.encode(record)) == record
    assert isinstance(record.process, str)
    assert record.elapsed_secs is None or record.elapsed_secs >= 0
    name = liveness.file_name(record.task)
    assert "/" not in name and not name.startswith(".") and len(name) <= 255, name


def check_ledger(data: bytes) -> None:
    """Decode a page; write and read again what was accepted."""
    try:
        page = ledger.decode(data)
    except ValueError:
        return
    assert ledger.decode(ledger.encode(page)) == page
    for path in [
        *(item.path for item in page.saved),
        *(path for item in page.deletions for path in (item.path, *item.files)),
    ]:
        assert path and not path.startswith("/") and ".." not in path.split("/") and "://" not in path, path


def check_page(data: bytes) -> None:
    """Read a page as it is, and with the checksum of its slot put right."""
    image = bytearray(data[: progress_page.PAGE_BYTES].ljust(progress_page.PAGE_BYTES, b"\0"))
    image[:16] = progress_page.MAGIC + struct.pack("<Q", progress_page.VERSION)
    (number,) = struct.unpack_from("<I", image, 64)
    at = 512 * (1 + number % 2)
    mended = bytearray(image)
    struct.pack_into("<I", mended, 68, zlib.crc32(image[at : at + 512]))
    with tempfile.NamedTemporaryFile(dir=_MEMORY if _MEMORY.is_dir() else None) as file:
        for content in (image, mended):
            file.seek(0)
            file.write(content)
            file.flush()
            found = progress_page.read_page(file.name)
            if found is not None:
                assert 0 <= found.steps <= 10**15 and (found.step is None or 0 <= found.step <= 10**15)
                assert abs(found.progress_at) <= 2.5e11 and abs(found.tick_boot_secs) <= 2.5e11
                assert found.session and found.phase in progress_page.PHASES


def check_stacks(data: bytes) -> None:
    """Read a file of stacks; write and read again what was accepted."""
    for content in (data, stacks_file.MAGIC.encode() + b"\nsession s\npid 7\n\n" + data):
        found = stacks_file.parse(content)
        assert len(found.looks) <= stacks_file.MOST_LOOKS
        for look in found.looks:
            assert len(look.stacks) <= stacks_file.MOST_THREADS
            for frames in look.stacks.values():
                assert len(frames) <= MAX_FRAMES
                assert all(len(frame) <= 2 * stacks_file.MOST_LETTERS for frame in frames)
        [once, twice] = [_written(found), _written(_written(found))]
        assert once == twice, (once, twice)


def _written(reading: stacks_file.StacksReading) -> stacks_file.StacksReading:
    """Write the looks of a reading, and read them."""
    text = "".join(stacks_file.look_text(look.title, look.at or 0.0, look.stacks) for look in reading.looks)
    return stacks_file.parse(text.encode("utf-8", "backslashreplace"))


def check_restarts(data: bytes) -> None:
    """Decode the state of a restarter, and what those of several nodes write for each other; decide about a launch with
    what was accepted, write and read it again."""
    call, report = nodes.decode(nodes.NodeCall, data), nodes.decode(nodes.NodeReport, data)
    assert call is None or nodes.decode(nodes.NodeCall, nodes.encode(call)) == call
    if report is not None:
        assert nodes.decode(nodes.NodeReport, nodes.encode(report)) == report
        facts = LaunchFacts(attempt=1, started_at=0.0, directory="/", cause="error")
        node = nodes.decisive(facts, {1: report}, was_first=False, has_lost=True)
        assert node == (1 if report.cause == "stopped" or report.has_failed else 0)
        facts.end, facts.failure, facts.node = report.end, report.failure, node
        assert describe(facts)
    try:
        state = decode_state(data)
    except ValueError:
        return
    assert decode_state(encode_state(state)) == state
    causes: tuple[Cause, ...] = ("error", "preempted", "hang")
    for cause in causes:
        ended = EndedLaunch(cause=cause, ended_at=1.7e9, end=ChildEnd(exit_code=1), is_known=True, has_stepped=True)
        after, decision = decide(state, ended, Limits(), chance=0.5)
        assert 0 <= decision.delay_secs <= Limits().max_backoff_secs, decision
        assert decode_state(encode_state(after)) == after


_MEMORY = Path("/dev/shm")

"""Makes a logdir of hostile runs, each named for what it does, around two honest ones: ``a-honest`` and ``z-honest``.

Small files, made by a script, so that the repository holds none. ``z-honest`` sorts behind all the hostile ones.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from supervisor_core.events import EventsWriter, event_format
from supervisor_core.events.telemetry import HeartbeatRecord, SessionRecord, summary_bytes

NAME = "events.out.tfevents.1700000000.host"
GIB = 1 << 30


def field(number: int, content: bytes) -> bytes:
    """A field of a message, with its length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    """A number as protocol buffers write it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def event(summary: bytes) -> bytes:
    """The record of an event with a summary."""
    return event_format.frame(b"\x09" + struct.pack("<d", time.time()) + field(5, summary))


def telemetry(kind: str, text: str) -> bytes:
    """The record of an event with telemetry."""
    tensor = b"\x08\x07" + field(2, b"") + field(8, text.encode())
    return event(field(1, field(1, f"supervisor/{kind}".encode()) + field(8, tensor)))


def heartbeat(**fields: object) -> bytes:
    """The record of a heartbeat."""
    return telemetry("heartbeat", json.dumps({"v": 1, "session": "s", "phase": "training", **fields}))


def honest(directory: Path) -> None:
    """A run that trains, at step 42."""
    directory.mkdir(parents=True)
    now, session = time.time(), f"of {directory.name}"  # one id in two directories would make one of them a copy
    with EventsWriter(str(directory)) as writer:
        start = SessionRecord(
            session=session, attempt=1, host="h", pid=1, facade="Supervisor", started_at=now - 5, heartbeat_secs=3600.0
        )
        writer.summary(summary_bytes(start))
        writer.scalar("loss", 0.5, 42)
        beat = HeartbeatRecord(session=session, phase="training", attempt=1, step=42, steps=42, elapsed_secs=5.0)
        writer.summary(summary_bytes(beat), 42)
        writer.flush()


def deep_telemetry(run: Path) -> None:
    """JSON that is nested deeper than the stack."""
    deep = '{"v":1,"session":"s","phase":"x","threads":' + "[" * 100_000 + "]" * 100_000 + "}"
    parts = [telemetry("heartbeat", "[" * 1_200), telemetry("heartbeat", deep)]
    (run / NAME).write_bytes(b"".join(parts))


def odd_telemetry(run: Path) -> None:
    """Fields of other kinds, numbers out of range, terminal controls."""
    odd = [
        heartbeat(step=10**400, steps_per_sec=1e308, elapsed_secs=-1e300, activity_secs={"productive": 1e308}),
        heartbeat(threads=[{"name": "\x1b[2J\x1b]0;owned\x07\nrun b completed", "state": [], "ticks": {}}] * 5),
        heartbeat(workers={"a": 1}, attempt="one", phase=["x"], events_dropped=-5),
        telemetry("session", json.dumps({"v": 1, "session": "s", "attempt": -1, "host": "\x1b[31m\r\n", "pid": 1e300,
                                         "facade": {}, "started_at": 1e300, "versions": [1], "skipped": [[]]})),
        telemetry("checkpoint", json.dumps({"v": 1, "session": "s", "trigger": "\x1b", "path": "\n\x1b", "step": -1})),
        telemetry("stop", json.dumps({"v": 1, "session": "s", "reason": "\x1b[2J", "error": "x\n" * 1000})),
        telemetry("stall", json.dumps({"v": 1, "session": "s", "state": "begin", "phase": "\n", "since": 1e15})),
    ]  # fmt: skip
    (run / NAME).write_bytes(b"".join(odd))


def sparse_record(run: Path) -> None:
    """Four kilobytes on disk that claim to be a tag of 3 GiB, another of 1 GiB."""
    with open(run / NAME, "wb") as file:
        for size in (3 * GIB, GIB):
            inner = varint(10) + varint(size)
            head = varint(42) + varint(len(inner) + size + 6) + varint(10) + varint(len(inner) + size)
            file.write(event_format.header(len(head) + len(inner) + size) + head + inner)
            file.seek(size + 4, os.SEEK_CUR)
        file.write(b"\0")


def lengths_to_the_end(run: Path) -> None:
    """Damage, then lengths with right checksums that all reach to the end of the file."""
    count = 100_000
    heads = (
        event_format.header((count - at - 1) * event_format.HEADER_BYTES - event_format.FOOTER_BYTES)
        for at in range(count - 2)
    )
    (run / NAME).write_bytes(event_format.frame(b"\x09" + bytes(8)) + b"damage" + b"".join(heads) + bytes(18))


def many_threads(run: Path) -> None:
    """A new thread, worker and tag in every record."""
    records = []
    for number in range(30):
        threads = [{"name": f"t{number}-{index}", "state": "idle", "ticks": 1} for index in range(300)]
        workers = [{"name": f"worker:{number}-{index}", "state": "running"} for index in range(300)]
        records.append(heartbeat(threads=threads, workers=workers, step=number, elapsed_secs=float(number)))
        tags = b"".join(
            field(1, field(1, f"tag/{number}/{index}".encode()) + b"\x15" + bytes(4)) for index in range(500)
        )
        records.append(event(tags))
    (run / NAME).write_bytes(b"".join(records))


def many_sessions(run: Path) -> None:
    """A new session in every record, each with a stall that does not end; and restarts of every reason there is not."""
    records = []
    for number in range(1_500):
        start = {"attempt": number + 1, "host": "h", "pid": 1, "facade": "x", "started_at": 1.7e9 + number}
        name = {"v": 1, "session": f"s{number}", "previous_outcome": f"reason {number}"}
        records.append(telemetry("session", json.dumps({**name, **start})))
        records.append(telemetry("stall", json.dumps({**name, "state": "begin", "phase": "x", "since": 1.7e9})))
    (run / NAME).write_bytes(b"".join(records))


def much_history(run: Path) -> None:
    """One session with very many stalls that have long stacks, saves and recoveries."""
    stacks = {f"t{index}": ["line " * 20] * 50 for index in range(20)}
    stall = json.dumps({"v": 1, "session": "s", "state": "begin", "phase": "x", "since": 1.7e9, "stacks": stacks})
    saved = json.dumps({"v": 1, "session": "s", "trigger": "timer", "path": "m-1", "step": 1})
    lost = json.dumps({"v": 1, "session": "s", "error": "x", "step": 9, "restored_step": 1})
    records = [telemetry("stall", stall)] * 60 + [telemetry("checkpoint", saved)] * 1_000
    (run / NAME).write_bytes(b"".join([*records, *[telemetry("recovery", lost)] * 10_500]))


def many_launches(run: Path) -> None:
    """START, and a step that is lower than before, over and over."""
    records = []
    for number in range(3_000):
        start = b"\x09" + struct.pack("<d", 1.7e9 + 100 * number) + b"\x10" + varint(number) + field(7, b"\x08\x01")
        records.append(event_format.frame(start))
    for number in range(3_000):
        tag = field(5, field(1, field(1, f"global_step{number % 40}/sec".encode()) + b"\x15" + bytes(4)))
        step = varint(100 - number // 80 % 3 * 40)
        records.append(event_format.frame(b"\x09" + struct.pack("<d", 1.8e9 + number) + b"\x10" + step + tag))
    (run / NAME).write_bytes(b"".join(records))


def many_damaged_records(run: Path) -> None:
    """Tens of thousands of the smallest records, each damaged."""
    (run / NAME).write_bytes((event_format.header(1) + b"x" + bytes(4)) * 20_000)


def sparse_records(run: Path) -> None:
    """Records of 15 MiB of nothing, whose checksums are right: each takes 4 KiB on disk."""
    size = 15 << 20
    value = field(1, field(1, b"t") + b"\x15" + bytes(4))
    hole = b"\x3a" + varint(size)
    head = b"\x2a" + varint(len(value) + len(hole) + size) + value + hole
    body = head + bytes(size)
    footer = event_format.frame(body)[-event_format.FOOTER_BYTES :]
    with open(run / NAME, "wb") as file:
        for _ in range(300):
            file.write(event_format.header(len(body)) + head)
            file.seek(len(body) - len(head), os.SEEK_CUR)
            file.write(footer)


def no_files(run: Path) -> None:
    """FIFOs and links to devices in place of files."""
    (run / ".supervisor.live").mkdir()
    for name in (NAME, "checkpoint", "model.ckpt-1.index", ".supervisor.lock", ".supervisor.live/chief.json"):
        os.mkfifo(run / name)
    (run / f"{NAME}.zero").symlink_to("/dev/zero")
    (run / f"{NAME}.self").symlink_to(run / f"{NAME}.self")


def names_that_speak(run: Path) -> None:
    """A run whose name clears the screen."""
    directory = run / "\x1b[2J\x1b]0;x\x07\nz-honest completed"
    directory.mkdir()
    (directory / NAME).write_bytes(event(field(1, field(1, b"\x1b[31mloss\n") + b"\x15" + bytes(4))))


def doubling_links(run: Path) -> None:
    """26 links that lead to links: 16,383 names of 14 directories."""
    for level in range(13):
        (run / f"d{level}").mkdir()
        (run / f"d{level}" / NAME).write_bytes(event(field(1, field(1, b"loss") + b"\x15" + bytes(4))))
    for level in range(12):
        for name in ("l", "r"):
            (run / f"d{level}" / name).symlink_to(run / f"d{level + 1}")


def large_small_files(run: Path) -> None:
    """Sparse files of gigabytes in place of small ones."""
    (run / NAME).write_bytes(heartbeat(step=1))
    (run / ".supervisor.live").mkdir()
    for name in ("checkpoint", ".supervisor.live/chief.json", "model.ckpt-5.index"):
        with open(run / name, "wb") as file:
            file.write(b'{"v":1')
            file.truncate(3 * GIB)


def deep_text_files(run: Path) -> None:
    """A liveness file and a state file that are nested deeper than the stack, and another store's checkpoints."""
    (run / NAME).write_bytes(heartbeat(step=1))
    (run / ".supervisor.live").mkdir()
    (run / ".supervisor.live" / "chief.json").write_text('{"v":' + "[" * 3_000)
    (run / "checkpoint").write_text("a {" * 5_000)
    (run / "model.ckpt-5.data-00000-of-00001").write_bytes(b"x")


HOSTILE: tuple[Callable[[Path], None], ...] = (
    deep_telemetry,
    odd_telemetry,
    sparse_record,
    lengths_to_the_end,
    many_threads,
    many_sessions,
    much_history,
    many_launches,
    many_damaged_records,
    sparse_records,
    no_files,
    names_that_speak,
    doubling_links,
    large_small_files,
    deep_text_files,
)


def make(logdir: Path) -> None:
    """Make the logdir."""
    honest(logdir / "a-honest")
    for maker in HOSTILE:
        run = logdir / maker.__name__.replace("_", "-")
        run.mkdir()
        maker(run)
    honest(logdir / "z-honest")


if __name__ == "__main__":
    make(Path(sys.argv[1]))

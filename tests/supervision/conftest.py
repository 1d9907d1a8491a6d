"""A session to supervise, with what it says kept in memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from supervisor_core.checkpoint.filesystem import LocalFilesystem
from supervisor_core.events.telemetry import Record, from_json
from supervisor_core.options import Options
from supervisor_core.runtime.registry import ServiceRegistry
from supervisor_core.supervision.outcome import Outcome
from supervisor_core.supervision.supervised_run import SupervisedRun


class KeepingWriter:
    """A summary writer that keeps the telemetry records, and what was synced when."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.synced: list[str] = []
        self.dropped = 0
        self._changed = threading.Condition()

    def add_summary(self, summary: bytes, global_step: int | None = None) -> None:
        from tensorboard.compat.proto import summary_pb2

        (value,) = summary_pb2.Summary.FromString(summary).value
        kind = value.tag.removeprefix("supervisor/")
        with self._changed:
            self.records.append(from_json(kind, value.tensor.string_val[0].decode()))
            self._changed.notify_all()

    def flush(self) -> None:
        raise AssertionError("a writer that can sync is synced")

    def sync(self) -> None:
        self.synced.append(self.records[-1].kind)

    def of(self, kind: str) -> list[Any]:
        """The records of a kind, in order."""
        return [record for record in self.records if record.kind == kind]

    def wait_for(self, kind: str, is_meant: Callable[[Any], bool]) -> Any:
        """The first record of a kind that is meant, once it is there."""
        with self._changed:
            self._changed.wait_for(lambda: any(is_meant(record) for record in self.of(kind)))
            return next(record for record in self.of(kind) if is_meant(record))


@pytest.fixture
def writer() -> KeepingWriter:
    """Where the sessions of a test say what happens."""
    return KeepingWriter()


@pytest.fixture
def begin(tmp_path: Path, writer: KeepingWriter) -> Iterator[Callable[..., SupervisedRun]]:
    """Begin a session in the test's logdir; those that a test leaves open are ended after it."""
    runs: list[SupervisedRun] = []

    def begin(options: Options | None = None, **arguments: Any) -> SupervisedRun:
        run = SupervisedRun(
            logdir=str(tmp_path),
            facade="Test",
            options=options or Options(),
            writer=writer,
            services=ServiceRegistry(),
            **arguments,
        )
        run.begin()
        runs.append(run)
        return run

    yield begin
    for run in runs:
        run.end(Outcome(reason="requested"))
        run.close(0.0)


class HeldFilesystem(LocalFilesystem):
    """Local files; writing waits while the test holds it, and fails while there is a fault."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()
        self.fault: Exception | None = None
        self.writing = threading.Semaphore(0)
        """Released as each write begins."""
        self.written: SimpleQueue[dict[str, Any]] = SimpleQueue()
        """What was put in a file's place, once it is there; a fault in its stead."""

    def replace(self, path: str, data: bytes) -> None:
        self.writing.release()
        self.free.wait()
        if self.fault is not None:
            self.written.put({"fault": str(self.fault)})
            raise self.fault
        super().replace(path, data)
        self.written.put(json.loads(data))


@pytest.fixture
def filesystem() -> Iterator[HeldFilesystem]:
    """A file system that a test holds up; let go after it."""
    held = HeldFilesystem()
    yield held
    held.free.set()

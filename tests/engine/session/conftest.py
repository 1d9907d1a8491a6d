"""A session to supervise, with what it says kept in memory; a cluster's processes, with a file system to hold up."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from supervisor_core.base.options import Options
from supervisor_core.engine.recorder import StopInfo
from supervisor_core.engine.service import ServiceRegistry
from supervisor_core.engine.session_recorder import SessionRecorder
from supervisor_core.engine.worker_registry import WorkerRegistry
from supervisor_core.events.telemetry import Record, WorkerStatus, from_json
from supervisor_core.run.watch.liveness import LivenessRecord, encode, file_name
from supervisor_core.storage.filesystem import Check, Reader, unguarded
from supervisor_core.storage.local import LocalFilesystem


class KeepingWriter:
    """A summary writer that keeps the telemetry records, and what was synced when."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.synced: list[str] = []
        self.dropped = 0
        self._changed = threading.Condition()
        self._last = threading.local()
        """Of each thread: the kind that it wrote last. The monitor's thread may write between two calls of another."""

    def add_summary(self, summary: bytes, global_step: int | None = None) -> None:
        from tensorboard.compat.proto import summary_pb2

        (value,) = summary_pb2.Summary.FromString(summary).value
        kind = value.tag.removeprefix("supervisor/")
        self._last.kind = kind
        with self._changed:
            self.records.append(from_json(kind, value.tensor.string_val[0].decode()))
            self._changed.notify_all()

    def flush(self) -> None:
        raise AssertionError("a writer that can sync is synced")

    def sync(self, timeout_secs: float | None = None) -> None:
        self.synced.append(self._last.kind)

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
def begin(tmp_path: Path, writer: KeepingWriter) -> Iterator[Callable[..., SessionRecorder]]:
    """Begin a session in the test's logdir; those that a test leaves open are ended after it."""
    runs: list[SessionRecorder] = []

    def begin(options: Options | None = None, **arguments: Any) -> SessionRecorder:
        run = SessionRecorder(
            facade="Test",
            options=options or Options(),
            services=ServiceRegistry(),
            **{"logdir": str(tmp_path), "writer": writer, **arguments},
        )
        run.begin()
        runs.append(run)
        return run

    yield begin
    for run in runs:
        run.end(StopInfo(reason="requested"))
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

    def replace(self, path: str, data: bytes, check: Check = unguarded) -> None:
        self.writing.release()
        self.free.wait()
        if (fault := self.fault) is not None:  # which the test may clear at any moment
            self.written.put({"fault": str(fault)})
            raise fault
        super().replace(path, data, check)
        self.written.put(json.loads(data))


@pytest.fixture
def filesystem() -> Iterator[HeldFilesystem]:
    """A file system that a test holds up; let go after it."""
    held = HeldFilesystem()
    yield held
    held.free.set()


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now, self.set_back_secs = 1_000_000.0, 0.0

    def wall(self) -> float:
        return self.now + 7e8 - self.set_back_secs

    def monotonic(self) -> float:
        return self.now


class Shared(LocalFilesystem):
    """Local files; what is asked of them fails on demand."""

    def __init__(self) -> None:
        self.faults: dict[str, Exception] = {}
        self.passing_faults: dict[str, Exception] = {}
        """Each raised once."""
        self.free = threading.Event()
        self.free.set()

    def list_names(self, directory: str) -> list[str]:
        self.free.wait()
        if "list_names" in self.faults:
            raise self.faults["list_names"]
        return super().list_names(directory)

    def open(self, path: str) -> Reader:
        if os.path.basename(path) in self.faults:
            raise self.faults[os.path.basename(path)]
        if os.path.basename(path) in self.passing_faults:
            raise self.passing_faults.pop(os.path.basename(path))
        return super().open(path)


@pytest.fixture
def clock() -> Hands:
    """The chief's."""
    return Hands()


@pytest.fixture
def shared() -> Shared:
    """The file system that the cluster shares."""
    return Shared()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the processes' files are."""
    path = tmp_path / ".supervisor.live"
    path.mkdir()
    return path


@pytest.fixture
def say(directory: Path, clock: Hands) -> Callable[..., None]:
    """Write what a process on another machine says, now by a clock that is right; once more with each call."""
    said: dict[str, LivenessRecord] = {}

    def say(task: str = "worker:1", **values: Any) -> None:
        if task not in said:
            said[task] = LivenessRecord(
                task=task,
                session="a" * 16,
                host="elsewhere",
                pid=4711,
                started_at=clock.wall(),
                written_at=clock.wall(),
                beats=0,
                interval_secs=10.0,
                phase="training",
            )
        beats = said[task].beats + 1
        said[task] = replace(said[task], **{"beats": beats, "written_at": clock.wall(), **values})
        (directory / file_name(task)).write_bytes(encode(said[task]))

    return say


class HandRoster(WorkerRegistry):
    """A registry that reads when a test says so, with its workers in short."""

    def __init__(self, logdir: str, *, clock: Hands, **options: Any) -> None:
        super().__init__(logdir, **{"lost_after_secs": 60.0, "interval_secs": 5.0, "clock": clock, **options})
        self.hands = clock

    def states(self) -> dict[str, str]:
        """State by name, as of a new look."""
        self.scan()
        return {worker.name: worker.state for worker in self.workers()}

    def watch(self, secs: float) -> dict[str, str]:
        """State by name after some seconds in which the chief has read every five."""
        until = self.hands.now + secs
        while self.hands.now < until:
            self.hands.now = min(self.hands.now + 5, until)
            self.scan()
        return {worker.name: worker.state for worker in self.workers()}

    def only(self) -> WorkerStatus:
        """The one process that is listed."""
        (worker,) = self.workers()
        return worker


@pytest.fixture
def registry(tmp_path: Path, clock: Hands, shared: Shared) -> Callable[..., HandRoster]:
    """Make a chief's registry of the test's logdir."""

    def make(**options: Any) -> HandRoster:
        return HandRoster(str(tmp_path), **{"clock": clock, "filesystem": shared, **options})

    return make

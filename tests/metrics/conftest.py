"""A scripted run and a clock that stands still, for every test of the metrics."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from supervisor_core.events.telemetry import (
    HeartbeatRecord,
    NoticeRecord,
    ResumeRecord,
    ThreadStatus,
    WorkerStatus,
)
from supervisor_core.metrics.collector import RunCollector
from supervisor_core.metrics.listener import Environ, Listener, Response
from supervisor_core.metrics.server import MetricsServer
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.distribution import Distribution
from supervisor_core.run.model.run import Session
from supervisor_core.run.status import CheckpointStatus, RunStatus
from tests.conftest import StillClock
from tests.exporter.conftest import ask_web, certificates  # noqa: F401

NOW = 1_700_000_000.0


@pytest.fixture
def clock() -> StillClock:
    """A clock at 1,700,000,000 s."""
    return StillClock(NOW)


@pytest.fixture
def running() -> RunStatus:
    """A run in its third session, training, with everything known that can be known."""
    return RunStatus(
        run="mnist/train",
        active=True,
        state="running",
        session=Session(
            session="3f2a",
            ended_at=None,
            outcome="running",
            inferred=False,
            phase="training",
            resume_check=ResumeRecord(session="3f2a", what="losses", compared=3, equal=3),
            steps=2_345,
            steps_per_sec=8.25,
            last_progress_at=NOW - 0.0625,
            progress_timeout_secs=300.0,
            saves=7,
            save_failures=1,
            save_error="OSError: no space left",
            save_secs=Distribution(bounds=(1.0, 10.0), counts=(4, 3, 0), sum=9.5),
            blocked_secs=Distribution(bounds=(0.01, 0.1), counts=(6, 1, 0), sum=0.0625),
            reported_secs={"productive": 3000.5, "program_startup": 12.0, "checkpoint_restore": 0.0},
            beat=HeartbeatRecord(session="3f2a", watchdog_would_act=1, watchdog_acted={"stop": 2}, events_dropped=2),
            attempt=3,
            host="trainer-0",
            pid=4711,
            started_at=NOW - 3600,
            resume_exact=False,
            checkpoint_interval_secs=600.0,
            versions={"supervisor": "0.1.0", "tensorflow": "2.21.0", "google-crc32c": "1.9.0"},
            world_size=4,
            device_kind="NVIDIA H100",
            device_count=8,
        ),
        labels={"team": "vision", "user": "ada"},
        session_seen_at=NOW,
        ended_at=NOW,
        restarts={"lost": 1, "signal": 1},
        global_step=12_345,
        last_step_at=NOW - 0.125,
        stalled=False,
        step_secs=Distribution(bounds=(0.1, 0.25, 1.0), counts=(2_000, 300, 40, 5), sum=287.5),
        checkpoint=CheckpointStatus(
            recommended_interval_secs=420.0,
            present_interval_secs=600.0,
            last_success=Checkpoint(session="", at=NOW - 90, step=11_600, bytes=104_857_600, secs=2.0),
        ),
        threads=(
            ThreadStatus(name="checkpoint", state="idle", ticks=7, failures=1, last_tick_at=NOW - 90),
            ThreadStatus(name="summary", state="overdue", ticks=30, last_tick_at=NOW - 150, overdue_secs=30.0),
            ThreadStatus(name="my loop", state="failed"),
        ),
        workers=(
            WorkerStatus(name="worker:1", state="running", steps=70, last_seen_at=NOW - 3),
            WorkerStatus(name="worker:2", state="lost", last_seen_at=NOW - 300),
        ),
        launches={"oom": 1, "preempted": 2},
        failures={("trainer-0", "lost"): 0, ("trainer-7", "oom"): 1},
        lost_process_secs={"infrastructure_recovery_from_disruption": 480.0, "stall": 0.0},
        steps_lost=130,
        run_activity_secs={"productive": 9000.5, "infrastructure_recovery_from_disruption": 60.0},
        goodput=0.875,
        events_failing=False,
        notices=(
            NoticeRecord(session="3f2a", severity="warn", text="accuracy fell", count=2, since=NOW - 9, at=NOW - 5),
        ),
        loss_finite=True,
        restarting=False,
        clock_skew_secs=-600.0,
        info={"logdir": "/data/mnist"},
    )


@pytest.fixture
def starting() -> RunStatus:
    """A run that has only just begun: no step, no checkpoint, no thread."""
    return RunStatus(
        run="fresh",
        active=True,
        session=Session(
            session="",
            attempt=1,
            started_at=NOW,
            ended_at=None,
            outcome="running",
            inferred=False,
            phase="starting",
            steps=0,
            last_progress_at=NOW,
            beat=HeartbeatRecord(session=""),
        ),
    )


class Talk:
    """Ways to talk to a server under test."""

    ask = staticmethod(ask_web)

    @staticmethod
    def connect(server: MetricsServer) -> socket.socket:
        """Return a connection over which nothing has been said."""
        assert server.address is not None
        host, _, port = server.address.rpartition(":")
        return socket.create_connection((host, int(port)))

    @staticmethod
    def rest(connection: socket.socket) -> bytes:
        """Return what still comes until the server hangs up, or throws away what it has not read."""
        heard = b""
        with contextlib.suppress(ConnectionResetError):
            while more := connection.recv(65536):
                heard += more
        return heard

    @staticmethod
    def wait_until(condition: Callable[[], bool]) -> None:
        """Return when something is true."""
        pause = threading.Event()
        while not condition():
            pause.wait(0.01)

    @staticmethod
    def in_thread(call: Callable[[], Any]) -> Callable[[], Any]:
        """Begin a call in a thread; return what waits for its result."""
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
        thread.start()

        def result() -> Any:
            thread.join()
            return results[0]

        return result


@pytest.fixture
def talk() -> type[Talk]:
    """Ways to talk to a server under test."""
    return Talk


@pytest.fixture
def listening() -> Iterator[Callable[..., Listener]]:
    """Returns a function that starts a listener, by default without TLS and patient, which answers as it is told."""
    started: list[Listener] = []

    def start(respond: Callable[[Environ], Response], **how: Any) -> Listener:
        given = {"ssl_context": lambda: None, "client_timeout_secs": 600.0, **how}
        started.append(Listener("127.0.0.1", 0, respond, **given))
        started[-1].start()
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def collector(running: RunStatus, clock) -> RunCollector:
    """A collector of the running run, whose scrape is `EXPECTED`."""
    return RunCollector(lambda: [running], clock=clock)


@pytest.fixture
def server(collector: RunCollector, clock) -> Iterator[MetricsServer]:
    """A server of that collector, on a free port."""
    with MetricsServer(collector, ":0", clock=clock) as serving:
        yield serving

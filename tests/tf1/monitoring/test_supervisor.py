"""The real Supervisor hangs and dies, and whoever is on call hears of it, through real servers."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forked import Forked, ForkServer
from monitoring_end_to_end import FIRING, KILLED, RESOLVED, RESUMED, Trainer, assert_planned_stop_is_silent
from monitoring_servers import Prometheus, Webhook, queries_of, wait_until

from benchmarks.faults.small_disk import SmallDisk
from supervisor_core.engine.liveness_writer import LivenessWriter
from supervisor_core.events.telemetry import HeartbeatRecord, StopRecord
from supervisor_core.metrics.config_files import dashboard


@pytest.fixture
def launch(fork_server: ForkServer) -> Callable[..., Forked]:
    """Starts the training: one under the real Supervisor."""
    return lambda *arguments: fork_server.start([str(Path(__file__).with_name("supervised.py")), *arguments])


@pytest.fixture
def disk(exporter: str, tmp_path: Path) -> Iterator[SmallDisk]:
    """The disk of the run's directory, which can be filled: a small one, or without the right to mount it a limit of
    the training's process. The exporter has made the logdir."""
    with SmallDisk(tmp_path / "logs" / "digits", megabytes=4) as small:
        yield small


@pytest.fixture
def worker(disk: SmallDisk, tmp_path: Path) -> Iterator[LivenessWriter]:
    """Another process of the training's cluster, as far as its chief can see."""
    heartbeats = LivenessWriter(tmp_path / "logs" / "digits", "worker:1", "w" * 16, interval_secs=1.0)
    heartbeats.write(HeartbeatRecord(session="w" * 16, phase="training", step=5, steps=5))
    heartbeats.start()
    yield heartbeats
    heartbeats.close()


@pytest.mark.timeout(600)
def test_a_supervisor_is_seen_by_prometheus(
    prometheus: Prometheus, trainer: Trainer, webhook: Webhook, disk: SmallDisk, worker: LivenessWriter
) -> None:
    """Hung inside `session.run`, then killed and resumed: each arrives, once, and resolves; so does a loss that is
    NaN for a while, and a disk that is full for a while, of which neither source says that the training hangs or is
    dead; SIGTERM is silent.

    By then the run has something to show in every panel of the dashboard but one: nothing is recommended yet.
    """
    webhook.repeated.add("SupervisorCheckpointTooOld")  # with holds of a second, one failed save is enough
    trainer.start()
    trainer.is_known(prometheus)

    trainer.command("hold")
    assert webhook.next() == FIRING
    trainer.command("go")
    assert webhook.next() == RESOLVED

    trainer.send(signal.SIGKILL)
    assert webhook.next() == KILLED  # not as stalled before, though its budget is over much sooner
    trainer.close()
    trainer.start()
    assert webhook.next() == RESUMED

    trainer.command("nan")
    assert webhook.next() == ("firing", "SupervisorLossNotFinite", "digits")
    trainer.command("finite")
    assert webhook.next() == ("resolved", "SupervisorLossNotFinite", "digits")
    # The exporter learns of it later. Where a busy machine misses a scrape of it meanwhile, the trainer alone decides
    # for a moment; then the alert fires again until the exporter knows, too.
    webhook.repeated.add("SupervisorLossNotFinite")
    wait_until(lambda: prometheus.value('supervisor_loss_finite{job="training"}'), "training to know of it")
    wait_until(lambda: not prometheus.query('supervisor_loss_finite{job="exporter"} == 0'), "exporter to know of it")

    for query in queries_of(dashboard(), "digits"):
        if "recommended" not in query:  # that takes three failures
            prometheus.data(query)

    worker.write(StopRecord(session="w" * 16, reason="completed"))
    worker.close()
    assert trainer.process is not None
    disk.fill(trainer.process)
    full = {"SupervisorEventsNotWritten", "SupervisorSavesFailing"}
    assert {webhook.next() for _ in full} == {("firing", name, "digits") for name in full}
    read_from_the_lease = 'supervisor_events_failing{job="exporter"} == 1'
    wait_until(lambda: prometheus.query(read_from_the_lease), "the exporter to know why nothing is written")
    (state,) = prometheus.query('supervisor_run_state{job="exporter"} == 1')
    assert state["metric"]["state"] == "running"
    disk.free(trainer.process)
    assert {webhook.next() for _ in full} == {("resolved", name, "digits") for name in full}
    # The exporter learns of it later, and alone decides once the training is over.
    known_late = 'supervisor_events_failing{job="exporter"} == 1 or supervisor_thread_up{job="exporter"} == 0'
    wait_until(lambda: not prometheus.query(known_late), "the exporter to know that all is written again")

    trainer.send(signal.SIGTERM)
    assert trainer.wait() == -signal.SIGTERM
    assert_planned_stop_is_silent(prometheus, webhook)

from __future__ import annotations

from dataclasses import dataclass, field

from examples.demo.metrics import is_ready, scrape
from supervisor_core.metrics.collector import RunCollector
from supervisor_core.metrics.server import MetricsServer
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.status import CheckpointStatus, RunStatus


@dataclass
class Training:
    """A run whose metrics are served."""

    status: RunStatus = field(default_factory=lambda: RunStatus(run="digits", active=True, phase="starting"))
    ready: bool = False


def test_a_reading_is_what_the_trainer_serves() -> None:
    """Phase, step, speed and newest checkpoint are read from the very page that the supervisor serves."""
    status = RunStatus(
        run="digits",
        active=True,
        phase="training",
        global_step=640,
        steps_per_second=200.5,
        checkpoint=CheckpointStatus(last_success=Checkpoint(session="", at=0.0, step=600)),
    )
    with MetricsServer(RunCollector(lambda: [status]), ":0") as server:
        reading = scrape(server.url or "")
    assert reading is not None
    assert (reading.phase, reading.step, reading.steps_per_second) == ("training", 640, 200.5)
    assert reading.checkpoint_step == 600
    assert reading.checkpoint_age_secs is not None


def test_readiness_is_asked_for() -> None:
    """``/-/ready`` answers whether the run is training."""
    training = Training()
    with MetricsServer(RunCollector(lambda: [training.status]), ":0", ready=lambda: training.ready) as server:
        assert not is_ready(server.url or "")
        training.ready = True
        assert is_ready(server.url or "")

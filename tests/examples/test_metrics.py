from __future__ import annotations

from dataclasses import dataclass, field
from unittest.mock import ANY

from examples.demo.metrics import Reading, is_ready, scrape
from supervisor_core.metrics.collector import RunCollector
from supervisor_core.metrics.server import MetricsServer
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.status import CheckpointStatus, RunStatus
from tests.cases import each


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


def test_what_is_not_known_yet_is_none() -> None:
    """A run that is starting has a phase and nothing else."""
    training = Training()
    with MetricsServer(RunCollector(lambda: [training.status]), ":0") as server:
        assert scrape(server.url or "") == Reading(phase="starting", page=ANY)


def test_readiness_is_asked_for() -> None:
    """``/-/ready`` answers whether the run is training."""
    training = Training()
    with MetricsServer(RunCollector(lambda: [training.status]), ":0", ready=lambda: training.ready) as server:
        assert not is_ready(server.url or "")
        training.ready = True
        assert is_ready(server.url or "")


@each("ask", [scrape, is_ready])
def test_a_missing_trainer_is_no_error(ask: object) -> None:
    """A trainer that is not there yet, or has gone, gives no reading."""
    with MetricsServer(RunCollector(lambda: []), ":0") as server:
        url = server.url or ""
    assert callable(ask)
    assert not ask(url)

"""From a training to whoever is on call, through real servers: exactly the right alert arrives, and goes again."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from monitoring_end_to_end import (
    BACK,
    FIRING,
    KILLED,
    RESOLVED,
    RESUMED,
    VANISHED,
    Trainer,
    assert_planned_stop_is_silent,
)
from monitoring_servers import PATIENCE_SECS, Prometheus, Webhook, wait_until


@pytest.fixture
def launch() -> Callable[..., subprocess.Popen[str]]:
    """Starts the training: one that needs no framework."""
    program = [sys.executable, str(Path(__file__).with_name("trainer.py"))]
    return lambda *arguments: subprocess.Popen(
        [*program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Returns a function that starts another process of the training's cluster, and waits until it beats."""
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        command = [
            sys.executable,
            str(Path(__file__).with_name("worker.py")),
            str(tmp_path / "logs" / "digits"),
            "worker:1",
        ]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "beating\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.timeout(600)
def test_exactly_the_right_alert_arrives(
    prometheus: Prometheus,
    trainer: Trainer,
    webhook: Webhook,
    worker: Callable[[], subprocess.Popen[str]],
    exporter: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed, hung in a step, too slow, a worker of its cluster killed: the loss, or stall, arrives, once and alone,
    and resolves; a planned end, of the worker or of all, is silent. A logdir that vanishes takes no alert with it, and
    is one. What is said of the run goes to the team that its labels name."""
    monkeypatch.setenv("SUPERVISOR_LABELS", "team=vision")
    trainer.start()
    trainer.is_known(prometheus)

    trainer.send(signal.SIGKILL)
    assert webhook.next() == KILLED
    trainer.close()

    logdir = tmp_path / "logs"
    gone = logdir.rename(tmp_path / "unmounted")
    assert webhook.next() == VANISHED
    assert prometheus.query('ALERTS{alertname="SupervisorTrainingLost",alertstate="firing",run="digits"}')
    logdir.mkdir()  # the mount point
    looked = 'supervisor_exporter_logdir_up == 0 and on (job) supervisor_run_state{state="unreachable"} == 1'
    wait_until(lambda: prometheus.query(looked), "a look at the empty mount point")
    logdir.rmdir()
    gone.rename(logdir)
    assert webhook.next() == BACK

    trainer.start()
    assert webhook.next() == RESUMED

    process = worker()
    wait_until(lambda: prometheus.value('supervisor_worker_up{job="training"}'), "the worker from its chief")
    process.kill()
    assert webhook.next() == ("firing", "SupervisorWorkerLost", "digits")
    process = worker()
    assert webhook.next() == ("resolved", "SupervisorWorkerLost", "digits")
    process.communicate(timeout=PATIENCE_SECS)
    assert process.returncode == 0
    wait_until(lambda: not prometheus.query("supervisor_worker_up"), "the worker's end to be known")

    trainer.command("hold")
    assert webhook.next() == FIRING
    trainer.command("step")  # so slow that each step takes longer than it may
    assert [webhook.next(), webhook.next()] == [RESOLVED, FIRING]
    trainer.command("go")
    assert webhook.next() == RESOLVED

    trainer.command("stop")
    trainer.expect("stopped")
    assert_planned_stop_is_silent(prometheus, webhook)
    assert {(bool(alert["labels"].get("run")), alert["receiver"]) for alert in webhook.received} == {
        (True, "vision"),
        (False, "hook"),
    }
    stalls = [alert for alert in webhook.received if alert["labels"]["alertname"] == FIRING[1]]
    assert {alert["annotations"]["summary"].rpartition(" First: ")[2] for alert in stalls} == {
        f"tb-supervisor stacks -- {tmp_path}/logs/digits"
    }

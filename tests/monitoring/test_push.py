"""A training behind a wall: its pushes arrive in a real Prometheus, and its death, and nothing else, at whoever is on
call."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from monitoring_end_to_end import KILLED, RESUMED, Trainer, alerting, assert_planned_stop_is_silent
from monitoring_servers import Prometheus, Webhook, wait_until

from tests.otlp_receiver import OtlpReceiver

REMOTE_WRITE = "--web.enable-remote-write-receiver"


@contextmanager
def receiving(prometheus: Prometheus, flag: str) -> Iterator[str]:
    """Have an OTLP receiver before a Prometheus with this flag while the block runs; yields what a training gets."""
    address = f"http://{prometheus.address}/api/v1"
    if flag != REMOTE_WRITE:
        yield f"{address}/otlp"
        return
    with OtlpReceiver(remote_write=f"{address}/write") as receiver:
        yield receiver.url


@pytest.fixture(params=["its own receiver", "a receiver of ours"])
def flag(request: pytest.FixtureRequest, tool: Callable[[str], str]) -> str:
    """The flag with which a Prometheus takes pushes: by its own receiver, where it was built with that, and by remote
    write, from ours."""
    if request.param == "a receiver of ours":
        return REMOTE_WRITE
    shown = subprocess.run([tool("prometheus"), "--help"], capture_output=True, text=True, check=True).stdout
    for name in ("--web.enable-otlp-receiver", "otlp-write-receiver"):
        if name in shown:
            return name if name.startswith("--") else f"--enable-feature={name}"
    pytest.skip("this Prometheus has no OTLP receiver: Debian builds it without")


def launch(*arguments: str) -> subprocess.Popen[str]:
    """Start a training that no framework is needed for."""
    program = [sys.executable, str(Path(__file__).with_name("trainer.py")), *arguments]
    return subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_death_behind_a_wall_arrives(
    flag: str, tool: Callable[[str], str], webhook: Webhook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed: the loss arrives, once and alone, and resolves when its next session pushes; a planned end, which the
    last push says, is silent."""
    trainer = Trainer(launch, tmp_path / "logs" / "digits", 300)
    trainer.address = ""
    options = ["--hold=1s", "--unanswered=35s"]
    with (
        alerting(tool, tmp_path, webhook, {}, options=options, flags=[flag]) as prometheus,
        receiving(prometheus, flag) as endpoint,
    ):
        monkeypatch.setenv("SUPERVISOR_OTLP_ENDPOINT", endpoint)
        try:
            trainer.start()
            wait_until(lambda: prometheus.value("supervisor_active"), "the run")
            for name in ("steps_total", "step_duration_seconds_bucket", "run_info", "phase", "build_info"):
                assert prometheus.query(f'supervisor_{name}{{job="training",instance=~".+:[0-9a-f]+",run="digits"}}')
            assert prometheus.query("process_resident_memory_bytes")
            trainer.send(signal.SIGKILL)
            assert webhook.next() == KILLED
            trainer.close()
            trainer.start()
            assert webhook.next() == RESUMED
            trainer.command("stop")
            trainer.expect("stopped")
            assert_planned_stop_is_silent(prometheus, webhook)
        finally:
            trainer.close()

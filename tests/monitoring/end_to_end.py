"""What an alert goes through from a training to whoever is on call: a trainer and an exporter, processes of their own,
a real Prometheus that scrapes them with the rules as they are shipped, a real Alertmanager, and a webhook.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from forked import Forked
from monitoring_servers import PATIENCE_SECS, Alertmanager, Prometheus, Webhook, wait_until
from ports import free_port

from supervisor_core.cli import main

BUDGET_SECS = 6
"""How long a step may take in these trainings."""

STALLED, LOST = "SupervisorTrainingStalled", "SupervisorTrainingLost"
FIRING, RESOLVED = ("firing", STALLED, "digits"), ("resolved", STALLED, "digits")
"""What arrives of the run's stall."""
KILLED, RESUMED = ("firing", LOST, "digits"), ("resolved", LOST, "digits")
"""What arrives of its death."""
VANISHED, BACK = (("firing", "SupervisorLogdirUnreachable", ""), ("resolved", "SupervisorLogdirUnreachable", ""))
"""What arrives of its logdir."""

COMMAND = [sys.executable, "-c", "from supervisor_core.cli import main; main()"]


Launch = Callable[..., "subprocess.Popen[str] | Forked"]
"""Starts a training with a logdir, an address for its metrics, and how long a step may take."""


class Trainer:
    """A training in a process of its own, always at the same address."""

    def __init__(self, launch: Launch, logdir: Path, budget_secs: float = BUDGET_SECS) -> None:
        self._launch = launch
        self._logdir = logdir
        self._budget_secs = budget_secs
        self.address = f"127.0.0.1:{free_port()}"
        self.process: subprocess.Popen[str] | Forked | None = None

    def start(self) -> None:
        """Begin a session, and wait until it trains."""
        self.begin()
        self.expect("training")

    def begin(self) -> None:
        """Begin a session."""
        self.process = self._launch(str(self._logdir), self.address, str(self._budget_secs))

    def command(self, line: str) -> None:
        """Write a command to its standard input."""
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def expect(self, word: str) -> None:
        """Wait until it says something."""
        assert self.process is not None and self.process.stdout is not None
        assert self.process.stdout.readline().strip() == word

    def is_known(self, prometheus: Prometheus) -> None:
        """Wait until Prometheus has the run from both that serve it."""
        for job in ("training", "exporter"):
            wait_until(lambda job=job: prometheus.value(f'supervisor_active{{job="{job}"}}'), f"the run from {job}")

    def send(self, signum: signal.Signals) -> None:
        """Send a signal."""
        assert self.process is not None
        self.process.send_signal(signum)

    def wait(self) -> int:
        """Wait until the process has ended; return its status."""
        assert self.process is not None
        return self.process.wait(PATIENCE_SECS)

    def close(self) -> None:
        """Make sure that it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout):
                assert stream is not None
                stream.close()


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    """Whoever is on call."""
    hook = Webhook()
    yield hook
    hook.close()


@pytest.fixture
def trainer(launch: Launch, tmp_path: Path) -> Iterator[Trainer]:
    """A training by the test's own `launch`, not begun yet."""
    training = Trainer(launch, tmp_path / "logs" / "digits")
    yield training
    training.close()


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[str]:
    """The address of an exporter of the logdir."""
    address = f"127.0.0.1:{free_port()}"
    logdir = tmp_path / "logs"
    logdir.mkdir()
    arguments = [f"--logdir={logdir}", f"--web.listen-address={address}", "--refresh-interval=1", *HOLDS]
    with (tmp_path / "exporter.log").open("wb") as log:
        process = subprocess.Popen([*COMMAND, "exporter", *arguments], stdout=log, stderr=log)
    yield address
    process.terminate()
    assert process.wait(PATIENCE_SECS) == 0


@pytest.fixture
def prometheus(
    tool: Callable[[str], str], tmp_path: Path, webhook: Webhook, trainer: Trainer, exporter: str
) -> Iterator[Prometheus]:
    """The Prometheus that scrapes both."""
    with alerting(tool, tmp_path, webhook, {"training": trainer.address, "exporter": exporter}) as server:
        yield server


HOLDS = [f"--{name}=1s" for name in ("stall-hold", "dead-hold", "hold", "save-hold", "worker-hold")]


@contextmanager
def alerting(
    tool: Callable[[str], str],
    directory: Path,
    webhook: Webhook,
    targets: Mapping[str, str],
    *,
    interval: str = "1s",
    options: Sequence[str] = ("--hold=1s",),
    inhibit_rules: Sequence[Mapping[str, Any]] = (),
    flags: Sequence[str] = (),
) -> Iterator[Prometheus]:
    """Have a Prometheus that scrapes the targets, by their jobs, and alerts while the block runs: within seconds, with
    other options of ``tb-supervisor rules`` as these say. It gets the flags, too."""
    rules = CliRunner().invoke(main, ["rules", f"--interval={interval}", *options])
    assert rules.exit_code == 0
    text = rules.stdout if interval != "1s" else re.sub(r"\b(keep_firing_for|for): \w+", r"\1: 1s", rules.stdout)
    alertmanager = Alertmanager(tool("prometheus-alertmanager"), directory, webhook.url, inhibit_rules)
    try:
        subprocess.run([tool("amtool"), "check-config", str(alertmanager.config)], check=True, capture_output=True)
        server = Prometheus(
            tool("prometheus"),
            directory,
            targets=targets,
            rules=text,
            alertmanager=alertmanager.address,
            interval=interval,
            flags=flags,
        )
        try:
            yield server
        finally:
            server.close()
    finally:
        alertmanager.close()


def assert_planned_stop_is_silent(prometheus: Prometheus, webhook: Webhook) -> None:
    """Check that after the end of the training nothing fires, and that nothing unexpected was sent."""
    begun = time.time()  # a stall would have been an alert by then
    wait_until(lambda: time.time() - begun > BUDGET_SECS + 5, "the stop to be long ago")
    alerts, rest = prometheus.query("ALERTS"), webhook.rest()
    assert (alerts, rest) == ([], []), (alerts, rest)
    for alert in webhook.received:
        texts = alert["annotations"]
        about = alert["labels"].get("run") or alert["labels"]["logdir"]
        assert set(texts) == {"summary", "description", "runbook_url"} and about in texts["summary"]
        assert " Since " in texts["summary"] and " First: " in texts["summary"]
        assert not any("{{" in text or "<error" in text for text in texts.values())

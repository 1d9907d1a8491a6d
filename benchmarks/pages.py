"""How soon the page comes: real trainings, exporters, Prometheus and Alertmanager, all defaults, up to the webhook.

All troubles happen at once, each to a run of its own. What is measured is the time from the trouble to the webhook; the
most that it may take is the sum of the intervals on the way and of the alert's hold.

    python -m benchmarks --only pages [--write]
"""

from __future__ import annotations

import importlib.util
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.report import Row

ROOT = Path(__file__).parents[1]
TOOLS = ("prometheus", "prometheus-alertmanager")
COMMAND = [sys.executable, "-c", "from supervisor_core.cli import main; main()"]
INTERVAL = "15s"
BOTH, EXPORTER, TRAINER = "trainer and exporter scraped", "only the exporter scraped", "only the trainer scraped"

FAILED, LOST, STALLED = "SupervisorTrainingFailed", "SupervisorTrainingLost", "SupervisorTrainingStalled"
VANISHED, NAN, LOOP = "SupervisorLogdirUnreachable", "SupervisorLossNotFinite", "SupervisorRestartLoop"
WORKER, DOWN = "SupervisorWorkerLost", "SupervisorExporterDown"


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What happens to a run."""

    name: str
    """The run's."""
    text: str
    alert: str
    most_secs: float
    """At most so long, with all defaults."""
    happen: Callable[[Case], None]
    phase: str = "training"
    sources: str = BOTH


@dataclass
class Case:
    """A trouble, and the processes that it happens to."""

    trouble: Trouble
    logdir: Path
    address: str
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    exporter: subprocess.Popen[bytes] | None = None
    began: float = 0.0
    secs: float | None = None

    @property
    def rundir(self) -> Path:
        return self.logdir / self.trouble.name

    def start(self, *words: str) -> None:
        """Start the training, or with words another process of it; return once it is ready."""
        arguments = words or (self.trouble.name, self.address, self.trouble.phase)
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.pages_trainer", str(self.rundir), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.processes.append(process)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"

    def tell(self, command: str) -> None:
        stdin = self.processes[0].stdin
        assert stdin is not None
        stdin.write(f"{command}\n")
        stdin.flush()

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()
        if self.exporter is not None:
            self.exporter.kill()
            self.exporter.wait()


def kill(case: Case) -> None:
    """As the kernel does, out of memory."""
    case.processes[-1].kill()


def freeze(case: Case) -> None:
    case.processes[0].send_signal(signal.SIGSTOP)


def vanish(case: Case) -> None:
    case.logdir.rename(case.logdir.with_name(case.logdir.name + "-gone"))


def crash_again_and_again(case: Case) -> None:
    for _ in range(3):
        case.processes[-1].kill()
        case.processes[-1].wait()
        case.start()


def lose_the_exporter(case: Case) -> None:
    assert case.exporter is not None
    case.exporter.kill()


def telling(command: str) -> Callable[[Case], None]:
    return lambda case: case.tell(command)


TROUBLES = (
    Trouble(name="raises", text="an exception", alert=FAILED, most_secs=75, happen=telling("raise")),
    Trouble(
        name="raises-alone", text="an exception", alert=FAILED, most_secs=75, happen=telling("raise"), sources=EXPORTER
    ),
    Trouble(
        name="evaluates", text="`kill -9` in an evaluation", alert=LOST, most_secs=75, happen=kill, phase="evaluating"
    ),
    Trouble(
        name="evaluates-alone",
        text="`kill -9` in an evaluation",
        alert=LOST,
        most_secs=75,
        happen=kill,
        phase="evaluating",
        sources=EXPORTER,
    ),
    Trouble(
        name="restores",
        text="`kill -9` in a restore",
        alert=LOST,
        most_secs=75,
        happen=kill,
        phase="restoring",
        sources=EXPORTER,
    ),
    Trouble(
        name="saves",
        text="`kill -9` in a save",
        alert=LOST,
        most_secs=75,
        happen=kill,
        phase="checkpointing",
        sources=TRAINER,
    ),
    Trouble(name="freezes", text="SIGSTOP in a step", alert=LOST, most_secs=75, happen=freeze),
    Trouble(
        name="vanishes",
        text="the logdir vanishes",
        alert=VANISHED,
        most_secs=105,
        happen=vanish,
        sources=EXPORTER,
    ),
    Trouble(
        name="hangs",
        text="no step ends, and its process answers or writes heartbeats (learned hang timeout: 6 s)",
        alert=STALLED,
        most_secs=126,
        happen=telling("hang"),
    ),
    Trouble(name="diverges", text="the loss is NaN or infinite", alert=NAN, most_secs=45, happen=telling("nan")),
    Trouble(
        name="crashes",
        text="it crashes and is started again: after the third time within the hour",
        alert=LOOP,
        most_secs=45,
        happen=crash_again_and_again,
    ),
    Trouble(name="chief", text="another process of its cluster is lost", alert=WORKER, most_secs=240, happen=kill),
    Trouble(
        name="unwatched",
        text="an exporter, or one of two, is gone",
        alert=DOWN,
        most_secs=660,
        happen=lose_the_exporter,
        sources=EXPORTER,
    ),
)

OWN_EXPORTER = ("vanishes", "unwatched")
"""What happens to these must not touch others."""


def rows(quick: bool) -> Iterator[Row]:
    """Yield how long each page took."""
    if missing := [name for name in TOOLS if shutil.which(name) is None]:
        yield Row("pages", "not measured", "s", None, {}, "", None, f"not installed: {', '.join(missing)}")
        return
    troubles = [trouble for trouble in TROUBLES if not quick or trouble.most_secs <= 120]
    for case in measured(troubles):
        trouble = case.trouble
        met = case.secs is not None and case.secs <= trouble.most_secs
        what = f"{trouble.text}; {trouble.sources}"
        yield Row("pages", what, "s", case.secs, {}, f"at most {trouble.most_secs:.0f} s", met, trouble.alert)


def measured(troubles: list[Trouble]) -> list[Case]:
    """Let everything happen, and wait for the pages."""
    servers = test_servers()
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        top = Path(directory)
        cases = []
        for trouble in troubles:
            own = trouble.name in OWN_EXPORTER or trouble.sources == TRAINER
            address = "" if trouble.sources == EXPORTER else f"127.0.0.1:{servers.free_port()}"
            cases.append(Case(trouble, top / (f"logs-{trouble.name}" if own else "logs"), address))
            stack.callback(cases[-1].close)
        targets = {f"training-{case.trouble.name}": case.address for case in cases if case.address}
        watched = [case for case in cases if case.trouble.sources != TRAINER]
        for number, logdir in enumerate(sorted({case.logdir for case in watched})):
            process, address = started_exporter(logdir, servers.free_port(), top / f"exporter-{number}.log")
            targets[f"exporter-{number}"] = address
            stack.callback(process.kill)
            for case in watched:
                if case.logdir == logdir and case.trouble.name in OWN_EXPORTER:
                    case.exporter = process
        webhook = servers.Webhook()
        stack.callback(webhook.close)
        alertmanager = servers.Alertmanager(shutil.which(TOOLS[1]), top, webhook.url)
        stack.callback(alertmanager.close)
        rules = subprocess.run([*COMMAND, "rules"], capture_output=True, text=True, check=True).stdout
        prometheus = servers.Prometheus(
            shutil.which(TOOLS[0]),
            top,
            targets=targets,
            rules=rules,
            alertmanager=alertmanager.address,
            interval=INTERVAL,
        )
        stack.callback(prometheus.close)
        for case in cases:
            case.start()
            if case.trouble.alert == WORKER:
                case.start("worker:1")
        for case in cases:
            known = 1 + (case.trouble.sources == BOTH)
            run = f'run="{case.trouble.name}"'
            metric = "supervisor_worker_up" if case.trouble.alert == WORKER else "supervisor_active"
            servers.wait_until(
                lambda query=f"{metric}{{{run}}}", known=known: len(prometheus.query(query)) == known, case.trouble.name
            )
        for case in cases:
            case.trouble.happen(case)
            case.began = time.monotonic()
        wait_for_pages(cases, webhook)
        return cases


def wait_for_pages(cases: list[Case], webhook: Any) -> None:
    """Record when each page arrived; give up half a minute after the last may come."""
    while waiting := [case for case in cases if case.secs is None]:
        until = max(case.began + case.trouble.most_secs for case in waiting) + 30
        try:
            webhook.next(max(0.0, until - time.monotonic()))
        except queue.Empty:
            return
        alert, now = webhook.received[-1], time.monotonic()
        for case in waiting:
            if (
                alert["status"] == "firing"
                and alert["labels"]["alertname"] == case.trouble.alert
                and is_about(alert, case)
            ):
                case.secs = now - case.began


def is_about(alert: dict[str, Any], case: Case) -> bool:
    """Whether an alert is about a case: by its run, or where it names none, by what only this case has."""
    labels = alert["labels"]
    return labels["run"] == case.trouble.name if "run" in labels else case.trouble.name in OWN_EXPORTER


def started_exporter(logdir: Path, port: int, log: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start an exporter with all defaults."""
    logdir.mkdir()
    address = f"127.0.0.1:{port}"
    command = [*COMMAND, "exporter", f"--logdir={logdir}", f"--web.listen-address={address}"]
    with log.open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=os.environ), address


def test_servers() -> ModuleType:
    """The servers of the tests of the monitoring, and the ports that they take."""
    for name, path in (("ports", "ports.py"), ("monitoring_servers", "monitoring/servers.py")):
        spec = importlib.util.spec_from_file_location(name, ROOT / "tests" / path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules["monitoring_servers"]

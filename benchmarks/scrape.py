"""What a scrape costs the training process: CPU time spent in it, and how long the scraper waits.

Each contender serves from a process of its own, as a trainer would, and is asked as Prometheus 2 asks (OpenMetrics,
gzip). CPU time is the serving process's own, so that neither the client nor other work on the machine counts.

    python -m benchmarks.scrape [--quick]
"""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.report import Row

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from supervisor_core.metrics import RunCollector
from supervisor_core.run.status import RunStatus

GOAL_MS = 2.0
ACCEPT = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
OURS = "ours"
LIBRARY_SERVER = "our collector behind prometheus_client's start_http_server"
INSTRUMENTED = "as many prometheus_client metrics behind its start_http_server"


def status() -> RunStatus:
    """Return a run as a trainer with six service threads and the runtime's own histogram bounds would show it."""
    from supervisor_core.base.options import PHASES
    from supervisor_core.engine.progress import BUCKETS
    from supervisor_core.events.telemetry import HeartbeatRecord
    from supervisor_core.run.model.checkpoints import Checkpoint
    from supervisor_core.run.model.distribution import SAVE_BOUNDS, STEP_BOUNDS, Distribution
    from supervisor_core.run.model.run import Session
    from supervisor_core.run.status import CheckpointStatus, RunStatus, ThreadStatus

    def spread(bounds: tuple[float, ...]) -> Distribution:
        return Distribution(bounds=bounds, counts=tuple(range(len(bounds) + 1)), sum=123.456)

    now = time.time()
    names = ("checkpoint", "summary", "step_counter", "heartbeat", "queue_runner", "own_loop")
    return RunStatus(
        run="digits",
        active=True,
        state="running",
        session=Session(
            ended_at=None,
            outcome="running",
            inferred=False,
            phase=PHASES[2],
            steps=234_567,
            steps_per_sec=123.4,
            last_progress_at=now,
            progress_timeout_secs=300.0,
            saves=140,
            save_secs=spread(SAVE_BOUNDS),
            blocked_secs=spread(SAVE_BOUNDS),
            reported_secs=dict.fromkeys(BUCKETS, 1234.5),
            beat=HeartbeatRecord(session="3f2a9c1e5d7b8046"),
            session="3f2a9c1e5d7b8046",
            attempt=4,
            started_at=now - 86_400,
            host="trainer-0",
            pid=4711,
            facade="Supervisor",
            checkpoint_interval_secs=600.0,
            versions={"python": "3.12.3", "tensorflow": "2.21.0", "numpy": "2.4.6"},
        ),
        restarts={"lost": 1, "signal": 1, "error": 1},
        global_step=1_234_567,
        last_step_at=now,
        step_secs=spread(STEP_BOUNDS),
        checkpoint=CheckpointStatus(
            recommended_interval_secs=420.0,
            last_success=Checkpoint(session="", at=now - 90, step=1_230_000, bytes=500_000_000),
        ),
        threads=tuple(
            ThreadStatus(name=name, state="idle", interval_secs=60.0, ticks=1440, last_tick_at=now) for name in names
        ),
        steps_lost=130,
        goodput=0.95,
        info={"logdir": "/data/digits"},
    )


def serve(contender: str) -> None:
    """Serve until stdin ends; print the port first, then, for each line read, the CPU seconds spent so far."""
    from supervisor_core.metrics import MetricsServer, RunCollector

    run = status()
    collector = RunCollector(lambda: [run])
    if contender == OURS:
        server = MetricsServer(collector, ":0")
        server.start()
        port = int((server.address or ":0").rpartition(":")[2])
    else:
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry()
        if contender == LIBRARY_SERVER:
            registry.register(collector)
        else:
            _instrument(registry, collector)
        http_server, _ = start_http_server(0, "127.0.0.1", registry)
        port = http_server.server_port
    print(port, flush=True)
    for _ in sys.stdin:
        print(time.process_time(), flush=True)


def _instrument(registry: CollectorRegistry, collector: RunCollector) -> None:
    """Set up directly instrumented metrics with the names, labels and buckets of the collector's."""
    from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

    disable_created_metrics()
    for family in collector.collect():
        if family.type == "histogram":
            run = family.samples[0].labels["run"]
            bounds = [float(sample.labels["le"]) for sample in family.samples if "le" in sample.labels]
            histogram = Histogram(family.name, family.documentation, ["run"], registry=registry, buckets=bounds)
            histogram.labels(run).observe(1.0)
            continue
        labels = [*family.samples[0].labels]
        if family.type == "counter":
            counter = Counter(family.name, family.documentation, labels, registry=registry)
            for sample in family.samples:
                counter.labels(**sample.labels).inc(sample.value)
        else:
            gauge = Gauge(family.name, family.documentation, labels, registry=registry)
            for sample in family.samples:
                (gauge.labels(**sample.labels) if labels else gauge).set(sample.value)


def scraped(port: int) -> bytes:
    """Ask for metrics as Prometheus does; return the answer, packed."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/metrics", headers={"Accept": ACCEPT, "Accept-Encoding": "gzip"})
    body = connection.getresponse().read()
    connection.close()
    return body


@dataclass(frozen=True)
class Contender:
    process: subprocess.Popen[str]
    port: int

    def cpu_secs(self) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def scrape(self) -> bytes:
        return scraped(self.port)

    def measure(self, scrapes: int) -> tuple[float, float]:
        """Return CPU milliseconds of the server per scrape, and the median milliseconds that the client waited."""
        waits = []
        before = self.cpu_secs()
        for _ in range(scrapes):
            began = time.perf_counter()
            self.scrape()
            waits.append(time.perf_counter() - began)
        return (self.cpu_secs() - before) / scrapes * 1e3, statistics.median(waits) * 1e3


def start(contender: str, closing: ExitStack) -> Contender:
    process = closing.enter_context(
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.scrape", "--serve", contender],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    assert process.stdout is not None
    return Contender(process, int(process.stdout.readline()))


def rows(quick: bool) -> Iterable[Row]:
    """Measure all contenders in turns, and return each one's best: what else the machine does only ever adds."""
    turns, scrapes = (5, 40) if quick else (25, 40)
    names = (OURS, LIBRARY_SERVER, INSTRUMENTED)
    cpu: dict[str, list[float]] = {name: [] for name in names}
    waited: dict[str, list[float]] = {name: [] for name in names}
    with ExitStack() as closing:
        contenders = {name: start(name, closing) for name in names}
        for contender in contenders.values():
            contender.measure(20)  # warm
        for _ in range(turns):
            for name, contender in contenders.items():
                spent, wait = contender.measure(scrapes)
                cpu[name].append(spent)
                waited[name].append(wait)
    note = f"best of {turns} turns of {scrapes} scrapes; one run, six service threads"
    for what, measured in (
        ("CPU time of the trainer per scrape", cpu),
        ("a scrape as the scraper sees it", waited),
    ):
        best = {name: round(min(values), 3) for name, values in measured.items()}
        ours = best.pop(OURS)
        yield Row(
            area="metrics",
            what=what,
            unit="ms",
            ours=ours,
            peers=best,
            goal=f"below {GOAL_MS:g} ms",
            met=ours < GOAL_MS,
            note=note,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    else:
        for row in rows("--quick" in sys.argv):
            print(json.dumps(row.__dict__))

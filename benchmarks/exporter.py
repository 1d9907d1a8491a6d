"""What watching a thousand runs costs an exporter: a look at them, a scrape, and memory.

The logdir is made here: 1,000 runs, 900 of which have ended and 100 train, each with 200 heartbeats, which list
six service threads (half an hour's), 20 checkpoints and 1,000 points of 10 scalar tags. The exporter has a process of
its own; its times are taken there, but for the scrape as the scraper sees it.

    python -m benchmarks.exporter [--quick]
"""

from __future__ import annotations

import http.client
import json
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.report import Row, print_table
from benchmarks.scrape import ACCEPT

RUNS, GROWN = 1000, 100
BEATS, SAVES, POINTS, TAGS = 200, 20, 1000, 10
SCRAPE_GOAL_MS = 100.0
IMPORT_GOAL_SECS = 0.3
BEAT_SECS, TICK_SECS = 10.0, 60.0
LIBRARY = "the same runs by our collector and prometheus_client's encoder"


def records(started_at: float, ended: bool) -> tuple[bytes, bytes]:
    """Return an events file, and what a heartbeat later is appended to it."""
    from supervisor_core.events.event_format import event_prefix, frame, scalar_prefix, version_event
    from supervisor_core.events.telemetry import (
        CheckpointRecord,
        HeartbeatRecord,
        SessionRecord,
        StopRecord,
        summary_bytes,
    )

    def framed(record: Any, at: float, step: int) -> bytes:
        summary = summary_bytes(record)
        return frame(event_prefix(at, step, 5, len(summary)) + summary)

    def beat(number: int) -> bytes:
        at, step = started_at + number * BEAT_SECS, number * 100
        ticked_at = at - at % TICK_SECS
        threads = tuple(
            {
                "name": name,
                "state": "idle",
                "interval_secs": TICK_SECS,
                "ticks": number // 6,
                "failures": 0,
                "last_tick_at": ticked_at,
            }
            for name in ("checkpoint", "summary", "step_counter", "heartbeat", "queue_runner", "own_loop")
        )
        record = HeartbeatRecord(
            session="s1",
            phase="training",
            step=step,
            steps=step,
            steps_per_sec=10.0,
            progress_timeout_secs=300.0,
            activity_secs={"productive": at - started_at},
            threads=threads,
        )
        return framed(record, at, step)

    session = SessionRecord(
        session="s1", attempt=1, host="h", pid=1, facade="Supervisor", started_at=started_at, heartbeat_secs=BEAT_SECS
    )
    parts = [frame(version_event(started_at)), framed(session, started_at, 0)]
    prefixes = [scalar_prefix(f"tag/{index}") for index in range(TAGS)]
    value = struct.pack("<f", 0.5)
    for number in range(1, BEATS + 1):
        at = started_at + number * BEAT_SECS
        for point in range(POINTS // BEATS):
            prefix = event_prefix(at, number * 100, 5, 0)[:-2]
            parts.append(frame(prefix + prefixes[(number + point) % TAGS] + value))
        parts.append(beat(number))
        if number % (BEATS // SAVES) == 0:
            saved = CheckpointRecord(
                session="s1", trigger="timer", path=f"model.ckpt-{number * 100}", step=number * 100, bytes=500_000_000,
                secs=2.0, blocked_secs=0.1, consistent=True, verified=True,
            )  # fmt: skip
            parts.append(framed(saved, at, number * 100))
    if ended:
        parts.append(framed(StopRecord(session="s1", reason="completed", step=BEATS * 100), at, BEATS * 100))
    return b"".join(parts), beat(BEATS + 1)


def make(logdir: Path, runs: int) -> bytes:
    """Write the logdir; return what the runs that train append next. They are run-0 to run-99."""
    started_at = time.time() - BEATS * BEAT_SECS
    live, more = records(started_at, False)
    done, _ = records(started_at, True)
    for index in range(runs):
        directory = logdir / f"group-{index % 10}" / f"run-{index}"
        directory.mkdir(parents=True)
        name = f"events.out.tfevents.{int(started_at)}.h"
        (directory / name).write_bytes(live if index < GROWN else done)
    return more


def grow(logdir: Path, more: bytes) -> None:
    """Append to the runs that train."""
    for path in logdir.rglob("events*"):
        if int(path.parent.name.partition("-")[2]) < GROWN:
            with path.open("ab") as file:
                file.write(more)


def serve(logdir: str) -> None:
    """Run an exporter that reads one command per line from stdin, and answers each with a line of JSON."""
    from supervisor_core.metrics.exporter import Exporter
    from supervisor_core.metrics.render import choose_format
    from supervisor_core.metrics.web import Web
    from supervisor_core.run.logdir_watch import LogdirWatch

    watch = LogdirWatch(logdir, kept_ticks=1)
    exporter = Exporter([watch])
    web = Web(exporter, ":0")
    format = choose_format(ACCEPT)

    def library() -> float:
        from prometheus_client.openmetrics.exposition import generate_latest

        from supervisor_core.metrics.collector import RunCollector
        from supervisor_core.metrics.page import run_status

        now = time.time()
        statuses = [run_status(run.run, now, label=name) for name, run in watch.refresh().runs.items()]
        return timed(lambda: generate_latest(RunCollector(lambda: statuses)))

    answers: dict[str, Callable[[], Any]] = {
        "refresh": lambda: timed(exporter.refresh),
        "scrape": lambda: timed(lambda: exporter.scrape(format, gzip=True)),
        "plain": lambda: timed(lambda: exporter.scrape(format)),
        "sizes": lambda: [len(exporter.scrape(format)), len(exporter.scrape(format, gzip=True))],
        "library": library,
        "memory": resident_bytes,
        "port": lambda: int(web.address.rpartition(":")[2]),
    }
    with web:
        for line in sys.stdin:
            print(json.dumps(answers[line.strip()]()), flush=True)


def timed(call: Callable[[], Any]) -> float:
    """Return how long a call takes, in seconds."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def resident_bytes() -> int:
    """Return the memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


class Served:
    """An exporter in a process of its own."""

    def __init__(self, logdir: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.exporter", "--serve", str(logdir)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begin(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()

    def answered(self) -> bool:
        return bool(select.select([self.process.stdout], [], [], 0.0)[0])

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, what: str) -> Any:
        self.begin(what)
        return self.answer()

    def scrape(self, port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/metrics", headers={"Accept": ACCEPT, "Accept-Encoding": "gzip"})
        connection.getresponse().read()
        connection.close()

    def close(self) -> None:
        self.process.communicate()


def rows(quick: bool) -> Iterable[Row]:
    """Measure."""
    rounds = 3 if quick else 15
    with tempfile.TemporaryDirectory() as made:
        empty, full = Path(made) / "empty", Path(made) / "full"
        empty.mkdir()
        more = make(full, RUNS)
        bytes_read = sum(path.stat().st_size for path in full.rglob("events*"))
        base = Served(empty)
        base.ask("refresh")
        idle = base.ask("memory")
        base.close()
        served = Served(full)
        first = served.ask("refresh")
        unchanged = [served.ask("refresh") for _ in range(rounds)]
        grown = []
        for _ in range(rounds):
            grow(full, more)
            grown.append(served.ask("refresh"))
        port = served.ask("port")
        during = []
        for _ in range(rounds):
            grow(full, more)
            served.begin("refresh")
            while not served.answered():
                during.append(timed(lambda: served.scrape(port)))
            served.answer()
        waits = [timed(lambda: served.scrape(port)) for _ in range(rounds * 2)]
        packed, plain = ([served.ask(what) for _ in range(rounds * 2)] for what in ("scrape", "plain"))
        library = served.ask("library")
        plain_bytes, packed_bytes = served.ask("sizes")
        memory = served.ask("memory")
        served.close()
    note = f"{bytes_read / 1e6:,.0f} MB of events in all"
    yield row("first look", "s", first, note=note)
    yield row("a look at nothing new", "ms", min(unchanged) * 1e3, note="900 have ended, 100 train")
    yield row("a look when the 100 that train have grown", "ms", min(grown) * 1e3)
    size = f"{plain_bytes / 1e6:.1f} MB of OpenMetrics, {packed_bytes / 1e6:.2f} MB packed; median"
    middle = statistics.median(waits) * 1e3
    yield row("a scrape as the scraper sees it, packed", "ms", middle, goal=SCRAPE_GOAL_MS, note=size)
    worst = sorted(during)[int(len(during) * 0.95)] * 1e3
    note = f"95 of 100 of {len(during)} took less"
    yield row("a scrape while the exporter looks at what has grown", "ms", worst, goal=SCRAPE_GOAL_MS, note=note)
    yield row(
        "a scrape put together, packed",
        "ms",
        statistics.median(packed) * 1e3,
        peers={LIBRARY + ", not packed": library * 1e3, "not packed": statistics.median(plain) * 1e3},
        goal=SCRAPE_GOAL_MS,
    )
    yield row("memory", "KiB per run", (memory - idle) / RUNS / 1024, note=f"above {idle / 2**20:.0f} MiB without runs")
    started = [import_secs("import supervisor_core.cli.exporter") for _ in range(rounds)]
    serving = "import supervisor_core.cli.exporter, supervisor_core.metrics.web, supervisor_core.run.logdir_watch"
    ready = [import_secs(serving) for _ in range(rounds)]
    yield row("importing the command", "s", min(started), goal=IMPORT_GOAL_SECS)
    yield row("importing all that serving needs", "s", min(ready), goal=IMPORT_GOAL_SECS)


def import_secs(statement: str) -> float:
    """Return what a statement adds to the start of a process."""
    nothing, something = (
        timed(lambda code=code: subprocess.run([sys.executable, "-c", code], check=True))  # type: ignore[misc]
        for code in ("pass", statement)
    )
    return something - nothing


def row(
    what: str,
    unit: str,
    ours: float,
    *,
    peers: dict[str, float] | None = None,
    goal: float | None = None,
    note: str = "",
) -> Row:
    return Row(
        area="exporter",
        what=f"{RUNS:,} runs: {what}" if "import" not in what else what,
        unit=unit,
        ours=ours,
        peers=peers or {},
        goal="" if goal is None else f"below {goal:g} {unit}",
        met=None if goal is None else ours < goal,
        note=note,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    else:
        print_table(rows("--quick" in sys.argv))

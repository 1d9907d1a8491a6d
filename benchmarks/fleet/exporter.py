"""An exporter in a process of its own, which measures itself: its looks, its scrapes, its memory.

python -m benchmarks.fleet.exporter LOGDIR [CACHE]    # reads commands from stdin, answers each with a line of JSON
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.scrape import ACCEPT, scraped


class Took(NamedTuple):
    """What a piece of work took."""

    wall_secs: float
    processor_secs: float
    """Of the whole process, all its threads together."""


def timed(call: Callable[[], Any]) -> Took:
    """Return what a call takes."""
    began, before = time.perf_counter(), time.process_time()
    call()
    return Took(time.perf_counter() - began, time.process_time() - before)


def resident_bytes() -> int:
    """Return the memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


class ServedFleet:
    """The exporter, from outside. Close it."""

    def __init__(self, logdir: Path, cache: Path | None = None) -> None:
        paths = [str(path) for path in (logdir, cache) if path is not None]
        command = [sys.executable, "-m", "benchmarks.fleet.exporter", *paths]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.ask("port"))

    def begin(self, what: str) -> None:
        """Have it begin with something."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()

    @property
    def has_answered(self) -> bool:
        """Whether what was begun is over."""
        return bool(select.select([self.process.stdout], [], [], 0.0)[0])

    def answer(self) -> Any:
        """Return what was begun, when it is over."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, what: str) -> Any:
        """Return what it measured of something."""
        self.begin(what)
        return self.answer()

    def took(self, what: str) -> Took:
        """Return what something took it."""
        return Took(*self.ask(what))

    def scrape(self) -> bytes:
        """Ask it for its metrics as Prometheus does; return the answer, packed."""
        return scraped(self.port)

    def close(self) -> None:
        """End it."""
        self.process.communicate()

    def __enter__(self) -> ServedFleet:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _serve(logdir: str, cache: str | None = None) -> None:
    """Answer what is asked; look at the logdir when that is asked, or from `start` on as the command does."""
    from supervisor_core.metrics.exporter import Exporter
    from supervisor_core.metrics.render import choose_format
    from supervisor_core.metrics.web import Web
    from supervisor_core.run.watch.logdir_watch import LogdirWatch

    watch = LogdirWatch(logdir, kept_ticks=1, all_saves=False, cache=cache)
    exporter = Exporter([watch])
    web = Web(exporter, ":0")
    format = choose_format(ACCEPT)

    def library() -> Took:
        from prometheus_client.openmetrics.exposition import generate_latest

        from supervisor_core.metrics.collector import RunCollector
        from supervisor_core.metrics.page import run_status

        now = time.time()
        statuses = [run_status(run.run, now, label=name) for name, run in watch.refresh().runs.items()]
        return timed(lambda: generate_latest(RunCollector(lambda: statuses)))

    answers: dict[str, Callable[[], Any]] = {
        "look": lambda: timed(exporter.refresh),
        "start": exporter.start,
        "close": watch.close,
        "scrape": lambda: timed(lambda: exporter.scrape(format, gzip=True)),
        "plain scrape": lambda: timed(lambda: exporter.scrape(format)),
        "sizes": lambda: [len(exporter.scrape(format)), len(exporter.scrape(format, gzip=True))],
        "library": library,
        "memory": resident_bytes,
        "processor": time.process_time,
        "port": lambda: int(web.address.rpartition(":")[2]),
    }
    with web:
        for line in sys.stdin:
            print(json.dumps(answers[line.strip()]()), flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])

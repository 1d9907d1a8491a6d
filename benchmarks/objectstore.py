"""What watching runs in an object store costs: requests for each run and look, and what S3 asks for them in a month.

Two stores. One counts and makes up names, so that it can have millions. The other is moto's server, a stand-in for S3,
asked through s3fs as an exporter asks, and counted by its own log; it runs with the interpreter of ``--python``, which
has this project, ``moto[s3,server]`` and ``s3fs``: botocore takes no python-dateutil of version 4, as is in ``.venv``.

The worst case is measured: each live run has new events in each look. Once a day each of them ends and begins again.

    python -m benchmarks.objectstore [--quick] [--python INTERPRETER]
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.report import Row, print_table
from supervisor_core.events.directory import is_events_file
from supervisor_core.storage.remote_clients import Found, Page
from supervisor_core.storage.remote_listing import RemoteListing

LIST_DOLLARS, GET_DOLLARS = 0.005 / 1000, 0.0004 / 1000
"""S3 Standard in us-east-1, for each request, as of February 2026."""
MONTH_SECS = 730 * 3600.0
LOOK_SECS = 15.0
GOAL_DOLLARS, GOAL_REQUESTS = 80.0, 0.1
ROOT = "s3://bucket/logs"
BEGAN = 1_800_000_000.0
LIVE_SHARE = 10
"""One run of this number is live."""


class SetClock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = BEGAN

    def wall(self) -> float:
        """Return the time."""
        return self.now

    def monotonic(self) -> float:
        """Return the time."""
        return self.now


class MadeUpStore:
    """Runs beside one another, each with an events file for each session, checkpoints of many files, and others."""

    def __init__(self, clock: SetClock, runs: int, objects: int) -> None:
        self.runs, self._clock = runs, clock
        checkpoints = max(0, objects - 5)
        self._before = [f"checkpoints/{number * 5 // checkpoints}/{number:06}" for number in range(checkpoints)]
        self._after = [f"graph-{number}" for number in range(min(4, objects - 1))]

    def is_live(self, run: int) -> bool:
        return run % LIVE_SHARE == 0

    def _session(self, run: int) -> int:
        """Return the number of a live run's session: one a day, from a second of its own on."""
        return int(self._clock.now - BEGAN + 86_400 * run / self.runs) // 86_400

    def _events(self, run: int) -> list[Found]:
        directory = f"{ROOT}/run-{run:06}"
        names = [f"{directory}/events.out.tfevents.{1_700_000_000 + run}.host"]
        if not self.is_live(run):
            return [Found(names[0], 100_000, BEGAN - 86_400)]
        names += [f"{names[0]}.{session}" for session in range(1, self._session(run) + 1)]
        found = [Found(name, 100_000, BEGAN - 86_400) for name in names[:-1]]
        return [*found, Found(names[-1], 1_000 + 100 * int((self._clock.now - BEGAN) // LOOK_SECS), self._clock.now)]

    def _below(self, run: int) -> list[Found]:
        directory = f"{ROOT}/run-{run:06}"
        before, after = (
            [Found(f"{directory}/{name}", 1 << 20, BEGAN - 86_400) for name in names]
            for names in (self._before, self._after)
        )
        return [*before, *self._events(run), *after]

    def page(self, root: str, after: str) -> Page:
        """List a thousand names."""
        run = int(root[-6:]) if root != ROOT else int(after[len(ROOT) + 5 : len(ROOT) + 11] or 0) if after else 0
        last = run if root != ROOT else self.runs - 1
        found: list[Found] = []
        while run <= last and len(found) <= 1000:
            below = self._below(run)
            found += below[bisect_right(below, after, key=lambda each: each.path) :]
            run += 1
        return Page(found[:1000], found[999].path if len(found) > 1000 else None, 1)

    def children(self, directory: str) -> tuple[list[Found], int]:
        """List one directory."""
        if directory == ROOT:
            found = [Found(f"{ROOT}/run-{run:06}", None) for run in range(self.runs)]
        else:
            run = int(directory[-6:])
            found = [*self._events(run), *(Found(f"{directory}/{name}", 10) for name in self._after)]
            found += [Found(f"{directory}/checkpoints", None)] if self._before else []
        return found, 1 + len(found) // 1000

    def size_of(self, path: str) -> int | None:
        """Return a file's size."""
        events = self._events(int(path[len(ROOT) + 5 : len(ROOT) + 11]))
        return next(each.size for each in events if each.path == path)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return bytes of a file."""
        return bytes(max(0, min(length, (self.size_of(path) or 0) - offset)))


def dollars(listings: float, reads: float, secs: float) -> float:
    """Return what requests of a time cost in a month."""
    return (listings * LIST_DOLLARS + reads * GET_DOLLARS) * MONTH_SECS / secs


def made_up(runs: int, objects: int, hours: float) -> dict[str, float]:
    """Look at a store for some hours, in which each look has something new of every live run."""
    clock = SetClock()
    store = MadeUpStore(clock, runs, objects)
    listing = RemoteListing(store, ROOT, is_events_file, clock)
    began = time.process_time()
    listing.look()
    assert listing.fault is None, listing.fault
    first, first_secs = listing.listings, time.process_time() - began
    listing._round_at = clock.now  # at once, as in the midst of all later rounds
    looks = int(hours * 3600 / LOOK_SECS)
    reads, began = listing.reads, time.process_time()
    for _ in range(looks):
        clock.now += LOOK_SECS
        listing.look()
        assert listing.fault is None, listing.fault
    late = [
        run
        for run in range(0, runs, LIVE_SHARE)
        if listing.sizes.get(store._events(run)[-1].path, 0) < store._events(run)[-1].size  # type: ignore[operator]
    ]
    return {
        "first": first,
        "first_secs": first_secs,
        "look_secs": (time.process_time() - began) / looks,
        "listings": (listing.listings - first) / looks,
        "reads": (listing.reads - reads) / looks,
        "late": len(late),
        "round_secs": 3 * listing._round_requests,
    }


def rows(quick: bool = False, python: str = sys.executable) -> Iterator[Row]:
    """Measure both stores."""
    sizes = (
        [(200, 40, 0.1), (200, 1_500, 0.1)] if quick else [(10_000, 40, 0.5), (10_000, 400, 0.25), (100_000, 40, 0.05)]
    )
    for runs, objects, hours in sizes:
        yield from _rows_of_made_up(runs, objects, hours)
    found = of_moto(python, 60 if quick else 400)
    if found is None:
        yield Row("objectstore", "moto", "requests", None, {}, "", None, "--python: one that has moto[s3,server], s3fs")
        return
    live, looks = found["live"], found["looks"]
    each = found["reads"] / live / looks
    note = f"{found['runs']:.0f} runs, {live:.0f} live, {found['objects']:.0f} objects; s3fs and moto, by moto's log"
    yield Row("objectstore", "GETs of a growing run and look", "requests", each, {}, "at most 1.05", each <= 1.05, note)
    idle = found["listings"] / (found["runs"] - live) / looks
    yield Row(
        *("objectstore", "listings for each idle run and look", "requests", idle, {}, f"at most {GOAL_REQUESTS}"),
        idle <= GOAL_REQUESTS,
        note,
    )
    cost = dollars(found["listings"], found["reads"], looks * LOOK_SECS)
    yield Row("objectstore", f"S3, a month, for {live:.0f} live runs", "USD", cost, {}, "", None, note)


def _rows_of_made_up(runs: int, objects: int, hours: float) -> Iterator[Row]:
    found = made_up(runs, objects, hours)
    live = runs // LIVE_SHARE
    what = f"{runs:,} runs, {live:,} live, {objects:,} objects each"
    cost = dollars(found["listings"], found["reads"], LOOK_SECS)
    each = cost * 1_000 / live
    yield Row(
        *("objectstore", f"S3, a month, for 1,000 live runs: {what}", "USD", each, {}, f"below {GOAL_DOLLARS:.0f}"),
        None if live < 1_000 else each < GOAL_DOLLARS,
        f"{found['listings']:.1f} listings and {found['reads']:,.0f} reads a look; first look: {found['first']:,.0f} "
        f"listings; a round takes {found['round_secs'] / 60:.0f} min; {found['late']:.0f} live runs behind at the end",
    )
    idle = found["listings"] / (runs - live)
    yield Row(
        *("objectstore", f"requests for each idle run and look: {what}", "requests", idle, {}),
        f"at most {GOAL_REQUESTS}",
        idle <= GOAL_REQUESTS,
        f"processor time of a look without reading: {found['look_secs']:.2f} s",
    )


def of_moto(python: str, runs: int) -> dict[str, float] | None:
    """Measure moto with another interpreter; None where that lacks what it takes."""
    command = [python, "-m", "benchmarks.objectstore", "--moto", str(runs)]
    check = subprocess.run([python, "-c", "import moto.server, s3fs"], capture_output=True)
    if check.returncode:
        return None
    root = str(Path(__file__).parents[1])
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=root, env={**os.environ, "PYTHONPATH": root}, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2_000:])
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


class _Requests(logging.Handler):
    """Counts the requests in the log of moto's server."""

    def __init__(self) -> None:
        super().__init__()
        self.listings = self.reads = 0

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.listings += "list-type=2" in text
        self.reads += "list-type=2" not in text and ("GET /" in text or "HEAD /" in text)


def measured_with_moto(runs: int, looks: int = 20, others: int = 12) -> dict[str, float]:
    """Look at moto's server as an exporter does; check that each look has what is new."""
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends
    from moto.server import ThreadedMotoServer

    from supervisor_core.events import event_format
    from supervisor_core.events.index import LogdirIndex

    log = logging.getLogger("werkzeug")
    counted = _Requests()
    log.handlers, log.propagate = [counted], False
    log.setLevel(logging.INFO)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    os.environ |= {
        "S3_ENDPOINT": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    backend: Any = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    backend.create_bucket("bucket", "us-east-1")
    clock = SetClock()

    def scalar(step: int) -> bytes:
        prefix = event_format.event_prefix(clock.now, step, 5, 0)[:-2]
        return event_format.frame(prefix + event_format.scalar_prefix("loss") + b"\0\0\x80\x3f")

    files = {run: event_format.frame(event_format.version_event(BEGAN)) + scalar(0) for run in range(runs)}
    live = range(0, runs, LIVE_SHARE)
    for run, data in files.items():
        for number in range(others):
            backend.put_object("bucket", f"logs/run-{run:05}/checkpoints/{number}", b"")
        backend.put_object("bucket", f"logs/run-{run:05}/events.out.tfevents.1800000000.host", data)
    clock.now += 86_400.0 + time.time() - BEGAN  # moto dates files by the clock of this machine: long ago
    index = LogdirIndex(ROOT, clock=clock)
    assert len(index.refresh().changed) == runs

    def grow(step: int) -> None:
        for run in live:
            files[run] += scalar(step)
            backend.put_object("bucket", f"logs/run-{run:05}/events.out.tfevents.1800000000.host", files[run])

    step = 0
    caught: set[str] = set()
    while len(caught) < len(live):  # until all of them are known to be live
        step += 1
        grow(step)
        clock.now += LOOK_SECS
        caught |= index.refresh().changed.keys()
    counted.listings = counted.reads = 0
    for _ in range(looks):
        step += 1
        grow(step)
        clock.now += LOOK_SECS
        changed = index.refresh().changed
        assert len(changed) == len(live), (len(changed), len(live))
        assert all(chunks[-1].scalars["loss"].steps[-1] == step for chunks in changed.values())
    found = {"listings": counted.listings, "reads": counted.reads, "looks": looks, "runs": runs, "live": len(live)}
    server.stop()
    return found | {"objects": runs * (others + 1)}


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.objectstore")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--moto", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.moto:
        print(json.dumps(measured_with_moto(arguments.moto)))
    else:
        print_table(rows(arguments.quick, arguments.python))


if __name__ == "__main__":
    main()

"""What the TensorBoard tab costs TensorBoard, and how long its answers take.

TensorBoard runs in a process of its own, without tensorflow (whose import takes longer than all the rest), once
with the tab and once without, in turns.

    python -m benchmarks.tab [--quick]
"""

from __future__ import annotations

import json
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.fleet.exporter import resident_bytes
from benchmarks.report import Row, print_table
from benchmarks.trained import write_runs

WITH, WITHOUT = "with the tab", "without it"
SMALL_RUNS, MANY_RUNS = 20, 5_000
BEGAN = 1_700_000_000.0
TAG = "loss"


def serve(which: str, logdir: str, *flags: str) -> None:
    """Serve TensorBoard until stdin ends; print the address and the CPU seconds spent so far, and both and the memory
    after each line of stdin."""
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    from tensorboard import default, program

    plugins = [
        plugin
        for plugin in default.get_plugins()
        if which == WITH or plugin.__module__.partition(".")[0] != "tb_plugin"
    ]
    board = program.TensorBoard(plugins=plugins)
    board.configure(argv=["tensorboard", "--logdir", logdir, "--host", "127.0.0.1", "--port", "0", *flags])
    url = board.launch()
    print(json.dumps({"url": url, "cpu_secs": time.process_time()}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"cpu_secs": time.process_time(), "bytes": resident_bytes()}), flush=True)


class Served:
    """A TensorBoard that serves."""

    def __init__(self, process: subprocess.Popen[str], began: float) -> None:
        assert process.stdout is not None
        answer = json.loads(process.stdout.readline())
        self.wall_secs = time.perf_counter() - began
        self.cpu_secs: float = answer["cpu_secs"]
        self.url: str = answer["url"]
        self._process = process

    def spent(self) -> tuple[float, float]:
        """Return the CPU seconds spent so far, and the bytes held now, by TensorBoard's process: not its data server's,
        which is a process of its own."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer["cpu_secs"], answer["bytes"]

    def fetch(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=120) as answer:
            body: bytes = answer.read()
        return body

    def tab(self, route: str, **arguments: Any) -> bytes:
        return self.fetch(f"data/plugin/supervisor/{route}?{urllib.parse.urlencode(arguments)}")

    def runs(self, count: int, pause_secs: float = 0.0) -> None:
        """Return once the tab lists this number of runs; each question costs TensorBoard's process time."""
        while True:
            answer = json.loads(self.tab("runs"))
            if answer["reading"] is None and len(answer["runs"]) >= count:
                return
            time.sleep(pause_secs)

    def milliseconds(self, path: str, times: int) -> float:
        return statistics.median(_milliseconds(lambda: self.fetch(path)) for _ in range(times))


@contextmanager
def serving(which: str, logdir: Path, *flags: str) -> Iterator[Served]:
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.tab", "--serve", which, str(logdir), *flags],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield Served(process, began)
        finally:
            process.kill()


def write(directory: Path, points: int, saves: int = 0, values: Sequence[float] | None = None) -> None:
    """Write a run with ``points`` scalars, 0.1 s apart, and ``saves`` checkpoints spread over it."""
    from supervisor_core.events.event_format import event_prefix, frame, scalar_prefix, version_event
    from supervisor_core.events.telemetry import CheckpointRecord, SessionRecord, summary_bytes

    def framed(record: Any, at: float, step: int) -> bytes:
        summary = summary_bytes(record)
        return frame(event_prefix(at, step, 5, len(summary)) + summary)

    directory.mkdir(parents=True)
    session = SessionRecord(session="s1", attempt=1, host="h", pid=1, facade="Supervisor", started_at=BEGAN)
    prefix = scalar_prefix(TAG)
    with (directory / f"events.out.tfevents.{int(BEGAN)}.h").open("wb") as file:
        file.write(frame(version_event(BEGAN)) + framed(session, BEGAN, 0))
        for step in range(points):
            at = BEGAN + step / 10
            value = values[step] if values else step % 997 / 997
            file.write(frame(event_prefix(at, step, 5, 0)[:-2] + prefix + struct.pack("<f", value)))
        for save in range(saves):
            step = save * points // saves
            record = CheckpointRecord(session="s1", trigger="timer", path=f"model.ckpt-{step}", step=step, secs=2.0)
            file.write(framed(record, BEGAN + step / 10, step))


def rows(quick: bool) -> Iterator[Row]:
    """Measure."""
    with tempfile.TemporaryDirectory() as scratch:
        small, many, trained, long = (Path(scratch) / name for name in ("small", "many", "trained", "long"))
        for index in range(SMALL_RUNS):
            write(small / f"run-{index}", 100)
        yield from _cost(small, turns=3 if quick else 15)
        count = 500 if quick else MANY_RUNS
        for index in range(count):
            write(many / f"group-{index % 50}" / f"run-{index}", 10)
        yield from _many(many, count, times=3 if quick else 11)
        write_runs(trained, count)
        yield from _trained(trained, count)
        points, saves = (100_000, 10_000) if quick else (1_000_000, 100_000)
        write(long / "run", points, saves)
        yield from _long(long, points, saves, times=5 if quick else 21)


def _cost(logdir: Path, turns: int) -> Iterator[Row]:
    """Compare TensorBoard's own start, and its list of plugins, with and without the tab."""
    wall: dict[str, list[float]] = {WITH: [], WITHOUT: []}
    cpu: dict[str, list[float]] = {WITH: [], WITHOUT: []}
    listing: dict[str, list[float]] = {WITH: [], WITHOUT: []}
    for _ in range(turns):
        for which in (WITH, WITHOUT):
            with serving(which, logdir) as board:
                wall[which].append(board.wall_secs)
                cpu[which].append(board.cpu_secs)
                if which == WITH:
                    board.runs(SMALL_RUNS)
                listing[which].append(board.milliseconds("data/plugins_listing", 15))
    for what, unit, measured in (
        ("TensorBoard's start, until it serves", "s", wall),
        ("CPU time of that", "s", cpu),
        ("plugins_listing, as the page waits for it", "ms", listing),
    ):
        # Its start waits for its data server in sleeps of half a second, so that a median jumps.
        ours, theirs = (min(measured[which]) for which in (WITH, WITHOUT))
        note = f"best of {turns} turns, {SMALL_RUNS} runs; a twentieth is no difference"
        yield Row("tab", what, unit, ours, {WITHOUT: theirs}, "no difference", ours <= 1.05 * theirs, note)


def _many(logdir: Path, count: int, times: int) -> Iterator[Row]:
    began = time.perf_counter()
    with serving(WITH, logdir) as board:
        served = time.perf_counter() - began
        board.runs(count)
        read = time.perf_counter() - began - served
        generation = json.loads(board.tab("runs"))["generation"]
        whole = board.milliseconds("data/plugin/supervisor/runs", times)
        since = board.milliseconds(f"data/plugin/supervisor/runs?since={generation}", times)
    note = f"{count:,} runs"
    yield Row("tab", "the overview, from TensorBoard's first answer on", "s", read, {}, "within 5 s", read <= 5, note)
    yield Row("tab", "the overview again, whole", "ms", whole, {}, "", None, note)
    yield Row("tab", "the overview again, what has changed", "ms", since, {}, "", None, note)


def _trained(logdir: Path, count: int) -> Iterator[Row]:
    """Compare what TensorBoard's process costs with the tab and without it, once both have read runs that trained."""
    cpu: dict[str, float] = {}
    held: dict[str, float] = {}
    for which in (WITHOUT, WITH):
        with serving(which, logdir) as board:
            while len(json.loads(board.fetch("data/runs"))) < count:
                time.sleep(1.0)
            if which == WITH:
                board.runs(count, pause_secs=1.0)
            secs, held[which] = board.spent()
            cpu[which] = secs - board.cpu_secs
    note = f"{count:,} runs, some 22 heartbeats in each"
    secs, goal = cpu[WITH] - cpu[WITHOUT], 4.0 * count / MANY_RUNS
    yield Row("tab", "CPU time of the first reading", "s", secs, {}, f"at most {goal:g} s", secs <= goal, note)
    ours, theirs = (held[which] / 2**20 for which in (WITH, WITHOUT))
    what = "memory of TensorBoard's process after it"
    goal_text = "at most 1.5 times that without it"
    yield Row("tab", what, "MiB", ours, {WITHOUT: theirs}, goal_text, ours <= 1.5 * theirs, note)


def _long(logdir: Path, points: int, saves: int, times: int) -> Iterator[Row]:
    with serving(WITH, logdir, "--samples_per_plugin=scalars=1000") as board:
        board.runs(1)
        path = f"data/plugin/supervisor/scalars?run=run&tag={TAG}"
        first = _milliseconds(lambda: board.fetch(path))
        whole = board.milliseconds(path, times)
        tenth = BEGAN + points / 20
        window = board.milliseconds(f"{path}&from={tenth}&to={tenth + points / 100}", times)
        marks = board.milliseconds("data/plugin/supervisor/checkpoint_marks?run=run&pixels=512", times)
        page = board.milliseconds("data/plugin/supervisor/checkpoints?run=run", times)
        theirs = f"data/plugin/scalars/scalars?run=run&tag={TAG}"
        while not _is_served(board, theirs):
            pass
        sampled = board.milliseconds(theirs, times)
    note = f"{points:,} points, 1,024 pixels"
    peers = {"TensorBoard's own, 1,000 samples": sampled}
    yield Row("tab", "scalars of a run that was not looked at before", "ms", first, {}, "", None, note)
    yield Row("tab", "scalars, the whole curve", "ms", whole, peers, "", None, note)
    yield Row("tab", "scalars, a tenth of it", "ms", window, peers, "a frame, 16 ms", window <= 16, note)
    note = f"{saves:,} checkpoints"
    yield Row("tab", "checkpoint marks, all", "ms", marks, {}, "", None, note)
    yield Row("tab", "checkpoints, a page of 1,000", "ms", page, {}, "", None, note)


def _is_served(board: Served, path: str) -> bool:
    try:
        return bool(json.loads(board.fetch(path)))
    except urllib.error.HTTPError:
        return False


def _milliseconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
    else:
        print_table(rows("--quick" in sys.argv))

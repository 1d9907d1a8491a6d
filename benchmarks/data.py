"""What taking data out costs: a file of all scalars, and tables of every tag, beside what others read them with.

Everyone reads the same file from the page cache, until every point is in the file, or in a table; the best turn counts.
The peers get a tenth of the points, and ten times their time counts.

    python -m benchmarks.data [--quick]
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.reader import SCALARS, accumulator, ours, timed, write_scalars
from benchmarks.report import Row

LARGE = 8_000_000
"""Points of a run that is exported in bounded memory: twice what is held of one."""


def exported(path: str, suffix: str) -> int:
    """Write all scalars of a run into a file, as ``tb-supervisor export`` does; return their number and one."""
    from supervisor_core.history.formats import TableFile
    from supervisor_core.history.rows import SCALARS as TABLE
    from supervisor_core.history.scalars import RunPoints, ScalarColumns, ScalarPass

    directory = os.path.dirname(path)
    with TableFile(f"{directory}{suffix}", TABLE) as file:

        def take(run: RunPoints) -> None:
            columns = ScalarColumns(run.watched.run)
            for of_file, by_tag in run.pieces:
                file.write(columns.rows(run.watched.run.name, of_file, by_tag))

        ScalarPass(directory).read(take)
    return file.rows + 1


def tables(path: str) -> int:
    """Return the number of points in the tables of every tag, and one."""
    import supervisor_core

    run = supervisor_core.open_run(path)
    return sum(len(run.scalars(tag)) for tag in run.tags) + 1


def frame(path: str) -> int:
    """The same with tbparse, which makes one data frame."""
    from tbparse import SummaryReader

    return len(SummaryReader(path, extra_columns={"wall_time"}).scalars) + 1


PEERS: dict[str, tuple[str, Callable[[str], int]]] = {
    "tensorboard EventAccumulator (lists)": ("tensorboard", accumulator),
    "tbparse (a data frame)": ("tbparse", frame),
}


def rows(quick: bool) -> Iterable[Row]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    with tempfile.TemporaryDirectory() as name:
        yield from _speed(Path(name), SCALARS // 10 if quick else SCALARS)
        yield _memory(Path(name), LARGE // 20 if quick else LARGE)


def _speed(directory: Path, count: int) -> Iterator[Row]:
    part = count // 10
    whole, tenth = write_scalars(directory / "scalars", count), write_scalars(directory / "part", part)
    warm = write_scalars(directory / "warm", 100)
    peers = {
        name: (timed(read, warm, 101, 1), timed(read, tenth, part + 1, 3))[1] * (count / part)
        for name, (module, read) in PEERS.items()
        if importlib.util.find_spec(module) is not None
    }
    reading = timed(ours, whole, count + 1, 7)
    for suffix in (".parquet", ".csv", ".jsonl"):
        secs = timed(lambda path, suffix=suffix: exported(path, suffix), whole, count + 1, 5)  # type: ignore[misc]
        size = os.path.getsize(f"{os.path.dirname(whole)}{suffix}") / 1e6
        note = f"{secs / reading:.2f} times the reading; {size:.1f} MB; best of 5, of 3 for the peers"
        is_goal = suffix == ".parquet"
        goal, met = ("at most 2 times the reading", secs <= 2 * reading) if is_goal else ("", None)
        beside = {"reading them, ours": reading, **(peers if is_goal else {})}
        yield Row("data", f"export of {count:,} scalars into {suffix}", "s", secs, beside, goal, met, note)
    secs = timed(tables, whole, count + 1, 5)
    note = f"{secs / reading:.2f} times the reading; the run's model is read, too"
    yield Row("data", f"open_run, and a table of every tag of {count:,} scalars", "s", secs, peers, "", None, note)


_MEASURED = """
import sys
from benchmarks.data import exported
exported(sys.argv[1], ".parquet")
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def _memory(directory: Path, count: int) -> Row:
    path = write_scalars(directory / "large", count)
    peaks: dict[str, Any] = {}
    for name, given in (("all of it", path), ("its imports", write_scalars(directory / "none", 1))):
        done = subprocess.run([sys.executable, "-c", _MEASURED, given], capture_output=True, text=True, check=True)
        peaks[name] = int(done.stdout) / 1024
    size = os.path.getsize(path) / 1e6
    note = f"one run in one file of {size:,.0f} MB, which is read twice; the most that was held"
    what, peak = f"memory of an export of {count:,} scalars into .parquet", peaks["all of it"]
    return Row("data", what, "MB", peak, {"of 1 scalar": peaks["its imports"]}, "at most 600 MB", peak <= 600, note)


if __name__ == "__main__":
    from benchmarks.report import print_table

    print_table(rows("--quick" in sys.argv))

"""The restarter's own share of a restart: from the end of one launch to the first instruction of the next.

python -m benchmarks.restart [--quick]

The program asks to be started again at once (status 75), in a logdir with 100,000 events. What is measured holds
everything between: reaping, reading the logdir, the decision, the state on disk, a keeper, and the start of the program
itself, a Python without site-packages.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.report import Row, print_table
from supervisor_core.events import EventsWriter

PROGRAM = """
import sys, time
print("begin", time.monotonic(), flush=True)
print("end", time.monotonic(), flush=True)
import os
os._exit(0 if os.path.exists(sys.argv[1]) else 75)
"""
COMMAND = [sys.executable, "-c", "from supervisor_core.cli import main; main()", "run"]


def rows(quick: bool) -> list[Row]:
    """Measure the median and the worst of some restarts."""
    _, single = measured(0)
    gaps, many = measured(5 if quick else 40)
    median, note = statistics.median(gaps), f"{len(gaps)} restarts, the best took {min(gaps):.3g} s"
    spent = (many - single) / len(gaps)
    return [
        Row("restart", "own share of a restart, median", "s", median, {}, "at most 0.3 s", median <= 0.3, note),
        Row("restart", "own share of a restart, worst", "s", max(gaps), {}, "at most 1 s", max(gaps) <= 1.0, note),
        Row("restart", "processor time of a restart", "s", spent, {}, "at most 0.3 s", spent <= 0.3, note),
    ]


def measured(restarts: int) -> tuple[list[float], float]:
    """Return the seconds between the end of each launch and the begin of the next, and the processor time of all."""
    with tempfile.TemporaryDirectory() as directory:
        logdir, done = Path(directory) / "logs", Path(directory) / "done"
        if not restarts:
            done.touch()
        with EventsWriter(logdir) as writer:
            for step in range(100_000):
                writer.scalar("loss", 0.5, step=step)
        program = [sys.executable, "-I", "-S", "-c", PROGRAM, str(done)]
        command = [*COMMAND, "--logdir", str(logdir), "--", *program]
        ends, begins = [], []
        before = children_secs()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
            assert running.stdout is not None
            for line in running.stdout:
                word, _, at = line.partition(" ")
                (begins if word == "begin" else ends).append(float(at))
                if len(begins) > restarts:
                    done.touch()
        spent = children_secs() - before
    return [begin - end for end, begin in zip(ends, begins[1:], strict=False)], spent


def children_secs() -> float:
    """Return the processor time of all processes that were waited for, with theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    print_table(rows("--quick" in sys.argv))

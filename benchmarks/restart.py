"""The restarter's own share of a restart: from the end of one launch to the first instruction of the next.

python -m benchmarks.restart [--quick]

The program asks to be started again at once (status 75), in a logdir with 100,000 events. What is measured holds
everything between: reaping, reading the logdir, the decision, the state on disk, a keeper, and the start of the program
itself, a Python without site-packages.
"""

from __future__ import annotations

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
    gaps = measured(5 if quick else 40)
    median = statistics.median(gaps)
    return [
        Row("restart", "own share of a restart, median", "s", median, {}, "at most 0.3 s", median <= 0.3),
        Row("restart", "own share of a restart, worst", "s", max(gaps), {}, "at most 1 s", max(gaps) <= 1.0),
    ]


def measured(restarts: int) -> list[float]:
    """The seconds between the end of each launch and the begin of the next."""
    with tempfile.TemporaryDirectory() as directory:
        logdir, done = Path(directory) / "logs", Path(directory) / "done"
        with EventsWriter(logdir) as writer:
            for step in range(100_000):
                writer.scalar("loss", 0.5, step=step)
        program = [sys.executable, "-I", "-S", "-c", PROGRAM, str(done)]
        command = [*COMMAND, "--logdir", str(logdir), "--", *program]
        ends, begins = [], []
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
            assert running.stdout is not None
            for line in running.stdout:
                word, _, at = line.partition(" ")
                (begins if word == "begin" else ends).append(float(at))
                if len(begins) > restarts:
                    done.touch()
    return [begin - end for end, begin in zip(ends, begins[1:], strict=False)]


if __name__ == "__main__":
    print_table(rows("--quick" in sys.argv))

"""What importing costs: a process that imports a module against one that imports nothing.

python -m benchmarks.imports [--quick]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.report import Row, print_table

NOTHING = "pass"
OURS = "import supervisor_core"
WRITER = "import supervisor_core.events"
COMMAND = "import supervisor_core.cli"
PEERS = {
    "tensorflow": "import os; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'; import tensorflow",
    "tensorboard's writer": "import tensorboard.summary.writer.event_file_writer",
    "prometheus_client": "import prometheus_client",
    "numpy": "import numpy",
}


def rows(quick: bool) -> list[Row]:
    """Measure; each round runs every statement once, and the medians of the differences count."""
    statements = {NOTHING: NOTHING, OURS: OURS, WRITER: WRITER, COMMAND: COMMAND, **PEERS}
    costs: dict[str, list[float]] = {name: [] for name in statements}
    for _ in range(3 if quick else 15):
        nothing = seconds(NOTHING)
        for name, statement in statements.items():
            costs[name].append(seconds(statement) - nothing)
    medians = {name: statistics.median(values) for name, values in costs.items()}
    peers = {name: medians[name] for name in PEERS}
    return [
        Row("import", OURS, "s", medians[OURS], peers, "at most 0.05 s", medians[OURS] <= 0.05),
        Row("import", "the events writer", "s", medians[WRITER], {}, "at most 0.3 s", medians[WRITER] <= 0.3),
        Row("import", "the command", "s", medians[COMMAND], {}, "at most 0.3 s", medians[COMMAND] <= 0.3),
    ]


def seconds(statement: str) -> float:
    """The wall time of a process that runs one statement."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True, capture_output=True)
    return time.perf_counter() - started


if __name__ == "__main__":
    print_table(rows("--quick" in sys.argv))

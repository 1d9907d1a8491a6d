"""Messages about a fleet of 200 with scripted lives, in 10,000 simulated minutes: false ones, missed ones, memory."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from benchmarks.fleet.exporter import resident_bytes
from benchmarks.fleet_day import FleetDay
from benchmarks.report import Row, print_table

MINUTES, QUICK_MINUTES = 10_000, 330
GROWTH_MB = 5.0


def rows(quick: bool) -> list[Row]:
    """Watch, with a look every simulated minute."""
    minutes = QUICK_MINUTES if quick else MINUTES
    memory: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        day = FleetDay(Path(directory))
        began = time.process_time()
        day.run(minutes, lambda hours: memory.append(resident_bytes() / 2**20))
        took = time.process_time() - began
    wrong = len(day.problems) + len(day.false_runs)
    for text in day.problems[:20]:
        print(text, file=sys.stderr)
    what = f"{minutes:,} simulated minutes of {day.runs} runs"
    note = f"{day.expected:,} changes in the script, {day.messages:,} messages"
    third = len(memory) // 3
    growth = sum(memory[-third:]) / third - sum(memory[third : 2 * third]) / third
    return [
        Row("notify", f"{what}: false, missed or late", "events", wrong, {}, "0", wrong == 0, note),
        Row(
            "notify", f"{what}: memory of the last third, above that of the second", "MB", growth, {},
            f"at most {GROWTH_MB:g} MB", growth <= GROWTH_MB, f"in all {memory[-1]:.0f} MB, this program's writers too",
        ),
        Row("notify", f"{what}: a minute and its writers", "ms", took / day.looks * 1e3, {}, "", None, "processor"),
    ]  # fmt: skip


if __name__ == "__main__":
    print_table(rows("--quick" in sys.argv))

"""What `supervise` costs a training loop in each step; what it costs in each save is in `benchmarks.frameworks`.

It is measured in a loop without anything else, in turns with an empty one. A turn ends with the counting of what was
only noted in its steps.

    python -m benchmarks.supervise [--quick]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

from benchmarks.report import Row, print_table
from supervisor_core import Options, supervise

GOAL_US = 1.0


def rows(quick: bool) -> Iterator[Row]:
    turns, steps = (20, 1000) if quick else (300, 4000)
    options = Options(handle_signals=False)
    with tempfile.TemporaryDirectory() as logdir, supervise(logdir, save_secs=None, options=options) as run:
        progress, clock = run._recorder_now.progress, time.monotonic

        def in_steps() -> None:
            for _ in run.steps(run.global_step + steps):
                pass
            assert progress.steps == run.global_step  # counts them

        def by_hand() -> None:
            for _ in range(steps):
                run.step()
            assert progress.steps == run.global_step

        def reading() -> None:
            for _ in range(steps):
                clock()

        def nothing() -> None:
            for _ in range(steps):
                pass

        loops = {"ours": in_steps, "run.step() called by hand": by_hand, "one reading of the clock": reading}
        taken = in_turns({**loops, "nothing": nothing}, turns)
    per_step = {name: [secs / steps * 1e6 for secs in each] for name, each in taken.items()}
    empty = min(per_step["nothing"])
    best = {name: min(per_step[name]) - empty for name in loops}
    ours, median = best.pop("ours"), statistics.median(per_step["ours"]) - statistics.median(per_step["nothing"])
    what, goal = "a step in `for step in run.steps(n)` above an empty loop", f"at most {GOAL_US:g} us"
    note = f"best of {turns} turns of {steps} steps, the median is {median:.3g} us; a step of the empty loop takes"
    yield Row("supervise", what, "us", ours, best, goal, ours <= GOAL_US, f"{note} {empty:.3g} us")


def in_turns(contenders: dict[str, Callable[[], object]], turns: int) -> dict[str, list[float]]:
    """Return how many seconds each contender took in each of its turns."""
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(turns):
        for name, call in contenders.items():
            started = time.thread_time()
            call()
            taken[name].append(time.thread_time() - started)
    return taken


if __name__ == "__main__":
    print_table(rows("--quick" in sys.argv))

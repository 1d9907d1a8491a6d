"""A logdir that is renamed while a training runs: it is known in seconds that nothing can be saved."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from supervisor_core.base.log import command_line
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.render import TEXT
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.training import supervise

STEP_SECS = 0.01


def test_saves_are_tried_at_once_and_when_it_is_back(tmp_path: Path) -> None:
    """Not when the next one falls due, in an hour: metrics, finding and exporter have it, and its end; the run is
    running all the time."""
    logdir, away = tmp_path / "runs" / "a", tmp_path / "runs" / "b"
    watch = LogdirWatch(str(tmp_path / "runs"))
    exporter = Exporter([watch])
    with supervise(logdir, save_secs=3600.0) as run:

        def train_until(holds: Callable[[], bool]) -> None:
            for _ in run.steps(10**9):
                time.sleep(STEP_SECS)
                if holds():
                    return

        def said() -> dict[str, Finding]:
            (seen,) = watch.refresh().runs.values()
            return {item.kind: item for item in findings(seen, time.time())}

        def shows(series: str) -> bool:
            exporter.refresh()
            return f"{series} 1.0\n".encode() in exporter.scrape(TEXT)

        assert shows('supervisor_run_state{run="a",state="running"}')
        logdir.rename(away)
        train_until(lambda: "saves_failing" in said())
        assert shows('supervisor_run_state{run="b",state="running"}')
        found = said()
        assert f"The logdir {logdir} was renamed to" in found["saves_failing"].text
        back = command_line("mv", "-T", "--", str(away), str(logdir))
        assert (found["saves_failing"].action, found["events_failing"].action) == (back, back)
        away.rename(logdir)
        assert not {"saves_failing", "events_failing"} & set(said())
        train_until(lambda: run.run_status().session.save_failures_in_a_row == 0)
    assert run.newest_checkpoint is not None

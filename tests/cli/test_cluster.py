"""A cluster on a terminal: its recoveries, and its other processes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from supervisor_core.cli.text import SHOWN_ROWS, listed
from supervisor_core.cli.timeline import RECOVERIES, workers
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.model.run import Recovery, Run, WorkerHistory, WorkerSpan
from tests.cases import each
from tests.cli.conftest import END, START, session, text


def worker(name: str, state: Any, *starts: float, **more: Any) -> WorkerHistory:
    """Return a worker that was started at these times, 100 s each; the second session was the last to list it."""
    spans = [
        WorkerSpan(state="running", since=START + at, until=START + at + 100, started_at=START + at) for at in starts
    ]
    values: dict[str, Any] = {"session": "s2", "last_seen_at": START + 990, **more}
    return WorkerHistory(name=name, state=state, spans=tuple(spans), starts=len(spans), **values)


RECOVERY = Recovery(
    session="s1", at=START + 250, secs=12.0, error="UnavailableError: [gone]", losses=1, step=420, restored_step=400
)


def run(*workers: WorkerHistory, recoveries: tuple[Recovery, ...] = (), **changes: Any) -> Run:
    """Return a run of two sessions, the second of which runs, with this cluster."""
    sessions = (session(1, 0, 500, "lost"), session(2, 500, 1000, "running"))
    empty = RunFold("a").run(START)
    values = {"state": "running", "sessions": sessions, **changes}
    return replace(empty, workers=workers, recoveries=recoveries, **values)


def test_a_recovery_is_a_line() -> None:
    """When training could go on, how long that took, how many steps it went back, and why; steps that are not known are
    not made up."""
    several = replace(RECOVERY, losses=3, restored_step=None, error="AbortedError: x")
    first, second = text(listed((RECOVERY, several), RECOVERIES), 120).splitlines()[1:]
    assert re.split(" {2,}", first)[1:] == ["12 s", "back from 420 to 400", "UnavailableError: [gone]"]
    assert re.split(" {2,}", second)[1:] == ["12 s", "-", "AbortedError: x (the last of 3)"]


def test_a_worker_is_a_line_and_its_trouble_another() -> None:
    """Name, state, silence, steps, starts and where it is, within 80 columns; then why it is not at work."""
    lines = text(
        workers(
            run(
                worker("ps:0", "running", 0, host="h", pid=3),
                worker("[red]", "failed", 0, 200, error="OSError: [bold] gone", step=1234567, steps=98765),
                worker("worker:2", "waiting", 0, waiting_for="the chief"),
            ),
            START + 1000,
        )
    ).splitlines()
    assert [line.split() for line in lines[1:4]] == [
        ["ps:0", "running", "10", "s", "-", "-", "1", "h", "3"],
        ["[red]", "failed", "10", "s", "1,234,567", "98,765", "2", "-"],
        ["worker:2", "waiting", "10", "s", "-", "-", "1", "-"],
    ]
    assert lines[4:] == ["[red]: OSError: [bold] gone", "worker:2: waiting for the chief"]


@each(
    "changes, reported, state",
    [
        ({}, "running", "running"),
        ({"state": "stalled"}, "waiting", "waiting"),
        ({"state": "lost"}, "running", "was running"),
        ({"state": "lost"}, "lost", "lost"),
        ({"state": "completed"}, "stalled", "was stalled"),
        ({"state": "completed"}, "stopped", "stopped"),
    ],
)
def test_what_a_dead_chief_said_was_so(changes: dict[str, Any], reported: Any, state: str) -> None:
    """A state that may have changed since is not shown as the present one."""
    line = text(workers(run(worker("ps:0", reported, 0), **changes), END)).splitlines()[1]
    assert re.split(" {2,}", line)[1] == state


def test_of_many_workers_those_in_trouble_are_shown() -> None:
    """A hundred that run push none off the screen that does not; and it is said how many are left out."""
    many = [worker(f"worker:{index}", "running", 0) for index in range(100)]
    many[50], many[99] = worker("worker:50", "waiting", 0), worker("worker:99", "lost", 0)
    lines = text(workers(run(*many), END)).splitlines()
    assert len(lines) == SHOWN_ROWS + 2
    assert [line.split()[0] for line in lines[-3:-1]] == ["worker:50", "worker:99"]
    assert lines[-1] == "and 80 more"

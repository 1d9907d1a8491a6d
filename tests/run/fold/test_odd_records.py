"""Records that anybody may have written: whatever their fields hold, the run is read, and nothing is raised."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor_core.base.errors import EventsError
from supervisor_core.events.telemetry import KINDS, SkippedCheckpoint, from_json
from supervisor_core.metrics.page import run_status
from supervisor_core.metrics.table import RUN_METRICS
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.judge.run_json import as_json, plain
from supervisor_core.run.model.run import Run
from tests.cases import each

T = 1_600_000_000.0
ODD = [None, True, 0, -1, 7, 10**30, 10**400, -(2**63), 1e308, -5.5, T, "", "a", "training", [], ["x", None, 3], {}]
ODD += [
    {"name": "a", "state": "idle", "ticks": "x", "last_tick_at": 1e400},
    {"productive": -3, "stall": 1e300, "x": []},
]
WORKER = {"name": "ps:0", "state": "lost", "started_at": "x", "step": -1, "steps": 1e30, "last_seen_at": [], "pid": {}}
ODD += [[WORKER, {"name": "ps:0", "state": "failed"}, {"name": "²", "state": "running", "started_at": -1e400}, {}]]
ODD += [[{"name": "b", "state": ["idle"]}, {"name": 3}], [{"path": None}], {"MainThread": "no list"}, {"t": [1, 2]}]


@settings(max_examples=100)
@given(data=st.data())
def test_a_record_may_hold_anything(data: Any, trainer: Any) -> None:
    """Fields of any type and size among good records: the run, its status and its good parts are there."""
    good = trainer("a", T).spend(15).ready(5).train(10).save()
    for _ in range(data.draw(st.integers(1, 5))):
        kind = data.draw(st.sampled_from(sorted(KINDS)))
        names = [item.name for item in fields(KINDS[kind])]
        values = {"v": 1, "session": data.draw(st.sampled_from(["a", "b", 7])), "phase": "training", "state": "begin"}
        values |= {"attempt": 2, "host": "h", "pid": 1, "facade": "x", "started_at": T, "since": T, "trigger": "timer"}
        values |= {"reason": "error"}
        values |= {
            name: data.draw(st.sampled_from(ODD)) for name in data.draw(st.lists(st.sampled_from(names), max_size=4))
        }
        try:
            record = from_json(kind, json.dumps(values))
        except EventsError:
            continue
        good.file.record(record, 5, good.now)
    fold = RunFold("run")
    fold.update(good.file.chunks([10]))
    run = fold.run(good.now + 5, lambda path: True)
    assert "a" in [session.id for session in run.sessions]
    assert min(run.goodput.secs.values()) >= 0
    status = run_status(run, good.now + 5)
    for metric in RUN_METRICS:
        for _, value, _ in metric.read(status, good.now + 5):
            assert math.isfinite(value)
            assert value >= 0 or metric.type != "counter"
    assert status.run == "run"
    hash(status.session.phase)


def test_counts_that_cannot_be_are_not_known(trainer: Any) -> None:
    """What is negative or no number counts neither down nor at all."""
    good = trainer("a", T).spend(15).ready(5).train(10)
    thread = {"name": "checkpoint", "state": "idle", "ticks": -3, "failures": -1, "overdue_secs": -5.0}
    text = json.dumps({"v": 1, "session": "a", "phase": "training", "steps": -7, "events_dropped": -2, "step": -9})
    text = text[:-1] + f', "steps_per_sec": NaN, "progress_age_secs": -Infinity, "threads": [{json.dumps(thread)}]}}'
    good.file.record(from_json("heartbeat", text), 5, good.now)
    saved = {"v": 1, "session": "a", "trigger": "timer", "path": "m-1", "secs": -4.0, "blocked_secs": -4.0, "bytes": -1}
    good.file.record(from_json("checkpoint", json.dumps(saved)), 5, good.now)
    fold = RunFold("run")
    fold.update(good.file.chunks())
    status = run_status(fold.run(good.now + 5), good.now + 5)
    assert status.session.beat is not None
    assert (status.session.steps, status.steps_per_sec, status.session.beat.events_dropped) == (None, None, 0)
    assert (status.threads[0].ticks, status.threads[0].failures, status.threads[0].overdue_secs) == (0, 0, 0.0)
    assert status.session.save_secs is not None
    assert status.checkpoint.last_success is not None and status.checkpoint.last_success.bytes is None
    assert status.session.save_secs.sum == 0.0


def test_what_a_heartbeat_does_not_tell_is_not_zero(trainer: Any) -> None:
    """Seconds that cannot be read do not set counters back."""
    good = trainer("a", T).spend(15).ready(5).train(10)
    before = run_of(good)
    text = json.dumps({"v": 1, "session": "a", "phase": "training", "step": 10, "activity_secs": [1]})
    good.file.record(from_json("heartbeat", text), 5, good.now)
    assert run_of(good).sessions[0].reported_secs == before.sessions[0].reported_secs != {}


@each("state", ["asleep", ["idle"], 3, None])
def test_a_thread_or_worker_in_an_unknown_state_is_none(trainer: Any, state: Any) -> None:
    """And numbers and texts of one that is known count only where they can be."""
    good = trainer("a", T).spend(15).ready(5).train(10)
    odd = {"step": -1, "steps": -7, "pid": "x", "host": 3, "error": [], "last_seen_at": "now", "started_at": "soon"}
    values = {
        "threads": [
            {"name": "odd", "state": state},
            {"name": "b", "state": "idle", "ticks": None, "last_tick_at": "x"},
        ],
        "workers": [{"name": "odd", "state": state}, {"name": "ps:0", "state": "running", **odd}],
    }
    text = json.dumps({"v": 1, "session": "a", "phase": "training", **values})
    good.file.record(from_json("heartbeat", text), 5, good.now)
    run = run_of(good)
    assert "odd" not in {thread.name for thread in run.threads}
    (thread,) = (thread for thread in run.threads if thread.name == "b")
    assert (thread.ticks, thread.last_tick_at) == (0, None)
    (worker,) = run.workers
    assert (worker.name, worker.starts, worker.last_seen_at) == ("ps:0", 1, None)
    assert (worker.step, worker.steps, worker.pid, worker.host, worker.error) == (None,) * 5


def test_of_a_checkpoint_that_was_passed_over_path_and_reason_are_kept(trainer: Any) -> None:
    """A record may name it with anything else besides; none of that is kept, or shown."""
    record = {"v": 1, "session": "a", "attempt": 1, "skipped": [{"path": "m-1", "reason": "cut", "other": "x"}, 7]}
    good = trainer("a", T).spend(15)
    good.file.record(from_json("session", json.dumps(record)), 5, good.now)
    assert run_of(good).sessions[0].skipped == (SkippedCheckpoint(path="m-1", reason="cut"),)


def test_names_that_are_no_text_are_escapes_in_json(trainer: Any) -> None:
    """Half a character, in stacks and in the names of threads."""
    good = trainer("a", T).spend(15).ready(5).train(10)
    stacks = {"Main\ud800": ["a.py:1 \ud800"]}
    begun = {"v": 1, "session": "a", "state": "begin", "phase": "training", "since": T, "stacks": stacks}
    good.file.record(from_json("stall", json.dumps(begun)), 5, good.now)
    (stall,) = plain(as_json(run_of(good).stalls))
    assert stall["stacks"] == {"Main\\ud800": ["a.py:1 \\ud800"]}


def run_of(good: Any) -> Run:
    """The run that a file holds."""
    fold = RunFold("run")
    fold.update(good.file.chunks())
    return fold.run(good.now + 5)

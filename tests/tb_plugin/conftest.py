"""Runs that are made up, a watch that shows them, and TensorBoard's own router in front of the tab."""

from __future__ import annotations

import dataclasses
import json
import logging
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from werkzeug.test import Client, TestResponse

from supervisor_core.events.chunk import Chunk, FileFacts, Points
from supervisor_core.events.telemetry import NoticeRecord, SkippedCheckpoint
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.run import (
    BUCKETS,
    Advice,
    AtRisk,
    Goodput,
    NonFinite,
    Recovery,
    Restart,
    Run,
    Session,
    Silence,
    Stall,
    ThreadHistory,
    ThreadSpan,
    ThreadTick,
    WorkerHistory,
    WorkerSpan,
)
from supervisor_core.run.model.snapshot import LogdirSnapshot, WatchedRun
from tb_plugin import backend
from tb_plugin.backend import Backend
from tb_plugin.http import Answer
from tb_plugin.index import Index
from tb_plugin.logdirs import Logdir
from tb_plugin.plugin import applications
from tb_plugin.scalar_store import ScalarStore
from tb_plugin.static_files import static_files
from tb_plugin.tab import Tab
from tests.conftest import StillClock

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what TensorBoard brings along is not ours to mend
    from tensorboard.backend.application import TensorBoardWSGI

NOW = 1_795_222_300.0
LOGDIR = "/runs"
HOSTILE_NAMES = (
    '<img src=x onerror="alert(1)">',
    "quotes ' \" ` and \\ back",
    "../../etc/passwd",
    "a%2Fb?c=d&e#f;g",
    "unicode \N{SNOWMAN} \N{HANGUL SYLLABLE HAN} \N{GRINNING FACE} \u202e rtl",
    "new\nline\tand\x7f",
    "x" * 300,
    "__proto__",
    "</script><script>alert(1)</script>",
)


def a_session(id: str, **how: Any) -> Session:
    """A session that ran from one minute before `NOW`, or as said."""
    return Session(
        **{
            "session": id,
            "attempt": 1,
            "started_at": NOW - 60,
            "ended_at": NOW,
            "outcome": "running",
            "inferred": False,
            "files": (f"{LOGDIR}/a/{id}",),
            **how,
        }
    )


def a_run(name: str = "a", **how: Any) -> Run:
    """A run of which nothing is known but what is said."""
    secs = {**dict.fromkeys(BUCKETS, 7.5), "silent": 0.0, "at_risk": 0.0}
    goodput = Goodput(wall_secs=60.0, secs=secs, booked_secs={}, ratio=0.125, inferred=False)
    known = {"state": "running", "inferred": False, "goodput": goodput, "steps_lost": 0, "nonfinite": 0, **how}
    return dataclasses.replace(RunFold(name).run(NOW), **known)


def a_rich_run(name: str = "a") -> Run:
    """A run in its second session, with some of everything."""
    return a_run(
        name,
        sessions=(
            a_session("one", started_at=NOW - 600, ended_at=NOW - 120, outcome="lost", last_step=130),
            a_session(
                "two",
                attempt=2,
                first_step=100,
                last_step=200,
                phase="training",
                checkpoint_interval_secs=60.0,
                skipped=(SkippedCheckpoint(path="model.ckpt-120", reason="cut short"),),
            ),
        ),
        restarts=(
            Restart(
                at=NOW - 60,
                from_session="one",
                to_session="two",
                reason="lost",
                from_step=130,
                to_step=100,
                rewind_steps=30,
                downtime_secs=60.0,
                inferred=False,
            ),
        ),
        labels={"team": "vision"},
        at_risk=AtRisk(steps=12, secs=6.0, saved_step=180),
        advice=Advice(
            save_cost_secs=0.5,
            mtbf_secs=600.0,
            failures=3,
            present_interval_secs=60.0,
            recommended_interval_secs=25.0,
            present_cost_ratio=0.058,
            recommended_cost_ratio=0.041,
        ),
        nonfinite_tags=(NonFinite(tag="loss", values=3, first_step=110, last_step=112),),
        notices=(NoticeRecord(session="two", text="accuracy fell", count=2, since=NOW - 20, at=NOW - 9, step=180),),
        silences=(Silence(session="one", since=NOW - 300, until=NOW - 250, secs=50.0),),
        recoveries=(
            Recovery(
                session="two",
                at=NOW - 15,
                secs=5.0,
                error="UnavailableError: Socket closed",
                losses=2,
                step=190,
                restored_step=180,
                restored_checkpoint="model.ckpt-180",
            ),
        ),
        workers=(
            WorkerHistory(
                name="ps:0",
                session="two",
                state="running",
                starts=1,
                last_seen_at=NOW - 1,
                phase="serving",
                host="ps-0",
                pid=7,
                spans=(WorkerSpan(state="running", since=NOW - 60, until=NOW, started_at=NOW - 700),),
            ),
            WorkerHistory(
                name="worker:1",
                session="two",
                state="lost",
                starts=2,
                last_seen_at=NOW - 25,
                phase="training",
                step=190,
                steps=40,
                spans=(
                    WorkerSpan(state="running", since=NOW - 600, until=NOW - 120, started_at=NOW - 650),
                    WorkerSpan(state="waiting", since=NOW - 60, until=NOW - 50, started_at=NOW - 100),
                    WorkerSpan(state="running", since=NOW - 50, until=NOW - 20, started_at=NOW - 100),
                    WorkerSpan(state="lost", since=NOW - 20, until=NOW, started_at=NOW - 100),
                ),
            ),
        ),
        checkpoints=(
            Checkpoint(session="one", at=NOW - 300, step=100, on_disk=True, bytes=9, secs=1.5),
            Checkpoint(session="two", at=NOW - 20, step=180, path="/r/ckpt-180", on_disk=False, consistent=True),
            Checkpoint(session="two", at=NOW - 10, error="OSError: no space left"),
        ),
        threads=(
            ThreadHistory(
                name="checkpoint",
                session="two",
                interval_secs=60.0,
                ticks=3,
                failures=1,
                last_error="OSError: no space left",
                state="failed",
                spans=(
                    ThreadSpan(state="idle", since=NOW - 60, until=NOW - 10),
                    ThreadSpan(state="failed", since=NOW - 10, until=NOW, error="OSError: no space left"),
                ),
                seen_ticks=(
                    ThreadTick(at=NOW - 40, secs=1.0, ok=True),
                    ThreadTick(at=NOW - 10, secs=float("nan"), ok=False),
                ),
            ),
        ),
        stalls=(
            Stall(
                session="two",
                phase="training",
                since=NOW - 30,
                until=None,
                step=170,
                secs=30.0,
                timeout_secs=20.0,
                stacks={"MainThread": ("train.py:3 in main", "train.py:9 in step")},
            ),
        ),
        first_step=1,
        max_step=200,
        step=200,
        steps_per_sec=float("inf"),
        rates=(1.0, 2.0),
        last_event_at=NOW - 1,
        steps_lost=30,
    )


def watched(run: Run, directory: str | None = None, **how: Any) -> WatchedRun:
    """The run, read from one file."""
    file = FileFacts(
        path=f"{directory or f'{LOGDIR}/{run.name}'}/events.out.tfevents.1",
        size_bytes=100,
        read_bytes=90,
        records=5,
        corrupt_records=0,
        torn_bytes=10,
    )
    return WatchedRun(run=run, **{"files": (file,), "directory": directory or "", **how})


class FakeWatch:
    """A watch whose runs and problems the test sets."""

    def __init__(self, *runs: WatchedRun, logdir: str = LOGDIR, problems: tuple[str, ...] = ()) -> None:
        self.logdir = logdir
        self.problems = problems
        self.at = NOW
        self.runs = {item.run.name: item for item in runs}

    def refresh(self, on_progress: Callable[[int, int], None] | None = None) -> LogdirSnapshot:
        for done in range(len(self.runs)):
            if on_progress is not None:
                on_progress(done + 1, len(self.runs))
        return LogdirSnapshot(logdir=self.logdir, at=self.at, runs=dict(self.runs), problems=self.problems)

    def close(self) -> None:
        """There is no cache."""


@dataclass
class FakeSource:
    """Hands out chunks, once; or fails."""

    chunks: list[Chunk] = field(default_factory=list)
    error: Exception | None = None

    def pieces(self) -> list[Chunk]:
        if self.error is not None:
            raise self.error
        chunks, self.chunks = self.chunks, []
        return chunks


def points(steps: Any, walls: Any, values: Any) -> Points:
    """Scalars of one tag."""
    return Points(np.arange(len(steps)), np.asarray(steps), np.asarray(walls, float), np.asarray(values, float))


class Bench:
    """The tab on made-up runs, behind TensorBoard's own router. It reads when the test says so, never by itself."""

    def __init__(self, *watches: FakeWatch, path_prefix: str = "", files: Mapping[str, Answer] | None = None) -> None:
        self.watches = {watch.logdir: watch for watch in watches}
        self.clock = StillClock(NOW)
        self.sources: dict[str, FakeSource] = {}
        self.logdirs = [Logdir(watch.logdir) for watch in watches]
        self.index = Index(self.logdirs, 5.0, self.watches.__getitem__, self.clock)
        self.scalar_store = ScalarStore(self.sources.__getitem__, 1 << 30, 1.0, self.clock)
        self.backend = Backend(self.index, self.scalar_store, first_view_secs=0.0)
        plugin = _Plugin(applications(files or static_files(), self.backend.answer))
        self.address = f"{path_prefix}/data/plugin/supervisor/"
        self.client = Client(TensorBoardWSGI([plugin], path_prefix))

    def get(self, route: str, headers: Mapping[str, str] | None = None, **arguments: Any) -> TestResponse:
        return self.client.get(self.address + route, query_string=arguments, headers=headers)

    def json(self, route: str, **arguments: Any) -> Any:
        answer = self.get(route, **{name.rstrip("_"): value for name, value in arguments.items()})
        assert answer.status_code == 200, answer.text
        assert answer.content_type == "application/json"
        return json.loads(answer.data, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))

    def columns(self, route: str, **arguments: Any) -> tuple[dict[str, Any], dict[str, list[float]]]:
        answer = self.get(route, **{name.rstrip("_"): value for name, value in arguments.items()})
        assert answer.status_code == 200, answer.text
        assert answer.content_type == "application/octet-stream"
        (length,) = struct.unpack_from("<I", answer.data)
        assert (4 + length) % 8 == 0
        header = json.loads(answer.data[4 : 4 + length])
        body = np.frombuffer(answer.data, "<f8", offset=4 + length)
        assert len(body) == header["length"] * len(header["columns"])
        return header, {
            name: body[index * header["length"] : (index + 1) * header["length"]].tolist()
            for index, name in enumerate(header["columns"])
        }

    def error(self, route: str, code: int, **arguments: Any) -> str:
        answer = self.get(route, **{name.rstrip("_"): value for name, value in arguments.items()})
        assert answer.status_code == code, answer.text
        assert answer.content_type == "application/json"
        text = answer.get_json()["error"]
        assert isinstance(text, str)
        return text

    def close(self) -> None:
        self.scalar_store.close()


class _Plugin(Tab):
    def __init__(self, apps: dict[str, Any]) -> None:
        self._apps = apps

    def get_plugin_apps(self) -> dict[str, Any]:
        return self._apps

    def is_active(self) -> bool:
        return True


@pytest.fixture
def bench(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Bench]]:
    """Returns a function that puts the tab on these watches, or runs, having read them once.

    A request waits until what it asks for has been read, however busy the machine is.
    Fails where TensorBoard's own validator of security headers had anything to say of an answer.
    """
    made: list[Bench] = []
    for name in ("SCALARS_SECS", "COMPARE_SECS"):
        monkeypatch.setattr(backend, name, 60.0)

    def make(*shown: FakeWatch | Run | WatchedRun, read: bool = True, **how: Any) -> Bench:
        watches = [item for item in shown if isinstance(item, FakeWatch)]
        runs = [watched(item) if isinstance(item, Run) else item for item in shown if not isinstance(item, FakeWatch)]
        made.append(Bench(*watches or [FakeWatch(*runs)], **how))
        if read:
            made[-1].index.refresh()
        return made[-1]

    with caplog.at_level(logging.WARNING, "tensorboard"):
        yield make
    for item in made:
        item.close()
    assert [record.getMessage() for record in caplog.records if "In 3.0" in record.getMessage()] == []


def changed(run: Run, **how: Any) -> WatchedRun:
    """The run as a later look finds it, with these differences."""
    return watched(dataclasses.replace(run, **how))

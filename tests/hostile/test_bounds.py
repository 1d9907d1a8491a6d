"""What a few bytes of a file could multiply is bounded; what is beyond is counted and said, the rest stays exact."""

from __future__ import annotations

import gc
import json
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from supervisor_core.cli.inspect import run_object
from supervisor_core.cli.look import SeenRun
from supervisor_core.events import chunk_builder, directory, event_format, payload, reader, record_fields, telemetry
from supervisor_core.events.reader import EventsFileReader
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.page import run_status
from supervisor_core.metrics.render import TEXT
from supervisor_core.run.fold import bounds, file_fold, inferred_sessions, other_writers
from supervisor_core.run.model.run import Run
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tb_plugin.run_data import RunView, View, details, overview_line

LOGDIRS = Path(__file__).parents[3] / "shared" / "logdirs"
NOW = 1.7e9 + 60


@pytest.fixture(scope="session")
def records(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """The module that writes events files record by record."""
    return module_at("events/record_writer.py")


@pytest.fixture(scope="session")
def corpus(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """The module that makes hostile telemetry."""
    return module_at("hostile/make_corpus.py")


@pytest.fixture
def watched(tmp_path: Path) -> Callable[..., WatchedRun]:
    """Returns a function that writes a file of a run, and reads the run."""

    def write(*parts: bytes, name: str = "events.out.tfevents.1700000000.host") -> WatchedRun:
        (tmp_path / "logs" / "run").mkdir(parents=True, exist_ok=True)
        (tmp_path / "logs" / "run" / name).write_bytes(b"".join(parts))
        return LogdirWatch(str(tmp_path / "logs")).refresh().runs["run"]

    return write


def record(corpus: ModuleType, kind: str, **fields: object) -> bytes:
    """A record of the session s."""
    text: bytes = corpus.telemetry(kind, json.dumps({"v": 1, "session": "s", **fields}))
    return text


def test_the_files_of_a_run(
    watched: Callable[..., WatchedRun], records: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The newest are read, and how many are not is served; a file with a second name is no reason to say anything."""
    monkeypatch.setattr(directory, "MAX_FILES", 3)
    for number in range(5):
        run = watched(records.HEAD, records.scalar(number), name=f"events.out.tfevents.170000000{number}.host")
    assert (run.dropped, [file.path[-6] for file in run.files]) == ({"events": 2}, ["2", "3", "4"])
    assert "events dropped 2 x" in str(run.problem)
    exporter = Exporter([LogdirWatch(str(tmp_path / "logs"))])
    exporter.refresh()
    assert 'supervisor_exporter_dropped_total{kind="events",run="run"} 2.0\n' in exporter.scrape(TEXT).decode()
    for number in range(3):
        os.unlink(tmp_path / "logs" / "run" / f"events.out.tfevents.170000000{number}.host")
    (tmp_path / "logs" / "run" / "tfevents").symlink_to("events.out.tfevents.1700000004.host")
    run = LogdirWatch(str(tmp_path / "logs")).refresh().runs["run"]
    assert (run.dropped, run.problem, run.skipped_files) == ({}, None, 1)


@pytest.mark.parametrize("count", [3, 300], ids=["one by one", "in bulk"])
def test_the_tags_of_a_file(tmp_path: Path, records: ModuleType, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """The first ones are read on and on, to the last point; scalars of the others are counted, and take no memory. A
    file that takes its place begins with none."""
    monkeypatch.setattr(chunk_builder, "MAX_TAGS", 2)
    path = str(tmp_path / records.NAME)
    first = [records.scalar(step, tag) for step in range(count) for tag in ("a0", "b0")]
    records.write(path, records.HEAD, *first, *(records.scalar(step, f"c{step % 3}") for step in range(count)))
    reading = EventsFileReader(path)
    chunk = reading.read()
    assert {tag: len(found) for tag, found in chunk.scalars.items()} == {"a0": count, "b0": count}
    records.append(path, records.scalar(7, "a0"), records.scalar(8, "d0"))
    chunk = reading.read()
    assert (list(chunk.scalars), reading.facts().left_out_scalars) == (["a0"], count + 1)
    os.unlink(path)
    records.write(path, records.HEAD, records.scalar(1, "e0"))
    chunk = reading.read()
    assert (list(chunk.scalars), reading.facts().left_out_scalars) == (["e0"], 0)


def test_a_tag_has_a_length(tmp_path: Path, records: ModuleType) -> None:
    """An event with a longer one is refused, counted and located."""
    path = str(tmp_path / records.NAME)
    good, bad = (records.scalar(1, "x" * length) for length in (payload.MAX_TAG_BYTES, payload.MAX_TAG_BYTES + 1))
    records.write(path, records.HEAD, good, bad, records.scalar(2))
    reading = EventsFileReader(path)
    chunk = reading.read()
    assert sorted(map(len, chunk.scalars)) == [len("loss"), payload.MAX_TAG_BYTES]
    assert [problem.offset for problem in reading.facts().problems] == [len(records.HEAD) + len(good)]


def test_the_tags_of_a_run(
    watched: Callable[..., WatchedRun], records: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its files share an allowance; what is beyond is a reason why the run was not read in full."""
    monkeypatch.setattr(bounds, "MAX_TAGS", 3)
    watched(records.HEAD, *(records.scalar(step, tag) for step in range(5) for tag in ("a", "b")))
    run = watched(
        records.HEAD,
        *(records.scalar(step, tag) for step in range(5) for tag in ("a", "b")),
        name="events.out.tfevents.1700000001.host",
    )
    assert (run.dropped, run.run.scalar_tags) == ({"events": 5}, 2)
    assert "events dropped 5 x" in run.problem


def test_the_tags_that_are_followed(
    watched: Callable[..., WatchedRun], records: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tags beyond them say nothing about restarts; all of the run was read, all the same."""
    monkeypatch.setattr(other_writers, "MAX_FOLLOWED_TAGS_OF_FILE", 1)
    run = watched(records.HEAD, *(records.scalar(step, tag) for step in range(5) for tag in ("a", "b")))
    assert (run.dropped, run.problem, run.run.step) == ({"history": 5}, None, 4)


def test_the_sessions_of_a_file(
    watched: Callable[..., WatchedRun], corpus: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first ones are kept; further ones are counted. Reasons of restarts are those that there are."""
    monkeypatch.setattr(file_fold, "MAX_SESSIONS_OF_FILE", 3)
    parts = []
    for number in range(5):
        start = {"session": f"s{number}", "attempt": number + 1, "previous_outcome": f"reason {number}"}
        parts.append(record(corpus, "session", host="h", pid=1, facade="x", started_at=NOW + number, **start))
    run = watched(*parts)
    assert (len(run.run.sessions), run.dropped) == (3, {"sessions": 2})
    assert not run.read_ok
    assert run_status(run.run, NOW).restarts == {"lost": 2}


def test_the_launches_of_a_file(
    watched: Callable[..., WatchedRun], records: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STARTs beyond them open no session, and the scalars after them are still read."""
    monkeypatch.setattr(other_writers, "MAX_LAUNCHES", 3)
    parts = []
    for number in range(5):
        start = (
            b"\x09" + struct.pack("<d", 1.7e9 + 1000 * number) + b"\x10" + bytes([10 * number]) + b"\x3a\x02\x08\x01"
        )
        parts += [event_format.frame(start), records.scalar(10 * number + 5)]
    run = watched(records.HEAD, *parts)
    assert (len(run.run.sessions), run.dropped, run.run.step) == (3, {"sessions": 2}, 45)


def test_the_sessions_that_are_inferred(
    watched: Callable[..., WatchedRun], records: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that begin again lower down divide a run into ``MAX_SESSIONS`` sessions at most."""
    monkeypatch.setattr(inferred_sessions, "MAX_SESSIONS", 3)
    steps = [step for start in (50, 40, 30, 20, 10) for step in range(start, start + 20)]
    run = watched(records.HEAD, *(records.scalar(step, "global_step/sec") for step in steps))
    assert (len(run.run.sessions), run.dropped) == (3, {"sessions": 2})


def test_history_is_let_go_of(
    watched: Callable[..., WatchedRun], corpus: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest saves, stalls, recoveries and silences of a session are kept, and what counts them counts all."""
    for name in ("MAX_HISTORY", "MAX_STALLS", "MAX_RECOVERIES", "MAX_SILENCES"):
        monkeypatch.setattr(bounds, name, 2)
    parts = []
    for number in range(5):
        parts += [
            record(corpus, "checkpoint", trigger="timer", path=f"m-{number}", step=number),
            record(corpus, "stall", state="begin", phase="training", since=NOW + number, step=number),
            record(corpus, "stall", state="end", phase="training", since=NOW + number, secs=1.0),
            record(corpus, "recovery", error="x", step=9, restored_step=number),
            record(corpus, "heartbeat", phase="training", activity_secs={"silent": 1.0 + number}),
        ]
    run = watched(*parts)
    assert run.dropped == {"history": 15}
    assert [saved.step for saved in run.run.checkpoints] == [3, 4]
    assert [stall.step for stall in run.run.stalls] == [3, 4]
    assert [lost.restored_step for lost in run.run.recoveries] == [3, 4]
    assert [silence.secs for silence in run.run.silences] == [1.0, 1.0]
    status = run_status(run.run, NOW)
    assert (status.session.saves, status.session.recoveries, run.problem) == (5, 5, None)


def history_of(corpus: ModuleType, session: str) -> bytes:
    """One of each kind of history."""
    name = {"v": 1, "session": session}
    threads = [{"name": "t", "state": "idle"}]
    workers = [{"name": "worker:1", "state": "running"}]
    records = [
        ("checkpoint", {"trigger": "timer", "path": f"m-{session}", "step": 1}),
        ("stall", {"state": "begin", "phase": "training", "since": NOW, "stacks": {"MainThread": ["x" * 99]}}),
        ("stall", {"state": "end", "phase": "training", "since": NOW, "secs": 1.0}),
        ("recovery", {"error": "x", "step": 9, "restored_step": 1}),
        ("heartbeat", {"phase": "x", "activity_secs": {"silent": 1.0}, "threads": threads, "workers": workers}),
    ]
    return b"".join(corpus.telemetry(kind, json.dumps({**name, **fields})) for kind, fields in records)


def sessions_in(run: Run) -> list[set[str]]:
    """Of which sessions there is history, by kind."""
    kinds = (run.checkpoints, run.stalls, run.recoveries, run.silences, run.threads)
    return [{item.session for item in kind} for kind in kinds]


def test_the_history_of_all_sessions_together_is_let_go_of(
    tmp_path: Path, corpus: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions share one bound: those go first whose last record is oldest, in this file or another, and also when
    the run has been looked at before. What a file has taken is free again when another takes its place."""
    for name in ("MAX_HISTORY", "MAX_STALLS", "MAX_RECOVERIES", "MAX_SILENCES", "MAX_OLD_THREADS", "MAX_OLD_WORKERS"):
        monkeypatch.setattr(bounds, name, 2)
    names = [f"events.out.tfevents.170000000{number}.host" for number in range(2)]
    (tmp_path / "run").mkdir()
    first, second = (tmp_path / "run" / name for name in names)
    first.write_bytes(history_of(corpus, "a") + history_of(corpus, "b"))
    watch = LogdirWatch(str(tmp_path))
    run = watch.refresh().runs["run"].run
    assert (sessions_in(run), run.dropped) == ([{"a", "b"}] * 5, {})
    second.write_bytes(history_of(corpus, "c"))
    assert sessions_in(watch.refresh().runs["run"].run) == [{"b", "c"}] * 5
    with first.open("ab") as file:
        file.write(history_of(corpus, "b"))
    found = watch.refresh().runs["run"]
    assert sessions_in(found.run)[0] == {"b"}
    assert [item.name for item in found.run.workers] == ["worker:1"]
    assert found.problem is None
    assert found.dropped == {"history": 13}
    assert len(found.run.sessions) == 3
    second.unlink()
    first.unlink()
    first.write_bytes(history_of(corpus, "d"))
    run = watch.refresh().runs["run"].run
    assert (sessions_in(run), run.dropped) == ([{"d"}] * 5, {})


def test_the_texts_of_all_sessions_together_are_let_go_of(
    watched: Callable[..., WatchedRun], corpus: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few saves there are: their paths and errors have a bound too."""
    monkeypatch.setattr(bounds, "MAX_HISTORY_CHARS", 10_000)
    parts = [
        corpus.telemetry("checkpoint", json.dumps({"v": 1, "session": f"s{at}", "trigger": "", "error": "x" * 4_000}))
        for at in range(5)
    ]
    run = watched(*parts)
    assert [saved.session for saved in run.run.checkpoints] == ["s3", "s4"]
    assert run.dropped == {"history": 3}


def test_a_session_takes_little_memory(tmp_path: Path, corpus: ModuleType) -> None:
    """Ten thousand of them, with a few heartbeats, a save and a recovery each, take some 100 MB and not hundreds."""
    count = 120
    parts = []
    for at in range(count):
        threads = [{"name": f"thread {number}", "state": "idle", "ticks": 1} for number in range(3)]
        parts += [
            record(
                corpus, "session", session=f"s{at}", host="h", pid=1, facade="x", started_at=NOW + at, attempt=at + 1
            ),
            record(corpus, "heartbeat", session=f"s{at}", phase="training", step=at, threads=threads),
            record(corpus, "checkpoint", session=f"s{at}", trigger="timer", path=f"m-{at}", step=1),
            record(corpus, "recovery", session=f"s{at}", error="x", step=9, restored_step=1),
        ]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "events.out.tfevents.1700000000.host").write_bytes(b"".join(parts))
    watch = LogdirWatch(str(tmp_path), kept_ticks=1)
    watch.refresh()  # of a directory that is read first, and what is loaded then
    watch = LogdirWatch(str(tmp_path), kept_ticks=1)
    tracemalloc.start()
    try:
        shown = watch.refresh()
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(shown.runs["run"].run.sessions) == count
    assert taken / count < 12_000


def test_stacks_are_let_go_of(
    watched: Callable[..., WatchedRun], corpus: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together they have ``MAX_HISTORY_CHARS`` at most: those of the newest stalls stay."""
    monkeypatch.setattr(bounds, "MAX_HISTORY_CHARS", 250)
    stack = {"MainThread": ["x" * 99]}
    stalls = [record(corpus, "stall", state="begin", phase="x", since=NOW + at, stacks=stack) for at in range(3)]
    run = watched(*stalls)
    assert [bool(stall.stacks) for stall in run.run.stalls] == [False, True, True]
    assert run.dropped == {"history": 1}


def test_names_have_a_length(watched: Callable[..., WatchedRun], corpus: ModuleType) -> None:
    """Names of threads, texts, and the list of packages with their versions are cut."""
    long = "x" * 100_000
    versions = {f"package-{number}": long[:200] for number in range(1_000)}
    start = {"attempt": 1, "host": long, "pid": 1, "facade": "x", "started_at": NOW, "versions": versions}
    run = watched(
        record(corpus, "session", **start),
        record(corpus, "heartbeat", phase=long, threads=[{"name": long, "state": "failed", "last_error": long}]),
    ).run
    status = run_status(run, NOW)
    assert len(repr(status)) < 64 * 1024
    assert status.session is not None and len(status.session.versions) == telemetry.MAX_VERSIONS
    assert len(status.threads[0].name) == record_fields.MAX_NAME_CHARS


def test_what_was_dropped_is_said(tmp_path: Path, corpus: ModuleType) -> None:
    """By the exporter, in a metric and as a run that was not read in full; by inspect; in the tab."""
    (tmp_path / "run").mkdir()
    threads = [{"name": f"t{number}", "state": "idle"} for number in range(bounds.MAX_THREADS + 4)]
    (tmp_path / "run" / "events.out.tfevents.1700000000.host").write_bytes(corpus.heartbeat(threads=threads))
    exporter = Exporter([LogdirWatch(str(tmp_path))])
    exporter.refresh()
    page = exporter.scrape(TEXT).decode()
    assert 'supervisor_exporter_dropped_total{kind="events",run="run"} 4.0\n' in page
    assert f'supervisor_exporter_run_read_success{{logdir="{tmp_path}",run="run"}} 0.0\n' in page
    found = LogdirWatch(str(tmp_path)).refresh().runs["run"]
    shown = run_object(SeenRun(found), NOW)
    said = "events dropped 4 x"
    assert shown["dropped"] == {"events": 4}
    assert said in shown["problems"][0]["text"]
    line = overview_line("run", found, None)
    assert said in json.loads(line)["problem"]
    view = RunView(
        name="run",
        directory=str(tmp_path / "run"),
        watched=found,
        findings=(),
        generation=1,
        line=line,
    )
    answer = json.loads(details(View(generation=1, oldest=1, at=NOW, logdir=str(tmp_path)), view))
    assert (answer["dropped"], said in answer["problem"]) == ({"events": 4}, True)


def test_a_sparse_file_of_many_records(tmp_path: Path, corpus: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes on disk that claim to be gigabytes of good records are read up to a bound, said to be holes, and
    not read again, also not by the next look."""
    monkeypatch.setattr(reader, "FREE_BYTES", 1 << 20)
    corpus.sparse_records(tmp_path)
    path = str(tmp_path / corpus.NAME)
    allowed = reader.FREE_BYTES + reader.PER_STORED_BYTE * 512 * os.stat(path).st_blocks
    reading = EventsFileReader(path)
    while reading.read() is not None:
        pass
    assert reading.position.fetched <= allowed
    assert "mostly holes" in str(reading.facts().skipped)
    assert reading.facts().unreadable
    before = reading.position.fetched
    assert reading.read() is None
    assert reading.position.fetched - before < 100


def test_problems_are_bounded(tmp_path: Path, corpus: ModuleType) -> None:
    """Of many damaged places a chunk names the first, and counts all."""
    corpus.many_damaged_records(tmp_path)
    reading = EventsFileReader(str(tmp_path / corpus.NAME))
    chunk = reading.read()
    assert len(chunk.problems) == 1_000
    assert reading.facts().corrupt_records > 15_000


def test_no_real_logdir_reaches_a_bound() -> None:
    """The logdirs of real trainings of many kinds are read in full, and nothing of them is dropped."""
    if not LOGDIRS.is_dir():
        pytest.skip("the real logdirs are not at hand")
    runs = LogdirWatch(str(LOGDIRS)).refresh().runs
    assert len(runs) == 20
    assert {name: run.dropped for name, run in runs.items() if run.dropped} == {}
    assert [run.problem for run in runs.values() if run.problem] == []

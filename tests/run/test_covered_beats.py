"""What a reader makes of heartbeats that it has not decoded is what it makes of them decoded."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.long_run import LongRun
from supervisor_core.events import beat_history, covered_beats
from supervisor_core.events.chunk import Chunk, CoveredBeats
from supervisor_core.events.event_format import event_prefix, frame
from supervisor_core.events.reader import EventsFileReader
from supervisor_core.events.telemetry import RecoveryRecord, StopRecord, ThreadStatus, WorkerStatus
from supervisor_core.run.fold import RunFold
from supervisor_core.run.model import Run
from supervisor_core.wire import delimited

BEGAN = 1_700_000_000.0
BEATS = 40
ERROR_SECS = 2.0
"""How far the productive seconds at a step may be off."""


@pytest.fixture(autouse=True)
def short_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    """A history covers 40 heartbeats, so that a short run has many."""
    monkeypatch.setattr(beat_history, "MOST_BEATS", BEATS)


class EventfulRun(LongRun):
    """A run to which something happens now and then, by chance."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._failures = 0
        self.worker: str | None = None
        super().__init__(BEGAN, seed, session=f"{seed:016x}")

    def happen(self) -> None:
        """Let one thing happen."""
        what = self._chance.choice([self._evaluate, self._stall, self._set_clock, self._fail, self._lose_worker])
        what()
        self.beats(self._chance.randrange(1, 70))

    def _evaluate(self) -> None:
        self.monitor.enter("evaluating")
        self.advance(self._chance.random() * 4)
        self.progress.sample()
        self.monitor.enter("training")

    def _stall(self) -> None:
        for _ in range(self._chance.randrange(20, 90)):
            self.advance(1.0)
            self.monitor.tick()

    def _set_clock(self) -> None:
        self.set_clock(self._chance.choice((-700.0, 700.0)))

    def _fail(self) -> None:
        self._failures += 1

    def _lose_worker(self) -> None:
        self.worker = self._chance.choice(("running", "lost"))

    def workers(self) -> Iterator[WorkerStatus]:
        if self.worker is not None:
            yield WorkerStatus(name="worker:1", state=self.worker, last_seen_at=round(self.wall(), 2))  # type: ignore[arg-type]

    def threads(self) -> Iterator[ThreadStatus]:
        yield from super().threads()
        state = "ticking" if self._chance.random() < 0.1 else "idle"
        yield ThreadStatus(
            name="loop", state=state, interval_secs=5.0, ticks=int(self.now // 5), failures=self._failures,
            last_tick_at=self.wall() - self.now % 5, last_tick_secs=0.5, overdue_secs=self._chance.random() / 100,
            last_error="OSError: no" if self._failures else None,
        )  # fmt: skip


def chunks(path: Path, *, thorough: bool = False, sizes: tuple[int, ...] = ()) -> list[Chunk]:
    """What a reader finds in a file; with sizes, while it grows to each of them."""
    data, found, reader = path.read_bytes(), [], EventsFileReader(str(path), thorough=thorough)
    for size in (*sizes, len(data)):
        path.write_bytes(data[:size])
        while (chunk := reader.read()) is not None:
            found.append(chunk)
    path.write_bytes(data)
    return found


def run_of(found: list[Chunk], now: float) -> Run:
    """The run of some chunks."""
    fold = RunFold("run")
    fold.update(found)
    return fold.run(now)


def count_covered(found: list[Chunk]) -> int:
    """The number of heartbeats that are covered by others."""
    return sum(mark.history.beats for chunk in found for mark in chunk.marks if isinstance(mark, CoveredBeats))


def differences(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """Yield what differs, beyond the error of productive seconds and of an average."""
    if is_dataclass(one) and type(one) is type(other):
        for item in fields(one):
            yield from differences(getattr(one, item.name), getattr(other, item.name), f"{where}.{item.name}")
    elif isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in one.keys() | other.keys():
            yield from differences(one.get(key), other.get(key), f"{where}[{key!r}]")
    elif isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        for index, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{where}[{index}]")
    elif isinstance(one, float) and isinstance(other, float):
        error = ERROR_SECS if "goodput" in where else 1e-3
        if not math.isclose(one, other, abs_tol=error, rel_tol=1e-6):
            yield f"{where}: {one!r}, {other!r}"
    elif where.endswith(".speed") and one is not None and other is not None:
        yield from differences(tuple(one._means), tuple(other._means), f"{where}.means")
        yield from differences(tuple(one._stretches), tuple(other._stretches), f"{where}.stretches")
    elif one != other:
        yield f"{where}: {one!r}, {other!r}"


def written(run: LongRun, path: Path) -> Path:
    """A run's events file, written."""
    path.write_bytes(b"".join(run.parts))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where an events file goes."""
    return tmp_path / "events.out.tfevents.1700000000.node-07.4711.0"


@pytest.mark.parametrize("seed", range(8))
def test_a_run_is_the_same_whether_its_heartbeats_are_decoded_or_covered(seed: int, path: Path) -> None:
    """Stalls, evaluations, a clock that is set, failed ticks, lost workers: at any moment of its life."""
    run = EventfulRun(seed)
    for _ in range(8):
        run.beats(BEATS)
        run.happen()
    if seed % 2:
        run.write(StopRecord(session=run.session, reason="completed", step=run.progress.steps), run.progress.steps)
    written(run, path)
    few = chunks(path)
    assert count_covered(few) > 100
    assert not [problem for chunk in few for problem in chunk.problems]
    expected = run_of(chunks(path, thorough=True), run.wall())
    assert not list(differences(run_of(few, run.wall()), expected))
    sizes = tuple(sorted(random.Random(seed).sample(range(path.stat().st_size), 5)))
    assert not list(differences(run_of(chunks(path, sizes=sizes), run.wall()), expected))


def test_what_was_lost_is_the_same(tmp_path: Path) -> None:
    """The next session resumes at an earlier step: the seconds of the steps in between are those of the heartbeats."""
    first = LongRun(BEGAN, 1, session="1" * 16)
    first.beats(300)
    second = LongRun(first.wall() + 30.0, 2, session="2" * 16, restored=5_000)
    second.beats(100)
    paths = [written(run, tmp_path / f"events.out.tfevents.{int(at)}.h") for run, at in ((first, 1e9), (second, 2e9))]
    runs = [
        run_of([chunk for path in paths for chunk in chunks(path, thorough=thorough)], second.wall())
        for thorough in (False, True)
    ]
    assert runs[1].goodput.secs["wasted_progress_from_disruption"] > 100
    assert not list(differences(*runs))


def test_a_reader_that_knows_no_history_finds_the_same_threads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that is left out where it has not changed is as it was: an earlier version reads each heartbeat."""
    found = []
    for every in (1, beat_history.FULL_EVERY):
        monkeypatch.setattr(beat_history, "FULL_EVERY", every)
        run = EventfulRun(3)
        run.beats(200)
        found.append(run_of(chunks(written(run, path), thorough=True), run.wall()))
    assert found[0].threads == found[1].threads


def test_more_heartbeats_than_are_held_back_are_decoded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of earlier versions have no histories: no more than a bound of their heartbeats is kept undecoded."""
    monkeypatch.setattr(beat_history, "LEAST_BEATS", 1_000)
    monkeypatch.setattr(covered_beats, "MOST_BEATS", 50)
    run = LongRun(BEGAN)
    run.beats(300)
    few = chunks(written(run, path))
    assert count_covered(few) == 0
    assert run_of(few, run.wall()) == run_of(chunks(path, thorough=True), run.wall())


HISTORY = re.compile(rb'\{"v": 1, "session": "[0-9a-f]+", "history": ')


def altered(data: bytes, number: int, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A file in which one history is another one; its record is whole."""
    at = [found.start() for found in HISTORY.finditer(data)][number]
    text, length = json.JSONDecoder().raw_decode(data[at:].decode("utf-8", "replace"))
    start = data.rfind(b"\x09", 0, data.rfind(b"supervisor/heartbeat", 0, at) - 18)
    while int.from_bytes(data[start - 12 : start - 4], "little") + start < at + length:
        start = data.rfind(b"\x09", 0, start)
    end = start + int.from_bytes(data[start - 12 : start - 4], "little") + 4
    change(text["history"])
    body = json.dumps(text).encode()
    tensor = b"\x08\x07" + delimited(2, b"") + delimited(8, body)
    summary = delimited(1, delimited(1, b"supervisor/heartbeat") + delimited(8, tensor))
    record = frame(event_prefix(BEGAN + 1e5, text["step"], 5, len(summary)) + summary)
    return data[: start - 12] + record + data[end:]


def _set(name: str, value: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    def change(history: dict[str, Any]) -> None:
        history[name] = value(history[name])

    return change


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rates", lambda rates: [2 * rate for rate in rates]),
        ("rates", lambda rates: rates[1:]),
        ("productive_secs", lambda secs: [each + 5 for each in secs]),
        ("productive_secs", lambda secs: secs[::-1]),
        ("productive_beats", lambda beats: [*beats[:-1], 10**9]),
        ("productive_error_secs", lambda secs: 1e9),
        ("phases", lambda phases: [{"beat": 0, "phase": "evaluating"}]),
        ("phases", lambda phases: []),
        ("threads", lambda threads: [{**each, "states": [{"beat": 0, "state": "ticking"}]} for each in threads]),
        ("threads", lambda threads: [{**each, "tick_secs": [*each["tick_secs"], 1.0]} for each in threads]),
        ("threads", lambda threads: []),
    ],
)
def test_a_history_that_does_not_agree_with_its_heartbeats_is_not_believed(
    name: str, value: Callable[[Any], Any], path: Path
) -> None:
    """Whatever is wrong in it, the run is what its heartbeats say, and the file's problems say that."""
    run = LongRun(BEGAN)
    run.beats(4 * BEATS)
    data = b"".join(run.parts)
    path.write_bytes(altered(data, 1, _set(name, value)))
    few, all_of_them = chunks(path), chunks(path, thorough=True)
    assert not list(differences(run_of(few, run.wall()), run_of(all_of_them, run.wall())))
    [problem] = [problem for chunk in few for problem in chunk.problems]
    assert problem.kind == "telemetry"
    assert "is not believed" in problem.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("beats", count) for count in (0, 1, 2, 39, 41, 10**6)),
        ("first_elapsed_secs", 7.0),
        ("last_elapsed_secs", 7.0),
    ],
)
def test_a_history_of_other_heartbeats_is_ignored(name: str, value: float, path: Path) -> None:
    """It covers more than there are, too few to save anything, or ones that were not written: they are read."""
    run = LongRun(BEGAN)
    run.beats(2 * BEATS)
    path.write_bytes(altered(b"".join(run.parts), 0, _set(name, lambda before: value)))
    few = chunks(path)
    assert not [problem for chunk in few for problem in chunk.problems]
    assert count_covered(few) == 0
    assert not list(differences(run_of(few, run.wall()), run_of(chunks(path, thorough=True), run.wall())))


@pytest.mark.parametrize("damage", ["removed", "flipped", "torn"])
def test_a_covered_heartbeat_that_is_damaged(damage: str, path: Path) -> None:
    """Without one of its heartbeats a history covers others: all that are left are read."""
    run = LongRun(BEGAN)
    run.beats(3 * BEATS)
    beats = [index for index, part in enumerate(run.parts) if b"supervisor/heartbeat" in part]
    part = run.parts[beats[BEATS // 2]]
    run.parts[beats[BEATS // 2]] = {
        "removed": b"", "flipped": part[:-40] + bytes((part[-40] ^ 1,)) + part[-39:], "torn": part[:-100],
    }[damage]  # fmt: skip
    few, all_of_them = chunks(written(run, path)), chunks(path, thorough=True)
    assert 0 < count_covered(few) <= 2 * BEATS
    assert not list(differences(run_of(few, run.wall()), run_of(all_of_them, run.wall())))
    kinds = [[problem.kind for chunk in found for problem in chunk.problems] for found in (few, all_of_them)]
    assert kinds[0] == kinds[1]


def test_heartbeats_before_a_recovery_are_decoded_in_their_order(path: Path) -> None:
    """The model went back: the heartbeats before that are of steps that are repeated."""
    run = LongRun(BEGAN)
    run.beats(BEATS // 2)
    step = run.progress.steps
    run.write(RecoveryRecord(session=run.session, step=step, restored_step=step // 2, secs=1.0), step // 2)
    run.progress.rewound(step // 2)
    run.beats(2 * BEATS)
    few = chunks(written(run, path))
    assert not list(differences(run_of(few, run.wall()), run_of(chunks(path, thorough=True), run.wall())))

"""Lanes of the timeline: service threads and the other processes of a cluster."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

from supervisor_core.events.telemetry import WorkerState
from supervisor_core.run.model.run import ThreadHistory, ThreadSpan, ThreadTick, WorkerHistory, WorkerSpan
from tests.tb_plugin.conftest import NOW, Bench, a_rich_run, a_run, a_session


def a_thread(*ticks: ThreadTick, spans: tuple[ThreadSpan, ...] = ()) -> ThreadHistory:
    """A thread that is idle now."""
    return ThreadHistory(
        name="summary",
        session="one",
        interval_secs=1.0,
        ticks=len(ticks),
        failures=0,
        last_error=None,
        state="idle",
        spans=spans,
        seen_ticks=ticks,
    )


def test_a_lane_is_a_thread_of_a_session(bench: Callable[..., Bench]) -> None:
    """Each thread of each session, with its states and ticks over time."""
    (lane,) = bench(a_rich_run()).json("threads", run="a")["threads"]
    assert (lane["name"], lane["session"], lane["state"], lane["thinned"]) == ("checkpoint", "two", "failed", False)
    assert lane["spans"][1] == [NOW - 10, NOW, "failed", 0.0, "OSError: no space left"]
    assert lane["seen_ticks"] == [[NOW - 40, 1.0, True], [NOW - 10, None, False]]


def test_only_what_touches_the_window_is_listed(bench: Callable[..., Bench]) -> None:
    """Spans and ticks that reach into the window are there, others are not; counts are of the whole."""
    ticks = [ThreadTick(at=NOW + at, secs=2.0, ok=True) for at in (10, 20, 30)]
    spans = tuple(ThreadSpan(state="idle", since=NOW + at, until=NOW + at + 10) for at in (0, 10, 20))
    tab = bench(a_run(threads=(a_thread(*ticks, spans=spans),)))

    def seen(**window: float) -> tuple[list[float], list[float]]:
        (lane,) = tab.json("threads", run="a", **window)["threads"]
        assert lane["ticks"] == 3
        return [tick[0] - NOW for tick in lane["seen_ticks"]], [span[0] - NOW for span in lane["spans"]]

    assert seen(from_=NOW + 11, to=NOW + 18) == ([20], [10])
    assert seen(from_=NOW + 31) == ([], [])
    assert seen(to=NOW + 5) == ([], [0])
    assert seen() == ([10, 20, 30], [0, 10, 20])


def test_more_than_can_be_seen_is_thinned_but_no_failure(bench: Callable[..., Bench]) -> None:
    """Of very many ticks about 4,000 are sent, from all of the time, and every one that failed; all sessions share the
    bound. Of very many spans those in which all was well are joined."""
    failing = {5, 50_000, 99_999}
    ticks = [ThreadTick(at=NOW + at, secs=0.1, ok=at not in failing) for at in range(100_000)]
    spans = [
        ThreadSpan(state="ticking" if number % 2 else "idle", since=NOW + number, until=NOW + number + 1)
        for number in range(60_000)
    ]
    spans[30_001] = dataclasses.replace(spans[30_001], state="failed", error="OSError: no space left")
    tab = bench(a_run(threads=(a_thread(*ticks, spans=tuple(spans)),)))
    (lane,) = tab.json("threads", run="a")["threads"]
    assert lane["thinned"] is True
    kept = [int(tick[0] - NOW) for tick in lane["seen_ticks"]]
    assert kept == sorted(kept) and 3_000 < len(kept) <= 4_000
    assert {int(tick[0] - NOW) for tick in lane["seen_ticks"] if not tick[2]} == failing
    assert max(later - earlier for earlier, later in itertools.pairwise(kept)) <= 27
    assert [[span[0] - NOW, span[1] - NOW, span[2], span[4]] for span in lane["spans"]] == [
        [0, 30_001, "idle", None],
        [30_001, 30_002, "failed", "OSError: no space left"],
        [30_002, 60_000, "idle", None],
    ]
    ticks = [ThreadTick(at=NOW + at, secs=0.1, ok=at % 10 == 0) for at in range(1_000)]
    answer = bench(a_run(threads=(a_thread(*ticks),) * 200)).json("threads", run="a")
    assert {sum(not tick[2] for tick in lane["seen_ticks"]) for lane in answer["threads"]} == {900}
    assert {sum(tick[2] for tick in lane["seen_ticks"]) for lane in answer["threads"]} == {1}


def test_stalls_come_with_their_stacks(bench: Callable[..., Bench]) -> None:
    """Each stall has the stacks of all threads; one that lasts has no end."""
    (stall,) = bench(a_rich_run()).json("stalls", run="a")["stalls"]
    assert (stall["since"], stall["until"], stall["phase"]) == (NOW - 30, None, "training")
    assert stall["stacks"] == {"MainThread": ["train.py:3 in main", "train.py:9 in step"]}


def a_worker(name: str, *spans: WorkerSpan) -> WorkerHistory:
    """A worker that the session "one" listed."""
    return WorkerHistory(name=name, session="one", state="running", spans=spans, starts=1)


def flapping(count: int, *, start: float = NOW) -> list[WorkerSpan]:
    """``count`` spans of a second each."""
    states: tuple[WorkerState, ...] = ("running", "waiting")
    return [
        WorkerSpan(state=states[number % 2], since=start + number, until=start + number + 1, started_at=start)
        for number in range(count)
    ]


def a_cluster(*workers: WorkerHistory) -> object:
    """A run with these workers."""
    return a_run(sessions=(a_session("one"),), workers=workers)


def test_a_lane_is_a_worker(bench: Callable[..., Bench]) -> None:
    """Each worker has what was recorded of it last, and its states over time, whichever chief recorded them."""
    server, worker = bench(a_rich_run()).json("workers", run="a")["workers"]
    assert (server["name"], server["state"], server["host"], server["pid"]) == ("ps:0", "running", "ps-0", 7)
    assert (worker["state"], worker["starts"], worker["step"], worker["last_seen"]) == ("lost", 2, 190, NOW - 25)
    assert [span[2] for span in worker["spans"]] == ["running", "waiting", "running", "lost"]
    assert worker["spans"][3] == [NOW - 20, NOW, "lost", NOW - 100, False, None]


def test_another_process_is_marked_where_it_is_first_seen(bench: Callable[..., Bench]) -> None:
    """Where a worker was started again; spans without the start of their process change nothing."""
    worker = bench(a_rich_run()).json("workers", run="a")["workers"][1]
    assert [span[4] for span in worker["spans"]] == [False, True, False, False]
    spans = [
        WorkerSpan(state="running", since=NOW + number, until=NOW + number + 1, started_at=started_at)
        for number, started_at in enumerate((None, 1.0, None, 1.0, 2.0))
    ]
    (lane,) = bench(a_cluster(a_worker("worker:0", *spans))).json("workers", run="a")["workers"]
    assert [span[4] for span in lane["spans"]] == [False, False, False, False, True]


def test_only_spans_that_touch_the_window_are_listed(bench: Callable[..., Bench]) -> None:
    """A window leaves spans out and changes none: a mark stays where its process was started."""
    tab = bench(a_rich_run())
    worker = tab.json("workers", run="a", from_=NOW - 55, to=NOW - 45)["workers"][1]
    assert [(span[2], span[4]) for span in worker["spans"]] == [("waiting", True), ("running", False)]
    assert tab.json("workers", run="a", to=NOW - 5_000)["workers"][1]["spans"] == []


def test_who_is_sick_depends_on_what_has_become_of_the_chief(bench: Callable[..., Bench]) -> None:
    """While the chief runs, its heartbeats count; once it is gone, only a worker that was down before may be the cause;
    after a planned end no worker is in trouble."""

    def sick(state: str) -> list[str]:
        span = WorkerSpan(state="running", since=NOW - 9, until=NOW)
        states: tuple[WorkerState, ...] = ("running", "waiting", "stalled", "lost", "failed", "stopped")
        workers = [dataclasses.replace(a_worker(name, span), state=name) for name in states]
        tab = bench(a_run(state=state, sessions=(a_session("one"),), workers=tuple(workers)))
        found = [lane["name"] for lane in tab.json("workers", run="a")["workers"] if lane["sick"]]
        assert tab.json("runs")["runs"][0]["sick_workers"] == len(found)
        return found

    assert sick("running") == sick("stalled") == ["stalled", "lost", "failed"]
    assert sick("lost") == sick("failed") == ["lost", "failed"]
    assert sick("completed") == sick("stopped") == sick("unknown") == []


def test_a_worker_that_the_newest_session_does_not_report_is_not_present(bench: Callable[..., Bench]) -> None:
    """It was taken out of the cluster, or is of an earlier session: a smaller cluster is no trouble."""
    gone = a_worker("worker:0", WorkerSpan(state="lost", since=NOW - 50, until=NOW - 40))
    (lane,) = bench(a_cluster(dataclasses.replace(gone, state="lost"))).json("workers", run="a")["workers"]
    assert (lane["present"], lane["sick"]) == (False, False)
    run = a_rich_run()
    later = dataclasses.replace(run, sessions=(*run.sessions, a_session("three")))
    assert [lane["present"] for lane in bench(run).json("workers", run="a")["workers"]] == [True, True]
    assert [lane["present"] for lane in bench(later).json("workers", run="a")["workers"]] == [False, False]


def test_spans_in_which_all_was_well_are_joined(bench: Callable[..., Bench]) -> None:
    """Of a worker that flapped for a day none of its troubles and restarts is hidden, nothing is joined over a time
    without a chief, and the worker beside it, which has few spans, keeps them all. A hundred are a small answer."""
    spans = [*flapping(80_000), *flapping(100, start=NOW + 90_000)]
    spans[30_001] = dataclasses.replace(spans[30_001], state="failed", error="OSError: no space left")
    spans[50_001:80_000] = [dataclasses.replace(span, started_at=NOW + 50_001) for span in spans[50_001:80_000]]
    quiet = flapping(40, start=NOW + 70_000)
    tab = bench(a_cluster(a_worker("worker:0", *spans), a_worker("worker:1", *quiet)))
    noisy, other = tab.json("workers", run="a")["workers"]
    assert (noisy["thinned"], other["thinned"], len(other["spans"])) == (True, False, 40)
    assert [[span[0] - NOW, span[1] - NOW, span[4], span[5]] for span in noisy["spans"]] == [
        [0, 30_001, False, None],
        [30_001, 30_002, False, "OSError: no space left"],
        [30_002, 50_001, False, None],
        [50_001, 80_000, True, None],
        [90_000, 90_100, True, None],
    ]
    workers = [a_worker(f"worker:{number}", *flapping(1_000)) for number in range(100)]
    answer = bench(a_cluster(*workers)).get("workers", {"Accept-Encoding": "gzip"}, run="a")
    assert len(answer.data) < 50_000

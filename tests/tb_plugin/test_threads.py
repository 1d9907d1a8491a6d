from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

from supervisor_core.run.model.run import ThreadHistory, ThreadSpan, ThreadTick
from tests.tb_plugin.conftest import NOW, Bench, a_rich_run, a_run


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

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.run import Run
from tests.cases import each
from tests.tb_plugin.conftest import NOW, Bench, a_rich_run, a_run

COUNT = 12_000


def steps(answer: dict[str, list[dict[str, int]]]) -> list[int]:
    """The steps of a page."""
    return [item["step"] for item in answer["checkpoints"]]


def test_a_save_has_all_its_fields(bench: Callable[..., Bench]) -> None:
    """Good or bad, newest first, with its session and what is known of its files."""
    answer = bench(a_rich_run()).json("checkpoints", run="a")
    assert (answer["total"], answer["offset"]) == (3, 0)
    failed, good, _ = answer["checkpoints"]
    assert (failed["ok"], failed["error"], failed["step"]) == (False, "OSError: no space left", None)
    assert (good["step"], good["session"], good["consistent"], good["on_disk"]) == (180, "two", True, False)


def test_thousands_of_saves_are_paged(bench: Callable[..., Bench]) -> None:
    """Pages follow one another without gap or overlap from either end, and end where the saves end."""
    items = tuple(Checkpoint(session="one", at=NOW + step, step=step) for step in range(COUNT))
    tab = bench(a_run(checkpoints=items))
    assert tab.json("checkpoints", run="a")["total"] == COUNT
    assert steps(tab.json("checkpoints", run="a")) == list(range(COUNT - 1, COUNT - 1_001, -1))
    page = tab.json("checkpoints", run="a", offset=COUNT - 3, limit=10_000)
    assert (page["offset"], steps(page)) == (COUNT - 3, [2, 1, 0])
    assert steps(tab.json("checkpoints", run="a", order="oldest", offset=10_000, limit=2)) == [10_000, 10_001]
    assert steps(tab.json("checkpoints", run="a", order="oldest", offset=COUNT - 1)) == [COUNT - 1]
    for order in ("newest", "oldest"):
        assert steps(tab.json("checkpoints", run="a", order=order, offset=COUNT)) == []
        assert steps(tab.json("checkpoints", run="a", order=order, offset=10**18 - 1)) == []


def test_marks_are_the_saves_in_order(bench: Callable[..., Bench]) -> None:
    """All saves as columns, oldest first; what is not known is NaN, what is yes or no is a bit."""
    header, columns = bench(a_rich_run()).columns("checkpoint_marks", run="a")
    assert header["columns"] == ["at", "step", "save_secs", "blocked_secs", "bytes", "flags"]
    assert columns["at"] == [NOW - 300, NOW - 20, NOW - 10]
    assert columns["step"][:2] == [100, 180]
    assert math.isnan(columns["step"][2])
    assert columns["flags"] == [1 | 2 | 4, 1 | 4, 0]


def test_a_save_says_what_it_is_now(bench: Callable[..., Bench]) -> None:
    """In words, in the table; as bits, for its mark. The run names the last good one."""
    items = (
        Checkpoint(session="one", at=NOW, step=1, path="/r/ckpt-1", on_disk=True),
        Checkpoint(session="one", at=NOW, step=2, path="/r/ckpt-2", on_disk=True, doubt="There is NaN."),
        Checkpoint(session="one", at=NOW, step=3, path="/r/ckpt-3", on_disk=False, damage="cut",
                   moved_to="/r/ckpt-3.damaged"),
        Checkpoint(session="one", at=NOW, step=4, path="/r/ckpt-4", on_disk=False,
                   moved_to="/r/last-good-ckpt-4"),
    )  # fmt: skip
    tab = bench(a_run(checkpoints=items, last_good=items[-1]))
    found = tab.json("checkpoints", run="a", order="oldest")["checkpoints"]
    assert [item["status"] for item in found] == [
        "on disk", "on disk; in doubt: There is NaN.", "damaged, set aside: cut", "on disk as last-good-ckpt-4",
    ]  # fmt: skip
    _, columns = tab.columns("checkpoint_marks", run="a")
    assert columns["flags"] == [7, 7 | 32, 5 | 16, 5]
    assert tab.json("run", run="a")["checkpoints"]["last_good"]["step"] == 4


def a_long_run(saves: int) -> Run:
    """Two sessions a day apart; every hundredth save failed, and the files of all but the newest ten are gone."""
    items = tuple(
        Checkpoint(
            session="one" if step < saves // 2 else "two", at=NOW + step + 86_400 * (step >= saves // 2), step=step,
            secs=step % 7, error=None if step % 100 else f"No space at {step}.",
            on_disk=step >= saves - 10,
        )
        for step in range(saves)
    )  # fmt: skip
    return a_run(checkpoints=items)


@each("by", ["wall", "step"])
def test_many_marks_are_joined_and_each_save_is_counted_once(bench: Callable[..., Bench], by: str) -> None:
    """Good ones and failed ones apart, none across a gap; why the newest of those that failed is known."""
    tab = bench(a_long_run(50_000))
    answer = tab.get("checkpoint_marks", run="a", by=by, pixels=512)
    assert len(answer.data) < 100_000
    header, columns = tab.columns("checkpoint_marks", run="a", by=by, pixels=512)
    assert (header["saves"], header["thinned"]) == (50_000, True)
    good = [bool(int(flags) & 1) for flags in columns["flags"]]
    counts = [int(count) for count in columns["count"]]
    assert sum(counts) == 50_000 and sum(count for count, fine in zip(counts, good, strict=True) if not fine) == 500
    assert sum(columns["on_disk"]) == 10 and sum(columns["gone"]) == 50_000 - 10
    spans = [last - first for first, last in zip(columns["at"], columns["last_at"], strict=True)]
    assert min(spans) >= 0 and max(spans) < 50_000 / 512
    means = [secs * count for secs, count in zip(columns["save_secs"], counts, strict=True)]
    assert sum(means) == pytest.approx(sum(step % 7 for step in range(50_000)))
    index, text = header["errors"][-1]
    assert text == "No space at 49900." and columns["step"][index] <= 49_900 <= columns["last_step"][index]


def test_a_part_of_the_marks_is_as_fine_as_it_is_looked_at(bench: Callable[..., Bench]) -> None:
    """Within bounds, by moment or step, each save is a mark where there is room for it."""
    tab = bench(a_long_run(50_000))
    header, columns = tab.columns("checkpoint_marks", run="a", by="step", **{"from": 100, "to": 399}, pixels=512)
    assert (header["saves"], header["thinned"]) == (300, False)
    assert columns["step"] == list(range(100, 400)) and "count" not in columns
    assert header["errors"] == [[0, "No space at 100."], [100, "No space at 200."], [200, "No space at 300."]]
    window = {"from": NOW + 100, "to": NOW + 399}
    assert tab.columns("checkpoint_marks", run="a", **window)[1]["at"] == [NOW + step for step in range(100, 400)]


@each("by", ["wall", "step"])
def test_marks_at_no_place_are_kept(bench: Callable[..., Bench], by: str) -> None:
    """Where neither moment nor step of a save is known, or steps go back, no mark is lost and none spans the jump."""
    steps = [None if number % 9 == 0 else number % 500 for number in range(4_000)]
    moments = [None if number % 11 == 0 else NOW + number for number in range(4_000)]
    items = tuple(Checkpoint(session="one", at=at, step=step) for at, step in zip(moments, steps, strict=True))
    header, columns = bench(a_run(checkpoints=items)).columns("checkpoint_marks", run="a", by=by, pixels=16)
    assert header["thinned"] and sum(columns["count"]) == 4_000
    first, last = ("step", "last_step") if by == "step" else ("at", "last_at")
    assert not any(low > high for low, high in zip(columns[first], columns[last], strict=True))

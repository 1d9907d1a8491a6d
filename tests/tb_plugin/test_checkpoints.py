from __future__ import annotations

import math
from collections.abc import Callable

from supervisor_core.run.checkpoints import Checkpoint
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
    header, columns = tab.columns("checkpoint_marks", run="a")
    assert header["length"] == COUNT
    assert columns["step"] == list(range(COUNT))


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


def test_only_new_marks_are_sent(bench: Callable[..., Bench]) -> None:
    """From an offset on, with what the one before was, the flags of all, and why the newest failed."""
    tab = bench(a_rich_run())
    header, columns = tab.columns("checkpoint_marks", run="a", offset=2)
    assert columns["at"] == [NOW - 10]
    assert (header["offset"], header["previous"]) == (2, [NOW - 20, 180])
    assert header["flags"] == [[1, 1 | 2 | 4], [1, 1 | 4], [1, 0]]
    assert header["errors"] == [[2, "OSError: no space left"]]
    header, columns = tab.columns("checkpoint_marks", run="a", offset=10**17)
    assert (header["offset"], columns["at"]) == (3, [])
    many = tuple(Checkpoint(session="one", at=NOW + step, step=step) for step in range(COUNT))
    whole = bench(a_run(checkpoints=many)).get("checkpoint_marks", run="a", offset=COUNT - 1)
    assert len(whole.data) < 1000


def test_inferred_saves_are_marked(bench: Callable[..., Bench]) -> None:
    """What was concluded from another writer's events says so, in both forms."""
    tab = bench(a_run(checkpoints=(Checkpoint(session="one", at=NOW, inferred=True),)))
    assert tab.json("checkpoints", run="a")["checkpoints"][0]["inferred"] is True
    assert tab.columns("checkpoint_marks", run="a")[1]["flags"] == [1 | 8]


def test_a_run_without_saves(bench: Callable[..., Bench]) -> None:
    """No saves are an empty page and empty columns, no error."""
    tab = bench(a_run())
    assert tab.json("checkpoints", run="a") == {"v": 1, "total": 0, "offset": 0, "checkpoints": []}
    assert tab.columns("checkpoint_marks", run="a")[0]["length"] == 0

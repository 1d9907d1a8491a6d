"""Columns of the list of runs that somebody has chosen, in a real browser."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlencode

import pytest

STEPS = {"a/long": 6000, "a/short": 2000, "b/middle": 4000}


@pytest.fixture(scope="module")
def board(tensorboard: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory, scripted: ModuleType) -> Any:
    """TensorBoard on three runs with losses, and one without."""
    directory = tmp_path_factory.mktemp("logs")
    now = time.time()
    for name, steps in STEPS.items():
        placed = {"labels": {"team": "vision"}}
        scripted.Scripted(directory / name, now - 3000, tags=("loss",), placed=placed).train(steps / 10).stop()
    scripted.Scripted(directory / "c" / "none", now - 3000, tags=("other",)).train(100).stop()
    return tensorboard(directory, "--supervisor_refresh_secs", "60")


def cells(shown: Any, place: int) -> list[str]:
    """What stands in a chosen column, from top to bottom."""
    shown.rows()
    found: list[str] = shown.inside().evaluate(
        """place => [...document.querySelectorAll('.body .row:not([hidden])')]
            .sort((a, b) => a.getAttribute('aria-rowindex') - b.getAttribute('aria-rowindex'))
            .map(row => row.querySelectorAll('.further')[place].textContent)""",
        place,
    )
    return found


def test_columns_are_chosen_sorted_and_kept(shown: Any, board: Any) -> None:
    """The last value of a tag, a label, the host: in the address, and sorted by a click, what is not known last."""
    shown.open(board, sort="run")
    shown.find(".overview summary", has_text="Columns").click()
    listed = shown.find(".overview .tag-list")
    listed.get_by_role("checkbox", name="loss last value, 3 runs").check()
    shown.find(".overview").get_by_label("Filter columns by a regular expression").fill("team")
    listed.get_by_role("checkbox").check()
    shown.page.keyboard.press("Escape")
    shown.find(".head .further", has_text="team").wait_for()
    answer = json.loads(board.fetch(f"columns?{urlencode({'key': 'tag:loss'})}"))["columns"]["tag:loss"]
    shown.find(".body .row:not([hidden]) .further", has_text=f"{answer['a/long']:.4g}").wait_for()
    assert cells(shown, 0) == [f"{answer[name]:.4g}" for name in sorted(STEPS)] + ["\N{EN DASH}"]
    assert cells(shown, 1) == ["vision"] * 3 + ["\N{EN DASH}"]
    shown.frame.get_by_role("button", name="loss", exact=True).click()
    assert shown.rows() == ["a/long", "b/middle", "a/short", "c/none"]
    shown.page.reload()
    shown.find(".body .row:not([hidden]) .further", has_text="vision").first.wait_for()
    assert shown.rows() == ["a/long", "b/middle", "a/short", "c/none"]
    assert shown.violations() == []


def test_the_list_can_be_taken_away(shown: Any, board: Any, tmp_path: Path) -> None:
    """As CSV: the runs that are listed, in their order, with the chosen columns, in raw values."""
    shown.open(board, filter="/(long|short)", sort="-step", col="tag:loss")
    shown.find(".note", has_text="2 of").wait_for()
    shown.find(".body .row:not([hidden]) .further", has_text=".").first.wait_for()
    with shown.page.expect_download() as downloading:
        shown.frame.get_by_role("button", name="Download the list of runs as CSV").click()
    downloading.value.save_as(tmp_path / "runs.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "runs.csv").read_text())))
    lines = {line["run"]: line for line in json.loads(board.fetch("runs"))["runs"]}
    assert [(row["run"], row["state"], int(row["step"])) for row in rows] == [
        (name, "completed", lines[name]["step"]) for name in ("a/long", "a/short")
    ]
    answer = json.loads(board.fetch(f"columns?{urlencode({'key': 'tag:loss'})}"))["columns"]["tag:loss"]
    assert [float(row["tag:loss"]) for row in rows] == [answer["a/long"], answer["a/short"]]

"""On paper: charts, stacks and tables are whole, and nothing of the screen's own is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

RUNS = 60


@pytest.fixture(scope="module")
def board(tensorboard: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory, scripted: ModuleType) -> Any:
    """TensorBoard on more runs than fit on a screen, one of them with stacks and long reasons."""
    logdir: Path = tmp_path_factory.mktemp("logs")
    now = time.time()
    scripted.write_stormy(logdir / "stormy", now - 60, running=False)
    for number in range(RUNS):
        scripted.Scripted(logdir / f"run-{number}", now - 900 - number, tags=("loss",)).train(100).stop()
    return tensorboard(logdir)


def test_a_run_is_printed_whole(tab: Callable[..., Any], board: Any) -> None:
    """On white, with its stacks open, tables that fit and charts as wide as paper; then all is as before."""
    shown = tab(color_scheme="dark", viewport={"width": 1600, "height": 700}).open(board, run="stormy").whole()
    width = shown.find(".chart-canvas").first.bounding_box()["width"]
    with shown.printing():
        assert shown.cut() == []
        assert "queue.get()" in shown.find(".stalls").inner_text()
        boxes = [box.bounding_box() for box in shown.find("canvas").all()]
        assert len(boxes) == 5 and all(600 < box["width"] <= 700 for box in boxes)
        assert not shown.find("#supervisor button:visible").count()
        colour = "getComputedStyle(document.querySelector('#supervisor')).backgroundColor"
        assert shown.inside().evaluate(colour) == "rgb(255, 255, 255)"
    assert shown.find(".stalls details[open]").count() == 0
    assert "dark" in shown.find("html").get_attribute("class")
    shown.page.set_viewport_size({"width": 1600, "height": 700})
    as_before = "width => document.querySelector('.chart-canvas').getBoundingClientRect().width === width"
    shown.page.wait_for_function(as_before, arg=width)


def test_the_list_is_printed_whole(tab: Callable[..., Any], board: Any) -> None:
    """Every run has its line, below the one before; on the screen only those in sight have an element."""
    shown = tab(viewport={"width": 1280, "height": 500}).open(board)
    assert shown.find(".body .row").count() < RUNS
    with shown.printing():
        boxes = [row.bounding_box() for row in shown.find(".body .row").all()]
        assert len(boxes) == RUNS + 1
        assert all(a["y"] + a["height"] <= b["y"] + 1 for a, b in pairwise(boxes))
        assert shown.cut() == []
    assert shown.find(".body .row").count() < RUNS

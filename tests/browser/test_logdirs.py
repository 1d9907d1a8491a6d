"""Logs that people really have, in both of TensorBoard's loading modes, within TensorBoard's own page."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from supervisor_core.events.writer import EventsWriter

REAL = Path(__file__).parents[3] / "shared" / "logdirs"
CHECKPOINTS = 20_000


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory, scripted: ModuleType) -> Path:
    """The real logdirs, a run with many checkpoints, one that was killed."""
    directory = tmp_path_factory.mktemp("logs")
    if REAL.is_dir():
        shutil.copytree(REAL, directory / "real")
    with EventsWriter(directory / "small" / "other") as writer:
        for at, step in enumerate([*range(60), *range(50, 99)]):
            writer.scalar("train/total_loss", 1.0 / (step + 1), step, 1_700_000_000.0 + at)
    scripted.write_stormy(directory / "small" / "stormy", time.time() - 60, running=False)
    scripted.write_checkpoints(directory / "many", CHECKPOINTS, time.time() - 1e6, 9.9)
    return directory


@pytest.fixture(scope="module")
def board(tensorboard: Callable[..., Any], logdir: Path) -> Any:
    """TensorBoard with its fast loader."""
    return tensorboard(logdir, "--load_fast", "true")


def test_tab_works_within_tensorboard(
    tab: Callable[..., Any], board: Any, tensorboard: Callable[..., Any], logdir: Path
) -> None:
    """With either loader: a kill, its cost and the scalars are there; back in history leads back to the list. Another
    program's writer says nothing of its checkpoints: they are unknown."""
    for each in (board, tensorboard(logdir / "small", "--load_fast", "false")):
        shown = tab(hosted=True).open(each)
        cell = shown.find(".body .row", has_text="other").locator(".checkpoint")
        assert cell.first.inner_text().strip() == "\N{EN DASH}"
        shown.find(".run-name", has_text="stormy").click()
        shown.find(".sentences", has_text="3 restarts cost").wait_for()
        shown.find(".chart", has_text="points").first.wait_for()
        shown.page.go_back()
        shown.find(".overview").wait_for()


def test_the_head_of_a_curve_is_one_line_on_a_telephone(tab: Callable[..., Any], board: Any) -> None:
    """Also where the note is long: the points that a restart abandoned."""
    shown = tab(viewport={"width": 375, "height": 900}).open(board, run="small/other")
    shown.find(".chart-head .muted", has_text="recomputed").wait_for()
    head, close = (shown.find(f".chart-head{part}").first.bounding_box() for part in ("", " .icon:visible"))
    assert head["height"] < 1.5 * close["height"]


@pytest.mark.skipif(not REAL.is_dir(), reason="../shared/logdirs is not there")
def test_each_real_logdir_can_be_looked_at(tab: Callable[..., Any], board: Any) -> None:
    """Original Supervisor, hooks, Keras, PyTorch, Lightning, JAX, zeros for times, brackets in names: all are shown."""
    shown = tab().open(board)
    shown.find(".note", has_text="runs").wait_for()
    names = [run["run"] for run in json.loads(board.fetch("runs"))["runs"] if run["run"].startswith("real/")]
    assert len(names) > 15
    for name in names:
        shown.inside().evaluate("state => { location.hash = state }", f"run={name}".replace(" ", "+"))
        shown.find(f'.run-page[aria-label="Run {name}"] .sentences').wait_for()
        shown.find(".timeline-canvas").wait_for()
        tags = json.loads(board.fetch("tags?run=" + name.replace(" ", "%20")))["tags"]
        if tags:
            shown.find(".chart .muted", has_text="point").first.wait_for()


def test_thousands_of_checkpoints_are_one_page_and_a_band(tab: Callable[..., Any], board: Any) -> None:
    """Marks are drawn per pixel, failed ones on their own, and the table holds a page of them."""
    shown = tab().open(board, run="many")
    shown.find(".timeline-canvas").wait_for()
    said = shown.find(".timeline-canvas").get_attribute("aria-label")
    assert f"{CHECKPOINTS:,} checkpoints of which {CHECKPOINTS // 1000} failed" in said
    shown.find(".tables .pager", has_text="1 to 25").wait_for()
    shown.frame.get_by_role("button", name="Older checkpoints").click()
    shown.find(".tables .pager", has_text="26 to 50").wait_for()

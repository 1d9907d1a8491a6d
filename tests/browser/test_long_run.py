"""Runs of tens of thousands of saves or points in a real browser: coarse at first, as fine as they are looked at."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

SAVES = 50_000
DRAWN = """() => {
    const canvas = document.querySelector('.chart-canvas');
    const {data, width, height} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    const gutter = 130;
    let drawn = 0;
    for (let x = gutter; x < width; x++)
        for (let y = 0; y < height; y++) {
            const at = 4 * (y * width + x);
            if (data[at] < 90 && data[at + 1] < 150 && data[at + 2] > 180 && data[at + 3] > 200) { drawn++; break; }
        }
    return drawn / (width - gutter);
}"""
"""Which share of a chart's columns holds a piece of its line."""


@pytest.fixture(scope="module")
def began() -> float:
    """When the runs began."""
    return time.time() - SAVES - 100


@pytest.fixture(scope="module")
def board(
    tensorboard: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory, scripted: ModuleType, began: float
) -> Any:
    """TensorBoard on a run of many saves, and on one of many points."""
    logdir = tmp_path_factory.mktemp("logs")
    scripted.write_checkpoints(logdir / "saves", SAVES, began, 1.0)
    scripted.Scripted(logdir / "points", began, rate=10.0, write_every=1, tags=("loss",)).train(3000).stop()
    scripted.Scripted(logdir / "few", began, rate=10.0, write_every=1, tags=("loss",)).train(300).stop()
    return tensorboard(logdir)


def test_zooming_out_shows_the_whole_curve_at_once(tab: Callable[..., Any], board: Any, began: float) -> None:
    """Coarse while finer points are on their way, which here never come."""
    shown = tab()
    with shown.page.expect_response(lambda answer: "/scalars?" in answer.url and "from" not in answer.url) as whole:
        shown.open(board, run="points", x="wall", zoom=f"{began + 1000}~{began + 1010}")
    whole.value.finished()
    shown.find(".chart .muted", has_text=re.compile(r"^\d\d\d points$")).wait_for()
    shown.page.route("**/plugin/supervisor/scalars*", lambda route: None)
    for _ in range(4):
        with shown.page.expect_request("**/plugin/supervisor/scalars*"):
            shown.frame.get_by_role("button", name="Zoom out").click()
        shown.drawn()
        assert shown.inside().evaluate(DRAWN) > 0.95
    shown.page.unroute_all(behavior="ignoreErrors")


def test_a_curve_of_few_points_is_fetched_once(tab: Callable[..., Any], board: Any, began: float) -> None:
    """Where the whole has every point, a zoom asks for nothing."""
    shown = tab()
    asked: list[str] = []
    shown.page.on("request", lambda request: asked.append(request.url))
    shown.open(board, run="few", x="wall")
    shown.find(".chart .muted", has_text=re.compile(r"^[\d,]+ points$")).wait_for()
    shown.frame.get_by_role("button", name="Zoom in").click()
    shown.page.wait_for_url(re.compile("zoom"))  # which follows later than data are asked for
    shown.drawn()
    assert sum("/scalars?" in url for url in asked) == 1
    assert shown.inside().evaluate(DRAWN) > 0.95


MARKS = """() => {
    const canvas = document.querySelector('.timeline-canvas');
    const box = canvas.getBoundingClientRect();
    const titles = new Set();
    for (let y = 4; y < box.height; y += 6)
        for (let x = 118; x < box.width; x += 2) {
            const at = {clientX: box.left + x, clientY: box.top + y, bubbles: true};
            canvas.dispatchEvent(new PointerEvent('pointermove', at));
            const said = document.querySelector('.tooltip:not([hidden])')?.innerText ?? '';
            if (/^[◆✕]/.test(said)) titles.add(said);
        }
    return [...titles];
}"""
"""What the marks of saves say, each once."""


def marks(shown: Any, word: str) -> list[str]:
    """What they say, once one of them says this."""
    shown.inside().wait_for_function(f"word => ({MARKS})().some(text => text.startsWith(word))", arg=word)
    found: list[str] = shown.inside().evaluate(MARKS)
    return found


def test_marks_of_saves_are_as_fine_as_they_are_looked_at(tab: Callable[..., Any], board: Any, began: float) -> None:
    """Crowds that count every save, in few bytes; each save by itself, and why it failed, where one zooms in."""
    shown = tab()
    with shown.page.expect_response("**/plugin/supervisor/checkpoint_marks*") as whole:
        shown.open(board, run="saves", x="wall")
    assert len(whole.value.body()) < 100_000
    crowds = [re.match(r"◆ ([\d,]+) checkpoints", text) for text in marks(shown, "◆")]
    counts = [int(crowd[1].replace(",", "")) for crowd in crowds if crowd]
    assert sum(counts) == SAVES - SAVES // 1000
    shown.open(board, run="saves", x="wall", zoom=f"{began + 995}~{began + 1005}")
    texts = marks(shown, "◆ Checkpoint of step")
    assert 10 <= sum(text.startswith("◆ Checkpoint of step") for text in texts) <= 12
    assert any(text.startswith("✕ A save failed") and "no space left" in text for text in texts)

"""Names for screen readers, contrast in both colour schemes, and windows of all widths."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def board(tensorboard: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory, scripted: ModuleType) -> Any:
    """TensorBoard on runs in several states."""
    directory = tmp_path_factory.mktemp("logs")
    now = time.time()
    scripted.write_stormy(directory / "stormy", now - 60, running=False)
    scripted.Scripted(directory / "running", now - 300).train(2100)
    scripted.write_big_cluster(directory / "cluster", now + 1800)
    scripted.Scripted(directory / "failed", now - 900).train(300, failing_saves=True).stop(
        "error", error="ValueError: x"
    )
    return tensorboard(directory)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(tab: Callable[..., Any], board: Any, scheme: str) -> None:
    """Every part of the list has a name, a role and enough contrast; so has a run's page, with its tags and a stall's
    stacks open, and one with a lane for each of a hundred workers."""
    shown = tab(color_scheme=scheme).open(board)
    assert len(shown.rows()) == 4
    assert shown.violations() == []
    shown.open(board, run="stormy").whole()
    shown.find(".stalls summary").first.click()
    shown.find(".tags summary").click()
    shown.find(".tag-list input").first.wait_for()
    assert shown.violations() == []
    shown.open(board, run="cluster", workers="all").whole()
    assert shown.violations() == []


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_sticks_out_of_the_window(tab: Callable[..., Any], board: Any, width: int) -> None:
    """From a telephone's width on: only tables scroll sideways, in boxes of their own."""
    shown = tab(viewport={"width": width, "height": 740}).open(board)
    assert shown.beyond() == []
    for run in ("stormy", "cluster"):
        shown.open(board, run=run).whole()
        assert shown.beyond() == []


def test_whatever_is_clicked_is_large_enough(tab: Callable[..., Any], board: Any) -> None:
    """A finger finds each button and each checkbox: 24 pixels in both directions, a checkbox with its label."""
    shown = tab(viewport={"width": 360, "height": 740}).open(board)
    small = """() => [...document.querySelectorAll('#supervisor :is(button, summary, input[type=checkbox])')]
        .map(element => [element, (element.closest('label') ?? element).getBoundingClientRect()])
        .filter(([element, box]) => box.width && Math.min(box.width, box.height) < 24)
        .map(([element, box]) => `${element.className} ${element.textContent} ${box.width}x${box.height}`)"""
    assert shown.inside().evaluate(small) == []
    shown.open(board, run="stormy").whole()
    shown.find(".tags summary").click()
    shown.find(".tag-list input").first.wait_for()
    boxes = [box.bounding_box() for box in shown.find(".tag-list input").all()]
    assert boxes and all(min(box["width"], box["height"]) >= 24 for box in boxes)
    assert shown.inside().evaluate(small) == []


def test_the_drawing_is_described_in_words(shown: Any, board: Any) -> None:
    """Whoever cannot see the canvas hears what is on it, and where the details are."""
    shown.open(board, run="stormy").whole()
    label = shown.find(".timeline-canvas").get_attribute("aria-label")
    assert "4 sessions, 3 restarts with 6 min" in label and "of which 2 failed" in label and "tables below" in label
    assert "loss: 4" in shown.find(".chart-area").first.get_attribute("aria-label")


def test_axe_finds_nothing_before_there_are_scalars(tab: Callable[..., Any], board: Any) -> None:
    """While they are read, a chart already says what it is going to be."""
    shown = tab()
    held: list[Any] = []
    shown.page.route("**/plugin/supervisor/scalars*", lambda route: held.append(route))
    shown.open(board, run="stormy")
    shown.find(".chart", has_text="reading…").first.wait_for()
    assert "reading" in shown.find(".chart-area").first.get_attribute("aria-label")
    assert shown.violations() == []


def test_larger_letters_fit(tab: Callable[..., Any], board: Any) -> None:
    """A reader whose letters are twice as large, and nothing else is, loses no line: rows grow with them."""
    shown = tab().open(board)
    before = min(row.bounding_box()["height"] for row in shown.find(".body .row:not([hidden])").all())
    shown.inside().evaluate("document.documentElement.style.fontSize = '200%'")
    shown.find(".runs").dispatch_event("scroll")
    shown.drawn()
    cut = shown.inside().evaluate(
        """() => [...document.querySelectorAll('.body .row:not([hidden]) .cell')]
            .filter(cell => cell.scrollHeight > cell.parentElement.clientHeight).length"""
    )
    boxes = [row.bounding_box() for row in shown.find(".body .row:not([hidden])").all()]
    assert min(box["height"] for box in boxes) == 2 * before
    ordered = sorted(boxes, key=lambda box: box["y"])
    assert all(below["y"] - above["y"] == above["height"] for above, below in pairwise(ordered))
    assert cut == 0


def test_no_number_of_the_list_is_cut_on_a_telephone(tab: Callable[..., Any], board: Any) -> None:
    """Nor why a run needs somebody; of names the end may be left out."""
    shown = tab(viewport={"width": 375, "height": 700}).open(board)
    cut = """() => [...document.querySelectorAll('.body .row:not([hidden]) :is(.num, .finding, .finding *)')]
        .filter(cell => cell.scrollWidth > cell.clientWidth + 1 && getComputedStyle(cell).display !== 'inline')
        .map(cell => cell.textContent)"""
    assert shown.inside().evaluate(cut) == []
    words = shown.find(".body .row", has_text="failed").locator(".finding").first.inner_text()
    assert "ValueError: x" in words

"""All runs over the same time: what happened together, a stretch, a run at a moment; mouse, keyboard, axe."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory, scripted: ModuleType, tensorboard: Callable[..., Any]) -> Any:
    """A night with the outage of a node and one of a storage."""
    logdir = tmp_path_factory.mktemp("night")
    scripted.write_night(logdir, time.time(), healthy=12)
    return tensorboard(logdir)


def test_the_outage_is_the_first_sentence(night: Any, shown: Any) -> None:
    """The page says first what happened to many runs together, and which run is still down; axe finds nothing."""
    shown.open(night, view="timeline")
    first = shown.find(".happenings .together").first
    first.wait_for()
    assert "14 runs were lost within 39 s, all on gpu-7" in first.inner_text()
    assert "Still down: sweep/lr=09" in first.inner_text()
    assert shown.violations() == []


def drag(shown: Any) -> None:
    """Choose the stretch from 70 % to 90 % of what is shown."""
    shown.drawn()
    box = shown.find(".lanes-canvas").bounding_box()
    shown.page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 60)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 60, steps=4)
    shown.page.mouse.up()


def test_a_stretch_is_dragged_over(night: Any, shown: Any) -> None:
    """The sentences are of that stretch, which is in the address; the button goes back to the whole period."""
    shown.open(night, view="timeline")
    shown.find(".together").first.wait_for()
    drag(shown)
    shown.find("h2", has_text="What happened from").wait_for()
    shown.find("li", has_text="6 runs began to fail to save").wait_for()
    assert shown.find("li", has_text="made no progress").count() == 0
    shown.page.wait_for_url(lambda url: "happened=" in url)
    shown.find("button", has_text="Whole period").click()
    shown.find("li", has_text="made no progress").wait_for()


def test_the_title_is_of_the_sentences_that_are_shown(night: Any, tab: Callable[..., Any]) -> None:
    """While those of another stretch are on their way, both stay as they were."""
    shown = tab().open(night, view="timeline")
    shown.find(".together").first.wait_for()
    held: list[Any] = []
    shown.page.route("**/incidents*", lambda route: held.append(route))
    with shown.page.expect_request("**/incidents*"):
        drag(shown)
    shown.page.wait_for_url(lambda url: "happened=" in url)
    assert shown.find("h2", has_text="What happened in the last").count() == 1
    held[-1].continue_()
    shown.page.unroute("**/incidents*")
    shown.find("h2", has_text="What happened from").wait_for()


def test_keys_open_a_run_and_unfold_the_healthy(night: Any, shown: Any) -> None:
    """The first row is the run that is down; Enter opens it at its incident, Escape shows all of it, and again leads
    back; the last row unfolds what is well."""
    shown.open(night, view="timeline")
    shown.find(".together").first.wait_for()
    lanes = shown.find(".lanes")
    lanes.focus()
    shown.page.keyboard.press("ArrowDown")
    shown.find("[role=option]", has_text="sweep/lr=09").wait_for(state="attached")
    shown.page.keyboard.press("Enter")
    shown.find(".run-page h2, .run-title", has_text="lr=09").first.wait_for()
    zoomed = shown.frame.get_by_role("button", name="Reset zoom", disabled=False)
    shown.find(".run-page .chart .muted", has_text="point").wait_for()
    zoomed.wait_for()
    shown.page.keyboard.press("Escape")
    zoomed.wait_for(state="hidden")
    shown.page.keyboard.press("Escape")
    lanes.focus()
    shown.page.keyboard.press("End")
    shown.find("[role=option]", has_text="without incident").wait_for(state="attached")
    shown.page.keyboard.press("Enter")
    shown.page.keyboard.press("End")
    shown.find("[role=option]", has_text="text/seed-").wait_for(state="attached")
    shown.page.wait_for_url(lambda url: "unfold=" in url)

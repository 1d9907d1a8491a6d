"""A fleet's report, opened as a file: it makes no request, runs no script, and can be read on any screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.cli.fleet import fleet_page
from supervisor_core.run.judge.fleet_report import fleet_report
from tests.story import fleet


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a fleet with one bad host, by host, under a name with markup in it."""
    runs = fleet.sessions_on_hosts(0, runs=200)
    report = fleet_report(runs, now=fleet.BEGAN + 7 * fleet.DAY, by="host")
    file = tmp_path_factory.mktemp("report") / "fleet.html"
    file.write_bytes(fleet_page(report, "/runs/<img src=x onerror=alert(1)>"))
    return file


def opened(tab: Callable[..., Any], file: Path, **how: Any) -> Any:
    """The file in a browser; what it asks for fails the test."""
    shown = tab(**how)
    shown.page.on("request", lambda request: request.url.startswith(("file:", "data:")) or pytest.fail(request.url))
    shown.page.goto(file.as_uri())
    return shown


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(tab: Callable[..., Any], written: Path, scheme: str) -> None:
    """Headings, tables and boxes that scroll have names; the contrast is enough."""
    assert opened(tab, written, color_scheme=scheme).violations() == []


def test_it_fits_a_telephone_and_the_keyboard_scrolls_its_tables(tab: Callable[..., Any], written: Path) -> None:
    """Nothing sticks out but in a box that scrolls, and each of these takes the focus."""
    shown = opened(tab, written, viewport={"width": 360, "height": 740})
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 360
    boxes = shown.find(".box").count()
    focused = set()
    for _ in range(boxes + 5):
        shown.page.keyboard.press("Tab")
        focused.add(shown.page.evaluate("document.activeElement.getAttribute('aria-labelledby')"))
    assert len(focused - {None}) == boxes >= 3


def test_it_is_printed_whole(tab: Callable[..., Any], written: Path) -> None:
    """No table is cut at the edge of the paper, also from a dark screen: there it is dark on white."""
    shown = opened(tab, written, color_scheme="dark")
    with shown.printing():
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= shown.page.viewport_size["width"]
        background = shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == "rgb(255, 255, 255)"

"""What every view survives in a real browser: a reload, back and forward, another tab, a line that is slow."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest

RUNS = ("lr=0.1", "lr=0.01", "other")
CHOSEN = [("with", f"{colour}~{run}") for run, colour in zip(RUNS[:2], (4, 1), strict=True)]
VIEWS: dict[str, tuple[list[tuple[str, str]], str]] = {
    "list": (
        [*CHOSEN, ("col", "duration"), ("filter", "lr"), ("sort", "-run")],
        ".runs[aria-busy=false] .row :checked",
    ),
    "compare": (
        [
            ("view", "compare"), *CHOSEN, ("base", RUNS[0]), ("group", "lr=(.*)"), ("differ", "1"),
            ("best", "max"), ("by", "-run"), ("zoom", "100~900"), ("tag", "loss"), ("smooth", "0.5"), ("x", "step"),
        ],
        ".compare-page .chart .muted:has-text('2 runs'):not(:has-text('being read'))",
    ),
    "timeline": (
        [
            ("view", "timeline"), *CHOSEN, ("lanes", "host"), ("period", "24h"), ("unfold", "trainer-0"),
            ("happened", "1000~2000"), ("filter", "lr"),
        ],
        ".lane-chart [role=option]:has-text('without incident')",
    ),
    "run": (
        [("run", RUNS[0]), *CHOSEN, ("x", "step"), ("zoom", "100~900"), ("tag", "accuracy"), ("log", "1")],
        ".run-page .chart .muted:has-text('point')",
    ),
}  # fmt: skip
"""Of each view an address that has all that the view keeps in it, and what is there once it is drawn."""
SEEN = """() => ({
    address: location.hash,
    texts: [...document.querySelectorAll(
        '#supervisor h1, .chart h3, .row:not([hidden]) .run-name, .compare-table thead th:nth-child(-n + 4)'
    )].map(element => element.textContent),
    pressed: [...document.querySelectorAll('#supervisor [aria-pressed=true], #supervisor :checked')]
        .map(element => element.getAttribute('aria-label') ?? element.textContent),
})"""
"""The address, and what of the page is the same at every look."""

SLOW = {"offline": False, "latency": 300, "downloadThroughput": 200_000, "uploadThroughput": 50_000}
"""A line of which each answer takes a third of a second, and the tab itself as long."""
BANNERS = """window.banners = [];
new MutationObserver(() => {
    const banner = document.querySelector('.banner:not([hidden])');
    if (banner) banners.push(banner.textContent);
}).observe(document, {subtree: true, childList: true, attributes: true});"""
"""Keeps what the page says above all else."""
MOST_REQUESTS = 16
"""Of a view, until it is drawn, the program's own files and the first look again included."""


@pytest.fixture(scope="module")
def board(tensorboard: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory, scripted: ModuleType) -> Any:
    """TensorBoard on three runs that have ended."""
    logdir = tmp_path_factory.mktemp("logs")
    for number, run in enumerate(RUNS):
        scripted.Scripted(logdir / run, time.time() - 900 - number, tags=("loss", "accuracy")).train(300).stop()
    return tensorboard(Path(logdir), "--supervisor_refresh_secs", "60")


def address(board: Any, view: str) -> str:
    """The address of a view, with all that it keeps there."""
    return str(board.address(hosted=False) + urlencode(VIEWS[view][0]))


def opened(shown: Any, board: Any, view: str) -> dict[str, Any]:
    """Open a view, and return what is seen of it."""
    shown.page.goto("about:blank")
    shown.page.goto(address(board, view))
    return seen(shown, view)


def seen(shown: Any, view: str) -> dict[str, Any]:
    """What is seen of a view, once it is drawn."""
    shown.find(VIEWS[view][1]).first.wait_for()
    found: dict[str, Any] = shown.inside().evaluate(SEEN)
    return {**found, "address": sorted(parse_qsl(found["address"].lstrip("#")))}


def test_back_and_forward_lead_through_the_views(tab: Callable[..., Any], board: Any) -> None:
    """Each as it was left, however it was come to."""
    shown = tab()
    before = {view: opened(shown, board, view) for view in VIEWS}
    shown.page.goto(address(board, "list"))
    for view in list(VIEWS)[1:]:
        shown.inside().evaluate("hash => { location.hash = hash }", urlencode(VIEWS[view][0]))
        assert seen(shown, view) == before[view]
    for view in list(VIEWS)[-2::-1]:
        shown.page.go_back()
        assert seen(shown, view) == before[view]
    for view in list(VIEWS)[1:]:
        shown.page.go_forward()
        assert seen(shown, view) == before[view]


@pytest.mark.parametrize("view", VIEWS)
def test_a_reload_and_a_slow_line_show_the_same(tab: Callable[..., Any], board: Any, view: str) -> None:
    """A reload shows the same view, with the same address; so does a slow line, without a word that TensorBoard is
    gone, and with the few requests that a fast line takes."""
    shown = tab()
    asked: list[str] = []
    before = opened(shown, board, view)
    assert before["address"] == sorted(VIEWS[view][0])
    shown.page.reload()
    assert seen(shown, view) == before
    shown.page.on("request", lambda request: asked.append(request.url))
    shown.page.add_init_script(BANNERS)
    shown.context.new_cdp_session(shown.page).send("Network.emulateNetworkConditions", SLOW)
    assert opened(shown, board, view) == before
    assert shown.inside().evaluate("banners") == []
    assert len([url for url in asked if "/plugin/supervisor/" in url]) <= MOST_REQUESTS

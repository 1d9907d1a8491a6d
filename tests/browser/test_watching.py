"""The tab while things happen: a run that is written and killed, a backend that goes and comes back."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory, scripted: ModuleType) -> Path:
    """A run that has begun. Each of its sessions ends at the same step, and is silent for so long that the run's state
    stays the same, however slow the tests are."""
    directory = tmp_path_factory.mktemp("logs")
    scripted.Scripted(directory / "live", time.time() - 1000).train(300)
    return directory


def test_a_kill_shows_up_as_a_boundary_without_a_reload(
    tab: Callable[..., Any], board: Any, logdir: Path, scripted: ModuleType
) -> None:
    """While the page is open a session is killed and another goes on; new runs come into the list."""
    shown = tab(hosted=True).open(board, run="live")
    label = shown.find(".timeline-canvas")
    assert "1 session, 0 restarts" in label.get_attribute("aria-label")
    scripted.Scripted(logdir / "live", time.time() - 500, attempt=2, step=2500).train(50)
    shown.find(".sentences", has_text="1 restart cost").wait_for()
    assert "2 sessions, 1 restart" in label.get_attribute("aria-label")
    assert re.search(r"\d+ steps recomputed", shown.find(".sentences").inner_text())
    shown.frame.get_by_role("button", name="All runs").click()
    scripted.Scripted(logdir / "newcomer", time.time() - 60).train(50)
    shown.find(".run-name", has_text="newcomer").wait_for()


def test_selected_text_survives_a_refresh(
    tab: Callable[..., Any], board: Any, logdir: Path, scripted: ModuleType
) -> None:
    """What somebody is about to copy stays selected while the page goes on, in sentences and in tables."""
    scripted.Scripted(logdir / "live", time.time() - 400, attempt=3, step=2500).train(50)
    shown = tab().open(board, run="live")
    shown.find(".sentences li strong", has_text="Step 3,000").wait_for()  # at which those to come end, too
    for selector in (".sentences li strong", ".tables td"):
        shown.find(selector).first.wait_for()
        chosen = shown.inside().evaluate(
            """selector => {
                getSelection().selectAllChildren(document.querySelector(selector));
                return String(getSelection());
            }""",
            selector,
        )
        before = shown.find(".sentences").inner_text()
        scripted.Scripted(logdir / "live", time.time() - 300, attempt=4, step=2500).train(50)
        shown.inside().wait_for_function("text => document.querySelector('.sentences').innerText !== text", arg=before)
        assert chosen and shown.inside().evaluate("String(getSelection())") == chosen


def test_a_link_asks_for_each_thing_once(tab: Callable[..., Any], board: Any) -> None:
    """Opening a shared link sends no request that is called off and sent again."""
    shown = tab()
    asked: list[str] = []
    failed: list[str] = []
    shown.page.on("request", lambda request: asked.append(request.url))
    shown.page.on("requestfailed", lambda request: failed.append(request.url))
    shown.open(board, run="live", x="step")
    shown.find(".chart .muted", has_text="point").first.wait_for()
    assert failed == []
    for route in ("run", "threads", "workers", "stalls", "checkpoint_marks"):
        assert sum(f"supervisor/{route}?" in url for url in asked) == 1, route


def test_a_logdir_that_is_the_run_has_a_name(
    tab: Callable[..., Any], tensorboard: Callable[..., Any], logdir: Path
) -> None:
    """Not a dot: its directory's name, in the list and as the title."""
    shown = tab().open(tensorboard(logdir / "live"))
    assert shown.rows() == ["live"]
    shown.find(".run-name").first.click()
    shown.find(".sentences").wait_for()
    assert shown.find(".run-title").inner_text() == "live"


def test_follows_dark_mode_and_pauses_while_hidden(tab: Callable[..., Any], board: Any) -> None:
    """TensorBoard's own switch changes the tab at once; while another tab is in front nothing is asked
    for, and what was missed is asked for once it is seen again."""
    shown = tab(hosted=True).open(board, run="live")
    assert "dark" not in (shown.find("html").get_attribute("class") or "")
    shown.page.evaluate("document.body.classList.add('dark-mode')")
    shown.find("html.dark").wait_for(state="attached")
    shown.page.evaluate("document.body.classList.remove('dark-mode')")
    shown.find("html:not(.dark)").wait_for(state="attached")
    asked: list[str] = []
    shown.page.evaluate("document.querySelector('iframe').style.height = '0px'")
    shown.inside().wait_for_function("innerHeight === 0")
    shown.page.on("request", lambda request: asked.append(request.url))
    shown.inside().evaluate("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'r'}))")
    shown.inside().evaluate("new Promise(requestAnimationFrame)")
    assert [url for url in asked if "plugin/supervisor/runs" in url] == []
    with shown.page.expect_request(re.compile("plugin/supervisor/runs")):
        shown.page.evaluate("document.querySelector('iframe').style.height = ''")


def test_reload_button_of_tensorboard_reloads_the_tab(tab: Callable[..., Any], board: Any) -> None:
    """And so does our own, and the key r."""
    shown = tab(hosted=True).open(board)
    with shown.page.expect_request(re.compile("plugin/supervisor/runs")):
        shown.page.locator("app-header-reload button").click()
    with shown.page.expect_request(re.compile("plugin/supervisor/runs")):
        shown.find(".runs").press("r")


def test_says_that_the_backend_is_gone_and_recovers(tab: Callable[..., Any], board: Any) -> None:
    """What is shown stays, with its age; when the backend is back the notice goes."""
    shown = tab().open(board)
    shown.excuse("Failed to load resource")
    shown.page.route("**/plugin/supervisor/runs*", lambda route: route.abort())
    shown.frame.get_by_role("button", name="Reload").click()
    banner = shown.find(".banner.bad")
    banner.wait_for()
    assert "TensorBoard does not answer" in banner.inner_text()
    assert "as of" in shown.find(".updated").inner_text()
    assert shown.rows()
    shown.page.unroute("**/plugin/supervisor/runs*")
    banner.wait_for(state="hidden")
    assert shown.find(".updated").inner_text() == "live"


def test_says_why_the_plugin_does_not_work(tab: Callable[..., Any], board: Any) -> None:
    """What the backend says of itself is shown, not swallowed."""
    shown = tab()
    shown.excuse("503")
    said = '{"error": "No filesystem for gs://.", "reason": "failed"}'
    shown.page.route(
        "**/plugin/supervisor/runs*",
        lambda route: route.fulfill(status=503, body=said, content_type="application/json"),
    )
    shown.page.goto(board.address(False))
    shown.find(".banner.bad", has_text="No filesystem for gs://.").wait_for()


def test_an_answer_that_has_been_overtaken_is_dropped(tab: Callable[..., Any], board: Any) -> None:
    """Going back while a run is being read leaves the list in place, whatever arrives later."""
    shown = tab().open(board)
    held: list[Any] = []
    shown.page.route("**/plugin/supervisor/run?*", lambda route: held.append(route))
    with shown.page.expect_request("**/plugin/supervisor/run?*"):
        shown.find(".row .run-name", has_text="live").click()
    shown.page.wait_for_url(re.compile("run=live"))
    shown.page.keyboard.press("Escape")
    shown.find(".overview").wait_for()
    for route in held:
        try:
            route.continue_()
        except Exception as error:  # the page has called it off already
            assert "abort" in str(error).lower() or "canceled" in str(error).lower() or "handled" in str(error).lower()
    shown.page.unroute("**/plugin/supervisor/run?*")
    assert shown.find(".overview").is_visible()
    assert shown.find(".run-page").count() == 0

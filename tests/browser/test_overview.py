"""The list of runs in a real browser."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from supervisor_core.base.log import command_line, printable
from tests.cases import each

HOSTILE = (
    '<img src=x onerror="alert(1)">',
    "quotes ' \" ` & entities &amp; and %2F",
    "unicode \N{SNOWMAN} \N{CJK UNIFIED IDEOGRAPH-4E2D} \N{GRINNING FACE} \u202e rtl",
    "x" * 250,
    "__proto__",
    "<script>window.pwned = 1<",
    "two\nlines \x1b[2J \u200b",
)
BIG = 1_000


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory, scripted: ModuleType) -> Iterator[Path]:
    """Runs in all states, and runs and tags with names that mean harm."""
    directory = tmp_path_factory.mktemp("logs")
    now = time.time()
    placed = {"labels": {"team": "vision", "user": "<b>ada</b>"}}
    running = scripted.Scripted(directory / "good" / "running", now - 300, placed=placed).train(296)
    scripted.Scripted(directory / "good" / "done", now - 900).train(300).stop()
    scripted.Scripted(directory / "bad" / "failed", now - 900).train(300).stop("error", error="ValueError: <b>NaN</b>")
    scripted.Scripted(directory / "bad" / "lost", now - 9000).train(300)
    stalled = scripted.Scripted(directory / "bad" / "stalled", now - 900).train(300).stall(596, ended=False)
    scripted.Scripted(directory / "old" / "crashed", now - 30 * 86400).train(300).stop("error", error="OSError: old")
    for name in HOSTILE:
        tags = (name, "loss", 'tag"><svg onload=alert(1)>', "y" * 300)
        scripted.Scripted(directory / "hostile" / name, now - 9000, tags=tags).train(60).stop()
    with scripted.alive(running, stalled):
        yield directory


def test_runs_that_need_somebody_come_first(shown: Any, board: Any) -> None:
    """By severity, the newest first; then those that run, then those that are over. Above them is how many there are of
    each, and one click shows those that need somebody, and only them."""
    shown.open(board)
    assert shown.rows()[:5] == ["bad/failed", "bad/stalled", "bad/lost", "good/running", "good/done"]
    pills = shown.find(".body .row:not([hidden]) .pill").all_inner_texts()
    assert [re.sub(r"\s+", " ", pill) for pill in pills][:2] == ["✕ failed", "‖ stalled"]
    standings = shown.find(".standings button")
    assert standings.all_inner_texts() == ["3 need you", "1 fine", f"{2 + len(HOSTILE)} over"]
    standings.first.click()
    assert shown.rows() == ["bad/failed", "bad/stalled", "bad/lost"]
    shown.page.wait_for_url(lambda address: "standing=needs_you" in address)
    shown.page.reload()
    shown.find('.standings [aria-pressed="true"]').click()
    assert len(shown.rows()) == 6 + len(HOSTILE)


def test_a_line_says_what_is_wrong_and_what_to_do(tab: Callable[..., Any], board: Any, logdir: Path) -> None:
    """The sentence that the backend has, since when, the action, which can be copied by mouse and keyboard, the
    runbook, which the tab itself serves, and the stacks. Nothing is cut, on a phone neither."""
    lines = {line["run"]: line for line in json.loads(board.fetch("runs"))["runs"]}
    for width in (1280, 375):
        shown = tab(viewport={"width": width, "height": 1400}, permissions=["clipboard-read", "clipboard-write"])
        shown.open(board, standing="needs_you")
        for name in shown.rows():
            finding = lines[name]["finding"]
            row = shown.find(".body .row:not([hidden])", has_text=name)
            assert row.locator(".said").inner_text().startswith(finding["sentence"])
            assert re.search(r"since .*\d\d:\d\d:\d\d \([\d.]+ \w+\)$", row.locator(".since").inner_text())
            assert finding["action"] in row.locator(".do").inner_text()
            said = row.locator(".finding").evaluate("each => [each.scrollHeight, each.clientHeight, each.scrollWidth]")
            assert said[0] <= said[1] and said[2] <= width
            below = row.evaluate("each => [each.scrollHeight - each.clientHeight, each.clientHeight]")
            assert below[0] <= 0, (name, below)
        command = lines["bad/stalled"]["finding"]["action"]
        assert command == command_line("tb-supervisor", "stacks", "--", str(logdir / "bad" / "stalled"))
        row = shown.find(".body .row:not([hidden])", has_text="bad/stalled")
        row.get_by_role("button", name="Copy the command").click()
        row.get_by_text("Copied").wait_for()
        assert shown.inside().evaluate("navigator.clipboard.readText()") == command
    shown.find(".runs").focus()
    shown.inside().evaluate("navigator.clipboard.writeText('')")
    shown.page.keyboard.press("ArrowDown")
    shown.page.keyboard.press("c")
    shown.page.wait_for_function("async text => await navigator.clipboard.readText() === text", arg=command)
    with shown.context.expect_page() as opening:
        row.get_by_role("link", name="Runbook").click()
    opening.value.locator("h2:target", has_text="SupervisorTrainingStalled").wait_for()
    row.get_by_role("button", name="Stacks").click()
    assert "MainThread" in shown.find(".findings + *, .stalls details[open]").last.inner_text()


def test_old_runs_can_be_hidden(shown: Any, board: Any) -> None:
    """Those that were not seen for a day, or a week; the choice is in the address, and Escape takes it back."""
    shown.open(board)
    week = shown.frame.get_by_role("button", name="7 d")
    week.click()
    assert "old/crashed" not in shown.rows() and "bad/lost" in shown.rows()
    shown.page.wait_for_url(lambda address: "age=7d" in address)
    assert week.get_attribute("aria-pressed") == "true"
    assert " of " in shown.find(".note").inner_text()
    shown.find(".search").press("Escape")
    assert "old/crashed" in shown.rows()


def test_a_run_can_be_hidden_until_something_changes(tab: Callable[..., Any], board: Any) -> None:
    """By mouse or keyboard; the browser remembers it, and a link takes it along. One button lists hidden runs, too."""
    shown = tab().open(board)
    row = shown.find(".body .row", has_text="bad/lost")
    row.hover()
    row.get_by_role("button", name="Hide bad/lost").click()
    assert "bad/lost" not in shown.rows() and shown.find(".overview").is_visible()
    shown.page.wait_for_url(lambda address: "hide=lost.0%7Ebad%2Flost" in address)
    link = shown.page.url
    shown.open(board, sort="run")  # an address that hides nothing: what this browser remembers
    shown.find(".hidden-toggle", has_text="1 hidden").wait_for()
    assert "bad/lost" not in shown.rows()
    shown.page.wait_for_url(lambda address: "hide=" in address)

    again = shown.context.new_page()  # another tab of the same browser follows
    again.goto(board.address(hosted=False))
    again.locator(".hidden-toggle", has_text="1 hidden").wait_for()
    again.locator(".hidden-toggle").click()
    again.locator(".hidden-run").hover()
    again.get_by_role("button", name="Show bad/lost").click()
    shown.find(".body .run-name", has_text="bad/lost").wait_for()
    shown.page.wait_for_url(lambda address: "hide=" not in address)
    shown.find(".body .row", has_text="bad/lost").hover()
    shown.frame.get_by_role("button", name="Hide bad/lost").click()
    again.locator(".hidden-run").wait_for()

    other = tab().open(board)
    assert "bad/lost" in other.rows()
    other.page.goto("about:blank")
    other.page.goto(link)
    other.find(".hidden-toggle", has_text="1 hidden").click()
    assert other.rows()[:3] == ["bad/failed", "bad/stalled", "bad/lost"]
    assert other.find(".body .hidden-run .run-name").all_inner_texts() == ["bad/lost"]
    other.find(".runs").focus()
    other.page.keyboard.press("ArrowDown")
    other.page.keyboard.press("ArrowDown")
    other.page.keyboard.press("h")
    assert other.find(".body .hidden-run").count() == 0
    other.page.wait_for_url(lambda address: "hide=" not in address)
    other.page.keyboard.press("h")
    other.page.wait_for_url(lambda address: "hide=" in address)
    other.open(board)
    assert "bad/lost" not in other.rows()


def test_an_address_with_an_unknown_state_shows_all(shown: Any, board: Any) -> None:
    """A word that is no state, even one that every object has, chooses nothing. A click on a state's count shows those
    runs, another shows all."""
    shown.open(board, state="constructor")
    assert len(shown.rows()) == 6 + len(HOSTILE)
    assert "undefined" not in shown.find(".chips").inner_text()
    shown.frame.get_by_role("button", name=re.compile("1 stalled")).click()
    assert shown.rows() == ["bad/stalled"]
    shown.frame.get_by_role("button", name=re.compile("1 stalled")).click()
    assert len(shown.rows()) == 6 + len(HOSTILE)


def test_one_line_has_everything(shown: Any, board: Any) -> None:
    """Its checkbox, step, rate with its sparkline, checkpoint against its interval, restarts, goodput, last seen."""
    shown.open(board, filter="good/running")
    assert shown.rows() == ["good/running"]
    row = shown.find(".body .row:not([hidden])")
    cells = row.locator("[role=gridcell]").all_inner_texts()[1:]
    assert "running" in cells[0] and cells[1].split("\n") == ["good/running", "team=vision user=<b>ada</b>"]
    assert re.match(r"[\d,]+$", cells[2])
    assert re.search(r"[\d.]+", cells[3])
    assert re.search(r"\d+ (s|min) / 2 min", cells[4])
    assert cells[5] == "0"
    assert re.search(r"9\d(\.\d)? %", cells[6])
    assert row.locator("path.spark").get_attribute("d").startswith("M")


def test_filters_by_regular_expression_and_sorts_by_a_click(shown: Any, board: Any) -> None:
    """Both are in the address, and Escape takes the filter back."""
    shown.open(board)
    shown.page.keyboard.press("/")
    shown.page.keyboard.type("^(good|bad)/.*d$")
    shown.frame.get_by_role("button", name="Run", exact=True).click()
    assert shown.rows() == ["bad/failed", "bad/stalled"]
    shown.page.wait_for_url(lambda address: "filter=" in address and "sort=run" in address)
    shown.page.reload()
    shown.find(".note", has_text="2 of").wait_for()
    assert shown.rows() == ["bad/failed", "bad/stalled"]
    shown.find(".search").focus()
    shown.page.keyboard.press("Escape")
    assert len(shown.rows()) == 6 + len(HOSTILE)
    shown.open(board, filter="^team=vision$")  # a whole label can be asked for, too
    shown.find(".note", has_text="1 of").wait_for()
    assert shown.rows() == ["good/running"]
    assert shown.find(".body .row:not([hidden]) .labels").inner_text() == "team=vision user=<b>ada</b>"


def test_a_regular_expression_that_would_take_years_is_stopped(tab: Callable[..., Any], board: Any) -> None:
    """The page answers meanwhile, and then filters by the plain text."""
    shown = tab().open(board, filter="(x+)+!")
    shown.frame.get_by_role("button", name=re.compile("1 stalled")).click()
    shown.find(".note", has_text="takes too long: filtered by this text").wait_for()
    assert shown.rows() == []


def test_works_by_keyboard_alone(shown: Any, board: Any) -> None:
    """Arrows choose, Enter opens, Escape comes back to the same line."""
    shown.open(board, sort="run")
    shown.find(".runs").focus()
    shown.page.keyboard.press("ArrowDown")
    chosen = shown.find(".row.active .run-name").inner_text()
    shown.page.keyboard.press("Enter")
    shown.find(".run-page .sentences").wait_for()
    assert shown.find(".run-title").inner_text() == chosen == "bad/lost"
    assert shown.inside().evaluate("document.activeElement.className") == "run-title"
    shown.page.keyboard.press("Escape")
    shown.find(".overview").wait_for()
    assert shown.find(".row.active .run-name").inner_text() == chosen
    active = shown.find(".runs").get_attribute("aria-activedescendant")
    assert shown.find(f"#{active} .run-name").inner_text() == chosen


@each("name", HOSTILE)
def test_names_are_text_whatever_they_hold(shown: Any, board: Any, name: str) -> None:
    """Markup, quotes, unicode and 250 characters, in runs and tags, are asked for as they are, and shown so; what a
    browser obeys or does not show is shown as escapes."""
    shown.open(board, run=f"hostile/{name}")
    shown.find(".sentences").wait_for()
    text = printable(name)
    assert shown.find(".run-title").text_content() == f"hostile/{text}"
    shown.find(".tags summary").click()
    shown.find(".tag-name").first.wait_for()
    assert set(shown.find(".tag-name").all_text_contents()) == {text, "loss", 'tag"><svg onload=alert(1)>', "y" * 300}
    shown.find(".tag-list").get_by_title(text, exact=True).locator("input").check()
    shown.find(".chart h3").filter(has_text=re.compile(re.escape(text))).first.wait_for()
    page = shown.inside().evaluate(
        """[document.body.textContent, ...document.querySelectorAll('main *')]
            .map(each => each.attributes ? `${each.title} ${each.ariaLabel}` : each.replaceAll('\\n', '')).join(' ')"""
    )
    assert printable(page) == page
    assert shown.inside().evaluate("window.pwned ?? document.querySelectorAll('main img, main script').length") == 0


def test_a_run_that_is_not_there_says_so(shown: Any, board: Any) -> None:
    """A link to a run that went away leads to words, and back to the list."""
    shown.open(board, run="never/was")
    shown.excuse("404")
    assert "There is no such run" in shown.find(".run-page .empty").inner_text()
    shown.frame.get_by_role("button", name="All runs").click()
    shown.find(".overview").wait_for()


def test_no_runs_yet_says_how_to_get_some(
    tab: Callable[..., Any], tensorboard: Callable[..., Any], tmp_path: Path, scripted: ModuleType
) -> None:
    """On an empty logdir; and the first run shows up by itself."""
    shown = tab().open(tensorboard(tmp_path))
    words = shown.find(".empty").inner_text()
    assert "No runs yet" in words and str(tmp_path) in words and "managed_session" in words
    scripted.Scripted(tmp_path / "first", time.time() - 60).train(50)
    shown.find(".run-name", has_text="first").wait_for()


def test_a_thousand_runs_stay_fluid(
    tab: Callable[..., Any], tensorboard: Callable[..., Any], tmp_path: Path, scripted: ModuleType
) -> None:
    """Only what can be seen is in the page, and the last run can be reached, found and opened."""
    scripted.write_many(tmp_path, BIG, time.time())
    shown = tab().open(tensorboard(tmp_path, "--supervisor_refresh_secs", "60"))
    shown.find(".note", has_text=f"{BIG:,} runs").wait_for()
    assert shown.find(".body .row").count() < 60
    shown.frame.get_by_role("button", name="Run", exact=True).click()
    shown.find(".runs").focus()
    shown.page.keyboard.press("End")
    shown.find(".row.active .run-name", has_text=f"run-{BIG - 1:05d}").wait_for()
    shown.page.keyboard.press("/")
    shown.page.keyboard.type("run-0012[45]")
    shown.find(".note", has_text=f"2 of {BIG:,}").wait_for()
    assert len(shown.rows()) == 2

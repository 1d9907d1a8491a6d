"""A report, opened as a file: it says what the tab says, makes no request, and runs no name as code."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote

import pytest

from tests.story.stories import STORIES

TALL = {"width": 1280, "height": 1800}
SAID = """() => [...document.querySelectorAll('.run-body')].map(body => {
    // A report comes without the runbook.
    for (const link of body.querySelectorAll('a[target=_blank]')) link.style.display = 'none';
    return body.innerText;
}).join()"""
READY = """() => document.querySelector('.run-page:not([aria-busy])')
    && (document.querySelector('.scalars-bar[hidden]') || document.querySelector('.chart'))
    && [...document.querySelectorAll('.chart-head .muted')].every(note => !note.textContent.includes('reading'))"""
"""That a report is there."""


def open_tab(told: Any, shown: Any, run: str, state: str = "") -> Any:
    """The tab on a run."""
    told.open(shown.page, f"run={quote(run, safe='')}{state}")
    return shown.whole()


def open_report(told: Any, shown: Any, run: str, file: Path, state: str = "") -> Any:
    """The report of a run, written and opened."""
    file.write_bytes(told.report(run).page)
    shown.page.goto("about:blank")
    shown.page.goto(f"{file.as_uri()}#{state}")
    shown.page.wait_for_function(READY)
    return shown


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, scripted: ModuleType, still_tab: ModuleType) -> Any:
    """A story for each thing that can be said first, a run with some of everything, a cluster, and a run with hostile
    names."""
    logdir, now = tmp_path_factory.mktemp("logs"), time.time()
    of_kind = {story.says[:1]: name for name, story in STORIES.items()}
    for name in {*of_kind.values(), "hangs at a line"}:
        STORIES[name].write(logdir / name, now)
    scripted.write_stormy(logdir / "stormy", now - 60)
    scripted.write_cluster(logdir / "cluster", now)
    scripted.Scripted(logdir / HOSTILE, now - 300, tags=("loss", HOSTILE_TAG)).train(200).stop("error", error=HOSTILE)
    return still_tab.StillTab(logdir, now)


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
HOSTILE_TAG = "loss<!--<script>alert(3)</script>"


def test_a_report_says_what_the_tab_says(tab: Callable[..., Any], told: Any, tmp_path: Path) -> None:
    """Of each story, letter by letter: findings, sentences, stacks, tables, curves and their notes."""
    from playwright.sync_api import TimeoutError

    shown, other = tab(), tab()
    told.open(other.page)
    for number, name in enumerate(told.runs):
        file = tmp_path / f"{number}.html"
        file.write_bytes(told.report(name).page)
        shown.page.goto(file.as_uri())
        shown.page.wait_for_function(READY)
        shown.drawn()
        said = shown.page.evaluate(SAID)
        # A page that is loaded again would cost as much as the report: the tab goes from run to run.
        other.page.evaluate("run => { window.location.hash = `run=${encodeURIComponent(run)}` }", name)
        with contextlib.suppress(TimeoutError):  # the assertion shows the difference
            other.page.wait_for_function(f"said => ({SAID})() === said", arg=said)
        assert other.page.evaluate(SAID) == said, name
        assert len(said) > 50


def test_a_curve_is_smoothed_and_read_as_in_the_tab(tab: Callable[..., Any], told: Any, tmp_path: Path) -> None:
    """The browser's average is the backend's, also around what a restart abandoned; zoomed, too."""
    readouts = []
    state = "&smooth=0.6&x=step"
    for shown in (
        open_report(told, tab(viewport=TALL), "stormy", tmp_path / "report.html", state),
        open_tab(told, tab(viewport=TALL), "stormy", state),
    ):
        found = []
        for _ in range(2):
            box = shown.find(".chart-area").first.bounding_box()
            for share in (0.2, 0.35, 0.6, 0.9):
                shown.page.mouse.move(box["x"] + 120 + share * (box["width"] - 130), box["y"] + 40)
                shown.drawn()
                shown.find(".readout", has_text="smoothed").first.wait_for()
                found.append(shown.find(".readout").first.inner_text())
            shown.find("button[aria-label='Zoom in']").click()
        readouts.append(found)
    assert readouts[0] == readouts[1] and len(set(readouts[0])) > 4


def test_a_report_asks_nobody(tab: Callable[..., Any], told: Any, tmp_path: Path) -> None:
    """From the first to the last click: its own file is all that is loaded, and the moment is that of the report."""
    shown = tab()
    requests: list[str] = []
    shown.page.on("request", lambda request: requests.append(request.url))
    file = tmp_path / "report.html"
    open_report(told, shown, "stormy", file)
    assert shown.find("label", has_text="Smoothing").is_visible()
    assert "UTC, run's clock" in shown.find(".updated").inner_text()
    shown.find(".stalls summary").first.click()
    shown.find(".tags summary").click()
    shown.find("input[type=search]").fill("l.ss|acc")
    shown.find(".tag-list label").nth(2).wait_for(state="detached")
    assert shown.find(".tag-list label").count() == 2
    shown.find("button[value=step]").click()
    shown.find("button[aria-label='Zoom in']").click()
    with shown.page.expect_download() as saved:
        shown.find("button[aria-label='Download checkpoints as CSV']").click()
    assert saved.value.suggested_filename.endswith(".csv")
    shown.page.keyboard.press("Escape")
    shown.page.keyboard.press("r")
    assert shown.find("h1").inner_text() == "stormy" and not shown.find(".back").count()
    assert {url.partition("#")[0] for url in requests if not url.startswith("blob:")} == {file.as_uri()}


def test_no_name_is_obeyed(tab: Callable[..., Any], told: Any, tmp_path: Path) -> None:
    """Markup in names of runs and tags, in errors and paths, is text; nothing of it runs."""
    shown = tab()
    dialogs: list[str] = []
    shown.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    open_report(told, shown, HOSTILE, tmp_path / "report.html")
    assert shown.find("h1").inner_text() == HOSTILE
    assert HOSTILE in shown.find(".findings").inner_text()
    assert HOSTILE_TAG in shown.find(".chart h3").all_inner_texts()
    counts = "[document.scripts.length, document.images.length, document.title]"
    assert shown.page.evaluate(counts) == [2, 0, f"{HOSTILE} - Supervisor report"]
    assert dialogs == []


def test_what_is_added_to_a_report_does_not_run(tab: Callable[..., Any], told: Any, tmp_path: Path) -> None:
    """The policy holds where the page is opened: another script, a handler or a request is refused."""
    shown = tab()
    shown.excuse("Content Security Policy|Refused|net::ERR")
    file = tmp_path / "report.html"
    file.write_bytes(
        told.report("stormy").page.replace(
            b"<noscript>",
            b"<script>window.ran = 1</script><img src=x onerror='window.ran = 2'>"
            b"<script src='http://127.0.0.1:9/x.js'></script><noscript>",
        )
    )
    shown.page.goto(file.as_uri())
    shown.page.wait_for_function(READY)
    assert shown.page.evaluate("window.ran") is None
    refused = "fetch('http://127.0.0.1:9/').then(() => 'sent', error => error.name)"
    assert shown.page.evaluate(refused) == "TypeError"


@pytest.mark.parametrize("run", ["stormy", "cluster", "hangs at a line"])
def test_a_report_fits_a_telephone(tab: Callable[..., Any], told: Any, tmp_path: Path, run: str) -> None:
    """At 375 pixels, dark: nothing sticks out, everything has contrast, the name and the moment are whole."""
    shown = tab(viewport={"width": 375, "height": 740}, color_scheme="dark")
    open_report(told, shown, run, tmp_path / "report.html")
    assert shown.beyond() == []
    assert "dark" in shown.find("html").get_attribute("class")
    assert shown.violations() == []
    for text in (shown.find("h1"), shown.find(".updated")):
        assert text.evaluate("element => element.scrollWidth <= element.clientWidth + 1")


def test_what_was_left_out_is_said_first(
    tab: Callable[..., Any], told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that was made smaller shows what it has, and says what it has not."""
    from tb_plugin import report

    monkeypatch.setattr(report, "MOST_BYTES", len(told.report("stormy").page) - 30_000)
    shown = open_report(told, tab(), "stormy", tmp_path / "report.html", "tag=none&tag=loss&smooth=0.5")
    assert "points are thinned to their extremes, and cannot be smoothed." in shown.find(".banner").inner_text()
    notes = shown.find(".chart-head .muted").all_inner_texts()
    assert not shown.find("label", has_text="Smoothing").is_visible()
    assert notes[0] == "The report has no such curve." and "extremes per pixel" in notes[1]

"""One run in a real browser: what happened, when, and what it cost."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from supervisor_core.events import EventsWriter
from supervisor_core.events.telemetry import HeartbeatRecord, RecoveryRecord, summary_bytes
from supervisor_core.run.fold.bounds import MAX_THREADS


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory, scripted: ModuleType) -> Path:
    """A run with two kills, one preemption, a stall and failed saves; and one with more than the limits allow."""
    directory = tmp_path_factory.mktemp("logs")
    threads = tuple({"name": f"thread {number}", "state": "idle"} for number in range(MAX_THREADS + 44))
    with EventsWriter(str(directory / "beyond")) as writer:
        writer.summary(summary_bytes(HeartbeatRecord(session="s", phase="training", step=5, threads=threads)), 5)
        for step in range(501):
            record = RecoveryRecord(session="s", error="UnavailableError", step=step + 1, restored_step=step)
            writer.summary(summary_bytes(record), step)
    scripted.write_stormy(directory / "stormy", time.time() - 60, running=False)
    return directory


def test_says_in_words_what_happened_and_what_it_cost(shown: Any, board: Any) -> None:
    """State, restarts with their cost, checkpoints and stalls come first; the goodput's parts sum to the whole; the
    advice, the legend, and the stacks that were taken when the stall was noticed can be read."""
    words = shown.open(board, run="stormy").find(".sentences").inner_text()
    assert "completed" in words
    assert re.search(
        r"3 restarts cost 15 min \d+ s: 6 min \d+ s down, 1,5\d\d to 1,\d\d\d steps recomputed .*; 2 killed, 1 signal",
        words,
    )
    assert re.search(r"2 of 2\d recorded saves failed", words) and "1 stall" in words
    assert "4 processes on 4 x H100, trainer-0: team=vision, user=ada" in words
    parts = shown.find(".goodput-parts li").all_inner_texts()
    assert [re.split(r"\d", part)[0].strip() for part in parts] == [
        "Productive", "Starting", "Restoring", "Blocked by saves", "Wasted", "Downtime", "Stalled",
    ]  # fmt: skip
    shares = [float(share) for part in parts for share in re.findall(r"([\d.]+) %", part)]
    assert sum(shares) == pytest.approx(100, abs=0.5)
    assert re.search(
        r"Save every .* instead of 2 min(.|\n)*expected to save [\d.]+ %", shown.find(".advice").inner_text()
    )
    shown.find(".legend summary").click()
    words = shown.find(".legend-box").inner_text()
    for word in ("restart", "hang", "silent", "at risk", "service threads", "killed"):
        assert word in words
    shown.find(".stalls summary").first.click()
    text = shown.find(".stalls details[open]").inner_text()
    assert "MainThread" in text and 'File "train.py", line 88' in text


def test_begins_with_what_is_wrong_and_where_it_hangs(
    tab: Callable[..., Any], board: Any, logdir: Path, scripted: ModuleType
) -> None:
    """Before all facts stand the findings, word for word as in the list, each with its command; where a run hangs, the
    phase, the line and what it does there, and directly below them the stacks, opened."""
    where = {"thread": "MainThread", "location": "/home/me/live.py:15 load", "activity": "waits"}
    hangs = scripted.Scripted(logdir / "hangs", time.time() - 900).train(300).stall(596, ended=False, **where)
    with scripted.alive(hangs):
        shown = tab(viewport={"width": 1280, "height": 700})
        shown.open(board)
        shown.find(".row .run-name", has_text="hangs").click()
        finding = shown.find(".findings li").first
        finding.wait_for()
        (told,) = json.loads(board.fetch("run?run=hangs"))["findings"]
        assert "in the phase training: MainThread waits at live.py:15 in load" in told["sentence"]
        assert finding.locator(".said").inner_text().startswith(told["sentence"])
        assert finding.locator("code").inner_text() == told["action"]
        parts = [part for part in shown.find(".run-body > :not([hidden])").all() if part.is_visible()]
        assert [part.get_attribute("class") or part.get_attribute("aria-label") for part in parts[:3]] == [
            "Findings", "stalls", "summary",
        ]  # fmt: skip
        stack = shown.find(".stalls details[open] pre").first
        assert 'File "train.py", line 88' in stack.inner_text()
        box = stack.bounding_box()
        assert box["y"] + box["height"] < 700


def test_says_whether_each_resume_was_exact(shown: Any, board: Any) -> None:
    """At each restart and session, with the reasons; one that says nothing is unknown. Long ones are cut, and markup
    stays text; the cells are read like all others."""
    shown.open(board, run="stormy").whole()
    for name, words in (
        ("Restarts", ["observed exact", "unknown", "not exact"]),
        ("Sessions", ["observed exact", "unknown", "not exact", "\u2013"]),
    ):
        table = shown.find(f"[role=region][aria-label={name}]")
        heads = table.locator("th").all_inner_texts()
        cells = [row.locator("td").all_inner_texts() for row in table.locator("tbody tr").all()]
        assert [row[heads.index("Resume")].lstrip("✓·≠").strip() for row in cells] == words
    reasons = cells[2][heads.index("Evidence")]
    assert reasons.startswith("DataLoader without position: 312 batches will repeat; <b>xxx")
    assert reasons.endswith("x…; another number of workers") and len(reasons) < 300
    assert [row[heads.index("Evidence")] for row in cells[:2]] == ["3 of 3 recomputed losses equal", ""]


def test_says_what_is_beyond_the_limits(shown: Any, board: Any) -> None:
    """What is not shown is counted, by the name of the page that lists the limits; a long table is cut, and says so."""
    words = shown.open(board, run="beyond").find(".findings").inner_text()
    assert "more than is kept of one run (docs/limits.md): events dropped 44 x" in words
    table = shown.find(".tables > div", has_text="Restarts within a session")
    assert "501" in table.locator(".table-head").inner_text()
    assert "the first 500 are shown; the CSV has all" in table.locator(".table-head").inner_text()
    assert table.locator("tbody tr").count() == 500


def test_hover_and_keys_describe_every_mark(shown: Any, board: Any) -> None:
    """Each thing on the timeline says what it is where the pointer is. Point and comma go from mark to mark and say it;
    Shift and an arrow read values, which follow a zoom."""
    shown.open(board, run="stormy").whole()
    titles = " ".join(shown.hovers())
    assert all(word in titles for word in ("Session", "Restart", "Checkpoint", "save", "Stalled", "summary"))
    shown.find(".strip").focus()

    def press(key: str) -> str:
        shown.page.keyboard.press(key)
        shown.drawn()
        text: str = shown.find(".spoken").inner_text()
        return text

    said = [press(".") for _ in range(40)]
    for word in ("Session 1", "Restart 1", "Checkpoint of step", "failed", "Stalled for"):
        assert any(word in text for text in said), (word, said)
    assert any("No space left" in text for text in said)
    assert shown.find(".tooltip").is_visible()
    assert press(",") != said[-1]
    assert re.search(r"loss: [\d.]+ at step", press("Shift+ArrowLeft"))
    area = shown.find(".chart-area").first
    area.hover(position={"x": 300, "y": 40})
    readout = shown.find(".chart .readout").first
    readout.filter(has_text="at step").wait_for()
    before = readout.inner_text()
    area.evaluate("area => document.querySelector('button[aria-label=\"Zoom in\"]').click()")
    readout.filter(has_not_text=before).wait_for()


def test_what_is_chosen_is_in_the_address(tab: Callable[..., Any], board: Any) -> None:
    """Within TensorBoard: axis, tags, logarithm and a stretch that was dragged are there again after a reload, and for
    somebody else with the link; the button shows all again."""
    shown = tab(hosted=True).open(board, run="stormy")
    shown.frame.get_by_text("0.00", exact=True).wait_for()  # smoothing
    shown.frame.get_by_role("button", name="Step", exact=True).click()
    shown.frame.get_by_label("Logarithmic").check()
    shown.find(".tags summary").click()
    shown.find(".tag-list").get_by_label("accuracy").uncheck()
    shown.page.wait_for_url(re.compile("x%3Dstep.*tag%3Dloss.*log%3D1"))
    shown.page.reload()
    shown.find(".chart").first.wait_for()
    assert shown.frame.get_by_role("button", name="Step", exact=True).get_attribute("aria-pressed") == "true"
    assert shown.frame.get_by_label("Logarithmic").is_checked()
    assert shown.find(".chart h3").all_inner_texts() == ["loss", "learning_rate"]
    shown.drawn()
    box = shown.find(".timeline-canvas").bounding_box()
    y = box["y"] + 30
    shown.page.mouse.move(box["x"] + 400, y)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + 700, y, steps=4)
    shown.page.mouse.up()
    shown.page.wait_for_url(re.compile("zoom"))
    link = shown.page.url
    shown.page.goto("about:blank")
    shown.page.goto(link)
    reset = shown.frame.get_by_role("button", name="Reset zoom", disabled=False)
    reset.wait_for()
    assert shown.page.url == link
    reset.click()
    shown.page.wait_for_url(lambda url: "zoom" not in url)


def test_tables_can_be_had_as_csv(shown: Any, board: Any) -> None:
    """Restarts and all checkpoints, raw, under names that fit a file system."""
    shown.open(board, run="stormy")
    with shown.page.expect_download() as waiting:
        shown.frame.get_by_role("button", name="Download restarts as CSV").click()
    lines = Path(waiting.value.path()).read_text().splitlines()
    assert waiting.value.suggested_filename == "stormy-restarts.csv"
    assert (
        lines[0]
        .replace('"', "")
        .startswith("at,reason,inferred,from_step,to_step,rewind_steps,rewind_steps_most,downtime_secs")
    )
    assert len(lines) == 4
    with shown.page.expect_download() as waiting:
        shown.frame.get_by_role("button", name="Download checkpoints as CSV").click()
    lines = Path(waiting.value.path()).read_text().splitlines()
    assert len(lines) > 20 and sum("No space left" in line for line in lines) == 2


def test_gaps_are_clipped_by_default_where_hardly_anything_ran(
    shown: Any, board: Any, logdir: Path, scripted: ModuleType
) -> None:
    """A run that was down for most of the time begins on running time; wall time is one click, and in the address."""
    now = time.time()
    scripted.Scripted(logdir / "idle", now - 90_000).train(300)
    scripted.Scripted(logdir / "idle", now - 500, attempt=2, step=600).train(300).stop()
    shown.open(board)
    shown.find(".row .run-name", has_text="idle").click()
    running = shown.frame.get_by_role("button", name="Running time")
    shown.find('.axis-bar [aria-pressed="true"]', has_text="Running time").wait_for()
    shown.frame.get_by_role("button", name="Wall time").click()
    shown.page.wait_for_url(re.compile("x=wall"))
    assert running.get_attribute("aria-pressed") == "false"


def test_keyboard_pans_zooms_and_leaves(shown: Any, board: Any) -> None:
    """Plus zooms, an arrow pans, Escape shows all, and again leads back to the list."""
    shown.open(board, run="stormy")
    shown.find(".strip").focus()
    shown.page.keyboard.press("+")
    shown.page.wait_for_url(re.compile("zoom"))
    before = shown.page.url
    shown.page.keyboard.press("ArrowRight")
    shown.page.wait_for_url(lambda url: url != before)
    shown.page.keyboard.press("Escape")
    shown.page.wait_for_url(lambda url: "zoom" not in url)
    shown.page.keyboard.press("Escape")
    shown.find(".overview").wait_for()

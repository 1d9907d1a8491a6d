"""Compared runs in a real browser: their curves over each other, the cursor, the baseline, and what is taken away."""

from __future__ import annotations

import csv
import re
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

RUNS = ("sweep/lr=0.1", "sweep/lr=0.01", "sweep/<b>&\"'")
RESTARTED = RUNS[0]
BELOW = "below"
"""A run whose only tag has no value above 0."""
COLOURS = ("#1155cc", "#ff0000", "#00aa00")
"""Of the first three places of the palette, in the light theme."""
HAS_COLOURS = """(colours) => {
    const canvas = document.querySelector('.compare-views .chart-area canvas');
    const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    const has = colour => {
        const parts = [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));
        for (let i = 0; i < data.length; i += 4)
            if (data[i + 3] > 200 && parts.every((part, k) => Math.abs(data[i + k] - part) < 30)) return true;
        return false;
    };
    return colours.filter(has);
}"""
"""Which colours are drawn, apart from what the edges of lines lose."""


@pytest.fixture(scope="module")
def logdir(
    tmp_path_factory: pytest.TempPathFactory, scripted: ModuleType, module_at: Callable[[str], ModuleType]
) -> Path:
    """Three runs, begun 100 s after each other; the first was killed, and resumed at an earlier step 240 s later. And
    one of another program."""
    directory = tmp_path_factory.mktemp("logs")
    now = time.time() - 3600
    sessions = [scripted.Scripted(directory / run, now + 100 * number) for number, run in enumerate(RUNS)]
    for session in sessions:
        session.train(400)
    again = scripted.Scripted(directory / RESTARTED, sessions[0].at + 240, attempt=2, step=3000)
    again.train(300).stop()
    for session in sessions[1:]:
        session.train(300).stop()
    writer = module_at("events/record_writer.py")
    (directory / BELOW).mkdir()
    records = [writer.scalar(step, "deficit", -1.0 - step) for step in range(50)]
    writer.write(str(directory / BELOW / writer.NAME), writer.HEAD, *records)
    return directory


def opened(shown: Any, board: Any, **state: Any) -> Any:
    """The page with all runs, once their values and the curves of the first tag are there."""
    chosen = [f"{number}~{run}" for number, run in enumerate(RUNS)]
    return drawn(shown.open(board, **{"view": "compare", "with": chosen, **state}))


def drawn(shown: Any) -> Any:
    """The page, once it has drawn the curves of the first tag, whose values are listed."""
    shown.find(".compare-table thead", has_text="loss, last").wait_for()
    shown.find(".chart").first.locator(".muted", has_text=re.compile("^3 runs, (extremes|dashed)")).wait_for()
    shown.drawn()
    return shown


def painted(shown: Any, *colours: str) -> None:
    """Wait for a frame in which exactly these of the runs' colours are drawn."""
    shown.page.wait_for_function(f"(want) => ({HAS_COLOURS})({list(COLOURS)!r}).join() === want", arg=",".join(colours))


def values(shown: Any) -> dict[str, list[str]]:
    """The cells beside each run of the table of values, where the cursor is."""
    rows = shown.find(".compare-legend tbody tr").all()
    return {
        row.locator(".run-name").get_attribute("title").removesuffix(": open its page"): [
            cell for cell in row.locator("td:not([hidden])").all_inner_texts()
        ]
        for row in rows
    }


def where(shown: Any) -> str:
    """The place of the cursor, in words."""
    text: str = shown.find(".compare-legend .table-head .muted").inner_text()
    return text


def curve_of(scripted: ModuleType) -> Callable[[str, int], float]:
    """What was written of a tag at a step."""
    value_of: Callable[[str, int], float] = sys.modules[scripted.Scripted.__module__].value_of
    return value_of


def test_each_run_is_drawn_in_its_colour_and_pointing_at_one_fades_the_others(
    tab: Callable[..., Any], board: Any
) -> None:
    """In the charts, the table of values and the table of runs alike; recomputed points have a legend."""
    shown = opened(tab(), board, x="wall")
    shown.excuse("willReadFrequently")  # of this test's own look at the canvas
    assert "dashed: recomputed" in shown.find(".chart .muted").first.inner_text()
    painted(shown, *COLOURS)
    shown.find(".compare-legend tbody tr").nth(1).hover()
    painted(shown, COLOURS[1])
    assert shown.find(".compare-table tr.active").get_attribute("data-run") == RUNS[1]
    shown.find(f".compare-table tr[data-run='{RUNS[0]}']").hover()
    painted(shown, COLOURS[0])
    shown.find(".top h1").hover()
    painted(shown, *COLOURS)


def test_one_cursor_reads_every_run(shown: Any, board: Any, scripted: ModuleType) -> None:
    """The table has each run's value at the step that is pointed at, as it was written, smoothed beside it; a run that
    did not come that far has none. Without a cursor it has the last values."""
    value_of = curve_of(scripted)
    opened(shown, board, smooth="0.5")
    assert where(shown) == "last values"
    assert [cells[-1] for cells in values(shown).values()] == ["5,980", "6,960", "6,960"]
    area = shown.find(".compare-views .chart-area").first
    box = area.bounding_box()
    shown.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    shown.find(".compare-legend .table-head .muted", has_text="at step").wait_for()
    for raw, smoothed, step in values(shown).values():
        assert float(raw) == pytest.approx(value_of("loss", int(step.replace(",", ""))), rel=1e-3)
        assert 0 < float(smoothed) != float(raw)
    shown.page.mouse.move(box["x"] + box["width"] * 0.97, box["y"] + 20)
    shown.page.wait_for_function("document.querySelector('.compare-legend tbody td').textContent === '\u2013'")
    assert [cells[0] == "\N{EN DASH}" for cells in values(shown).values()] == [True, False, False]
    shown.find(".compare-legend select").select_option("accuracy")
    shown.page.mouse.move(5, 5)
    shown.find(".compare-legend .table-head .muted", has_text="last values").wait_for()


def test_running_time_cuts_restarts_out(shown: Any, board: Any) -> None:
    """By running time all end after about 700 s, by wall time as much later as it was down, and began later."""
    opened(shown, board, x="relative")
    ends = {}
    for axis, by in (("Running time", "running"), ("Wall time", "wall")):
        shown.frame.get_by_role("button", name=axis).click()
        drawn(shown)
        with shown.page.expect_download() as download:
            shown.frame.get_by_role("button", name="Download loss as CSV").click()
        rows = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
        column = "running_secs" if by == "running" else "wall_time"
        ends[by] = [max(float(row[column]) for row in rows if row["run"] == run) for run in RUNS]
    assert ends["running"] == pytest.approx([700, 700, 700], abs=20)
    assert ends["wall"][0] - ends["wall"][1] == pytest.approx(140, abs=20)


def test_baseline_and_zoom_are_in_the_address(tab: Callable[..., Any], board: Any) -> None:
    """Within TensorBoard: a link shows the same baseline, with which the others are compared, and the same stretch; 0
    and Escape show all again; keys move the cursor."""
    shown = opened(tab(hosted=True), board)
    shown.frame.get_by_role("button", name=f"Baseline {RUNS[1]}").click()
    shown.page.wait_for_url(re.compile("base%3Dsweep"))
    shown.page.reload()
    shown.find(".compare-legend tr.baseline").wait_for()
    drawn(shown)
    cells = list(values(shown).values())
    assert cells[1][1] == ""
    assert float(cells[0][1]) == pytest.approx(float(cells[0][0]) - float(cells[1][0]), abs=2e-4)
    shown.frame.get_by_role("button", name=f"Baseline {RUNS[1]}").click()
    shown.page.wait_for_url(lambda url: "base%3D" not in url)
    box = shown.find(".compare-views .chart-area").first.bounding_box()
    shown.page.mouse.move(box["x"] + 300, box["y"] + 50)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + 500, box["y"] + 50, steps=4)
    shown.page.mouse.up()
    shown.page.wait_for_url(re.compile("x%3Dstep.*zoom"))
    link = shown.page.url
    shown.page.goto("about:blank")
    shown.page.goto(link)
    shown.frame.get_by_role("button", name="Reset zoom", disabled=False).wait_for()
    shown.find(".plots .strip").focus()
    shown.page.keyboard.press("Shift+ArrowRight")
    shown.find(".compare-legend .table-head .muted", has_text="at step").wait_for()
    shown.page.keyboard.press("0")
    shown.page.wait_for_url(lambda url: "zoom" not in url)
    shown.page.keyboard.press("+")
    shown.page.wait_for_url(re.compile("zoom"))
    shown.page.keyboard.press("Escape")
    shown.page.wait_for_url(lambda url: "zoom" not in url)
    assert shown.find(".compare-page").count() == 1


@pytest.mark.parametrize("page", ["compare", "run"])
def test_a_chart_says_that_a_logarithm_shows_nothing(shown: Any, board: Any, page: str) -> None:
    """As long as the logarithm is on; after that it says again how much there is."""
    state = {"run": BELOW} if page == "run" else {"view": "compare", "with": f"0~{BELOW}"}
    shown.page.goto(board.address(False, log="1", tag="deficit", **state))
    note = shown.find(".chart .muted")
    shown.find(".chart .muted", has_text="nothing above 0 here: no logarithm").wait_for()
    shown.frame.get_by_label("Logarithmic").click()
    shown.find(".chart .muted", has_text="50 points" if page == "run" else "1 run").wait_for()
    assert "logarithm" not in note.inner_text()


def test_values_that_are_being_read_are_asked_for_again(tab: Callable[..., Any], board: Any) -> None:
    """Where the backend had newer points than it could answer with in time, its next answer is shown, and so are the
    curves, though no run has changed."""
    shown = tab()
    is_read = False

    def held(route: Any) -> None:
        answer = route.fetch()
        found = answer.json()
        if not is_read and found["runs"][0]["values"]:
            found["runs"][0].update(reading=True)
            found["runs"][0]["values"]["loss"]["last"] = 0.125
        route.fulfill(response=answer, json=found)

    shown.page.route(re.compile("plugin/supervisor/compare"), held)
    shown.page.goto(board.address(False, view="compare", tag="loss", **{"with": f"0~{RUNS[1]}"}))
    old = shown.find(".compare-table td", has_text="0.125").first
    old.wait_for()
    shown.find(".chart .muted", has_text=re.compile("^1 run$")).wait_for()
    for _ in range(2):  # it goes on asking
        shown.page.wait_for_event("response", lambda response: "supervisor/compare" in response.url)
    with shown.page.expect_request(re.compile("supervisor/scalars")):
        is_read = True
    old.wait_for(state="detached")


@pytest.mark.parametrize("page", ["compare", "run"])
def test_charts_can_be_taken_away(shown: Any, board: Any, logdir: Path, tmp_path: Path, page: str) -> None:
    """As points, each as it was written; as a picture, sharper than the screen."""
    if page == "run":
        shown.open(board, run=RESTARTED, tag="loss", x="step")
        shown.whole()
    else:
        opened(shown, board)
    files = {}
    for kind in ("CSV", "PNG"):
        with shown.page.expect_download() as download:
            shown.frame.get_by_role("button", name=f"Download loss as {kind}").click()
        name = download.value.suggested_filename
        files[kind] = tmp_path / name
        download.value.save_as(files[kind])
        assert re.fullmatch(r"(compare|sweep-lr-0.1)-loss-(points|chart)\.\w+", name) and name.endswith(kind.lower())
    rows = list(csv.DictReader(files["CSV"].read_text().splitlines()))
    assert {row["run"] for row in rows} == ({RESTARTED} if page == "run" else set(RUNS))
    written = EventAccumulator(str(logdir / RESTARTED), {"scalars": 0}, purge_orphaned_data=False).Reload()
    mine = [row for row in rows if row["run"] == RESTARTED]
    events = [(event.step, event.value) for event in written.Scalars("loss")]
    assert sorted((int(row["step"]), float(row["value"])) for row in mine) == sorted(events)
    again = len(events) - len({step for step, _ in events})
    assert sum(row["kept"] == "false" for row in mine) == again > 40
    chart = shown.frame.get_by_role("region", name="Scalar loss").locator("canvas").bounding_box()
    head = files["PNG"].read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    assert width > 1.9 * chart["width"] and height > 2 * chart["height"]


def test_is_accessible(tab: Callable[..., Any], board: Any) -> None:
    """No violation in either theme, as wide as a screen or a phone; nothing sticks out, and every control is reached
    with the keyboard."""
    for width in (380, 1280):
        shown = opened(tab(viewport={"width": width, "height": 860}), board, base=RUNS[1], smooth="0.5")
        for scheme in ("dark", "light"):
            shown.page.emulate_media(color_scheme=scheme)
            shown.find(f"html{'.dark' if scheme == 'dark' else ':not(.dark)'}").wait_for(state="attached")
            drawn(shown)
            assert shown.violations() == []
            assert shown.beyond() == []
    reached = set()
    for _ in range(80):
        shown.page.keyboard.press("Tab")
        reached.add(shown.inside().evaluate("document.activeElement.ariaLabel || document.activeElement.textContent"))
    names = {f"{what} {run}" for what in ("Baseline", "Compare without") for run in RUNS}
    assert reached >= {*names, "Step", "Copy link", "Download loss as PNG", "Tag whose values are listed"}


def test_without_runs_it_says_what_to_do(tab: Callable[..., Any], board: Any) -> None:
    """So it does once the last run was taken out; the way back goes to the list."""
    shown = tab()
    shown.page.goto(board.address(False, view="compare", **{"with": f"0~{RUNS[1]}"}))
    shown.frame.get_by_role("button", name=f"Compare without {RUNS[1]}").click()
    assert "choose runs by their checkboxes" in shown.find(".empty").inner_text()
    shown.page.keyboard.press("Escape")
    assert len(shown.rows()) == len(RUNS) + 1

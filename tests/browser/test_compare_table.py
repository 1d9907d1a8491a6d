"""The table of compared runs in a real browser."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlencode

import pytest

RATES = ("0.1", "0.03", "0.01")
SEEDS = 4
"""Runs for each learning rate."""


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory, scripted: ModuleType) -> Path:
    """A sweep of 12 runs: the fourth has the lowest loss, the last has become NaN and failed."""
    directory = tmp_path_factory.mktemp("sweep")
    now = time.time()
    for number, name in enumerate(names()):
        nan_from = 2000 if number == len(names()) - 1 else None
        placed = {"labels": {"team": "vision", "seed": str(number % SEEDS)}}
        late = 0 if number == 3 else 20 * (number + 1)
        run = scripted.Scripted(
            directory / name, now - 4000, tags=("loss", "accuracy"), nan_from=nan_from, placed=placed
        ).train(600 - late)
        run.stop("error", error="ValueError: NaN") if nan_from else run.stop()
    return directory


def names() -> list[str]:
    """The runs of the sweep."""
    return [f"lr={rate},seed={seed}" for rate in RATES for seed in range(SEEDS)]


@pytest.fixture(scope="module")
def board(tensorboard: Callable[..., Any], logdir: Path) -> Any:
    """TensorBoard on the sweep."""
    return tensorboard(logdir, "--supervisor_refresh_secs", "60")


def compare(shown: Any, board: Any, **state: str) -> Any:
    """Open the comparison of all of them, and wait for their values."""
    chosen = [f"{colour}~{name}" for colour, name in enumerate(names())]
    return whole(shown.open(board, **{"view": "compare", "with": chosen, **state}))


def whole(shown: Any) -> Any:
    """The page, once it has the values of all runs: those being read are counted beside curves, of charts in sight."""
    shown.find(".compare-table thead", has_text=re.compile("loss, (last|highest)")).wait_for()
    chart = shown.find(".chart").first
    chart.scroll_into_view_if_needed()
    chart.locator(".muted", has_text=re.compile(rf"^{len(names())} runs(?!.*being read)")).wait_for()
    return shown


def heads(shown: Any) -> list[str]:
    """The names of the columns."""
    return [re.sub(r"\s*[▲▼↕]?$", "", text) for text in shown.find(".compare-table thead th").all_inner_texts()]


def column(shown: Any, head: str) -> list[str]:
    """The texts of a column, from top to bottom."""
    place = heads(shown).index(head)
    rows = shown.find(".compare-table tbody tr").all()
    return [" ".join(row.locator("th, td").nth(place).inner_text().split()) for row in rows]


def colours(shown: Any) -> dict[str, str]:
    """The colour of each run, from top to bottom."""
    rows = shown.find(".compare-table tbody tr").all()
    return {
        row.get_attribute("data-run"): row.locator(".swatch").evaluate("each => each.style.background") for row in rows
    }


def test_the_best_run_comes_first_and_a_failed_one_says_why(shown: Any, board: Any) -> None:
    """Without a click: the lowest loss is marked, and the run that failed has NaN, from which step on. The numbers are
    those of the route."""
    compare(shown, board)
    best = names()[3]
    assert column(shown, "Run")[0] == best and sorted(column(shown, "Run")) == sorted(names())
    answer = json.loads(board.fetch(f"compare?tag=loss&{urlencode([('run', name) for name in names()])}"))
    values = {run["run"]: run["values"]["loss"] for run in answer["runs"]}
    lowest = min(values, key=lambda name: values[name]["min"])
    assert lowest == best
    text = column(shown, "loss, lowest")[0]
    assert text == f"★ {values[best]['min']:.4g} at {values[best]['min_step']:,}"
    failed = names()[-1]
    row = column(shown, "Run").index(failed)
    assert column(shown, "State")[row] == "✕ failed" and column(shown, "loss, last")[row] == "not finite"
    assert column(shown, "NaN?")[row] == f"yes loss from step {values[failed]['first_nonfinite_step']:,}"
    assert {text for i, text in enumerate(column(shown, "NaN?")) if i != row} == {"no"}
    shown.find(".compare-table tbody th button", has_text=failed).click()
    shown.find(".run-page .sentences").wait_for()
    assert shown.find(".run-title").inner_text() == failed


def test_it_is_sorted_narrowed_and_its_columns_are_chosen(shown: Any, board: Any) -> None:
    """By clicks that the address keeps. A run keeps its colour."""
    compare(shown, board)
    before = colours(shown)
    shown.find(".compare-table thead").get_by_role("button", name="accuracy, last").click()
    accuracy = [float(text) for text in column(shown, "accuracy, last")]
    assert accuracy == sorted(accuracy)
    assert colours(shown) == before and list(colours(shown)) != list(before)
    assert len(set(before.values())) == len(names())
    shown.find(".compare-table").get_by_label("Which value of a tag is the best").select_option("highest")
    assert "loss, highest" in heads(shown)
    assert {"Host", "team", "seed"} < set(heads(shown))
    shown.find(".compare-table").get_by_label("Differences only").check()
    assert "seed" in heads(shown) and not {"Host", "team"} & set(heads(shown))
    shown.find(".compare-table summary", has_text="Columns").click()
    shown.find(".compare-table").get_by_label("Filter columns by a regular expression").fill("seed")
    shown.find(".compare-table .tag-list label").get_by_role("checkbox").uncheck()
    assert "seed" not in heads(shown)
    shown.page.keyboard.press("Escape")
    before = heads(shown)
    shown.page.reload()
    whole(shown)
    assert heads(shown) == before
    assert shown.find('.compare-table [aria-sort="ascending"]').inner_text().startswith("accuracy, last")


def test_runs_are_grouped_by_a_capture_of_their_names(shown: Any, board: Any) -> None:
    """With the mean, the range and the number of runs; a group's runs can be listed. What is no expression says so."""
    compare(shown, board)
    losses = dict(zip(column(shown, "Run"), column(shown, "loss, last"), strict=True))
    field = shown.find(".compare-table .group")
    field.fill("lr=([^,]*)")
    shown.find(".group-row").first.wait_for()
    assert column(shown, "Run") == ["▸ 0.1 4 runs", "▸ 0.03 4 runs", "▸ 0.01 4 runs"]
    of_group = [float(losses[name]) for name in names()[:SEEDS]]
    mean, low, _, high = column(shown, "loss, last")[0].split()
    assert (float(low), float(high)) == (min(of_group), max(of_group))
    assert float(mean) == pytest.approx(sum(of_group) / SEEDS, rel=1e-3)
    assert column(shown, "loss, last")[2].endswith("3 of 4 runs")
    shown.find(".group-row button", has_text="0.03").press("Enter")
    assert column(shown, "Run")[1] == "▾ 0.03 4 runs"
    assert sorted(column(shown, "Run")[2:6]) == names()[SEEDS : 2 * SEEDS]
    field.fill("lr=(")
    shown.find(".compare-table", has_text="Not a regular expression").wait_for()
    assert len(column(shown, "Run")) == len(names())


def test_it_can_be_taken_away(shown: Any, board: Any, tmp_path: Path) -> None:
    """As CSV, and copied for a spreadsheet: raw numbers, in the order that is shown, with the groups."""
    compare(shown, board, group="lr=([^,]*)")
    shown.find(".group-row").first.wait_for()
    with shown.page.expect_download() as downloading:
        shown.frame.get_by_role("button", name="Download the table of runs as CSV").click()
    downloading.value.save_as(tmp_path / "runs.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "runs.csv").read_text())))
    assert [row["run"] for row in rows[:1]] == [names()[3]] and {row["group"] for row in rows} == set(RATES)
    answer = json.loads(board.fetch(f"compare?tag=loss&{urlencode([('run', name) for name in names()])}"))
    values = {run["run"]: run["values"]["loss"] for run in answer["runs"]}
    assert {row["run"]: float(row["loss min"]) for row in rows} == {run: value["min"] for run, value in values.items()}
    assert {row["loss last"] for row in rows if row["run"] == names()[-1]} == {""}
    shown.frame.get_by_role("button", name="Copy the table of runs").click()
    shown.find(".compare-table .copy", has_text="Copied").wait_for()
    pasted = shown.inside().evaluate("navigator.clipboard.readText()")
    assert list(csv.DictReader(io.StringIO(pasted), delimiter="\t")) == rows


def test_it_is_accessible_on_a_screen_and_on_a_telephone(tab: Callable[..., Any], board: Any) -> None:
    """Axe finds nothing with its groups and its list of columns open; the table scrolls in a box of its own, and the
    list of columns is in sight."""
    for width, scheme in ((1280, "light"), (360, "dark")):
        how = {"viewport": {"width": width, "height": 740}, "color_scheme": scheme}
        shown = compare(tab(**how), board, group="lr=([^,]*)")
        shown.find(".group-row button").first.click()
        shown.find(".compare-table summary", has_text="Columns").click()
        shown.find(".compare-table .tag-list input").first.wait_for()
        assert shown.violations() == []
        assert shown.beyond() == []

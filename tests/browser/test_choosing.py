"""Choosing runs of the list for the comparison in a real browser."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs

import pytest

COUNT = 60
MOST = 50
"""How many can be compared."""


@pytest.fixture(scope="module")
def board(tensorboard: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory, scripted: ModuleType) -> Any:
    """TensorBoard on more runs than can be compared."""
    directory = tmp_path_factory.mktemp("logs")
    scripted.write_many(directory, COUNT, time.time())
    return tensorboard(directory, "--supervisor_refresh_secs", "60")


def chosen(shown: Any) -> dict[str, int]:
    """Colours of the runs that the address has as chosen."""
    words = parse_qs(shown.inside().evaluate("location.hash.slice(1)")).get("with", [])
    return {run: int(colour) for colour, run in (word.split("~", 1) for word in words)}


def checked(shown: Any) -> list[str]:
    """Runs in sight whose checkbox is on, and which are said to be selected."""
    rows = shown.find(".body .row:not([hidden])[aria-selected=true]:has(.check :checked)")
    assert rows.count() == shown.find(".body .row:not([hidden]) .check :checked").count()
    return sorted(rows.locator(".run-name").all_inner_texts())


def test_checkboxes_choose_runs_and_shift_a_range(shown: Any, board: Any) -> None:
    """Each with a colour of its own; the address has them, and a reload keeps them. The list stays where it is."""
    shown.open(board, sort="run")
    names = shown.rows()
    compare = shown.find(".compare-button")
    assert compare.inner_text() == "Compare" and compare.is_disabled()
    boxes = [shown.frame.get_by_role("checkbox", name=f"Choose {name}") for name in names[:6]]
    boxes[1].click()
    assert compare.is_disabled()
    boxes[4].click(modifiers=["Shift"])
    assert chosen(shown) == {name: colour for colour, name in enumerate(names[1:5])}
    boxes[2].click()
    boxes[0].click()
    assert chosen(shown) == {names[1]: 0, names[3]: 2, names[4]: 3, names[0]: 1}
    assert shown.find(".overview").is_visible()
    shown.page.reload()
    shown.find(".body .row :checked").first.wait_for()
    assert checked(shown) == sorted([names[0], names[1], names[3], names[4]])
    assert compare.inner_text() == "Compare 4"
    compare.click()
    shown.frame.get_by_role("heading", name="Compare").wait_for()
    assert len(chosen(shown)) == 4
    shown.page.go_back()
    shown.find(".overview").wait_for()
    shown.frame.get_by_role("button", name="Choose no runs").click()
    assert chosen(shown) == {} and checked(shown) == [] and compare.is_disabled()


def test_all_that_are_listed_can_be_chosen_up_to_fifty(shown: Any, board: Any) -> None:
    """The first of the list where there are more, and the page says so. Others stay chosen while a filter is set."""
    shown.open(board, sort="run", filter="group-0[0-3]")
    some = len(shown.rows())
    every = shown.frame.get_by_role("checkbox", name="Choose all listed runs")
    every.check()
    assert len(chosen(shown)) == some > 2
    shown.find(".search").press("Escape")
    shown.find(".note", has_text=f"{COUNT} runs").wait_for()
    assert every.evaluate("box => box.indeterminate")
    every.click()
    assert len(chosen(shown)) == MOST == len(set(chosen(shown).values()))
    assert f"{MOST} runs are chosen: no more can be compared" in shown.find(".note").inner_text()
    before = chosen(shown)
    shown.find(".runs").focus()
    shown.page.keyboard.press("End")
    shown.find(".body .row:not([hidden])[aria-selected=false]").first.get_by_role("checkbox").click()
    assert chosen(shown) == before and len(checked(shown)) < MOST
    every.click()
    assert chosen(shown) == {}


def test_the_keyboard_chooses_runs(tab: Callable[..., Any], board: Any) -> None:
    """Space one, Shift and arrows a range that shrinks again, Ctrl + a all; Enter still opens one."""
    shown = tab().open(board, sort="run", filter="group-0[0-5]")
    names = shown.rows()
    press = shown.page.keyboard.press
    shown.find(".runs").focus()
    press("Space")
    assert list(chosen(shown)) == names[:1]
    press("ArrowDown")
    press("ArrowDown")
    for _ in range(3):
        press("Shift+ArrowDown")
    assert list(chosen(shown)) == [names[0], *names[2:6]]
    press("Shift+ArrowUp")
    assert list(chosen(shown)) == [names[0], *names[2:5]] and checked(shown) == sorted(chosen(shown))
    press("Space")
    assert list(chosen(shown)) == [names[0], *names[2:4]]
    press("Control+a")
    assert set(chosen(shown)) == set(names)
    press("Control+a")
    assert chosen(shown) == {}
    press("Enter")
    shown.find(".run-page .sentences").wait_for()
    assert shown.find(".run-title").inner_text() == names[4]

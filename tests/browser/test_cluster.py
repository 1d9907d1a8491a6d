"""A cluster in a real browser: which process is the trouble, what it was at, and restarts within a session."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

AHEAD_SECS = 1_800
"""Those that run have written for half an hour to come: however slow the tests are, they do not fall silent."""


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory, scripted: ModuleType) -> Path:
    """A small cluster and one of a hundred workers, both in trouble, and one that has come to its end."""
    directory = tmp_path_factory.mktemp("logs")
    scripted.write_cluster(directory / "small", time.time() + AHEAD_SECS)
    scripted.write_cluster(directory / "done", time.time() - 60, running=False)
    scripted.write_big_cluster(directory / "hundred", time.time() + AHEAD_SECS)
    return directory


def lanes(shown: Any) -> list[str]:
    """The names beside the lanes of workers, from top to bottom."""
    names: list[str] = shown.find(".row-name").all_inner_texts()
    return [name for name in names if re.search(r"worker|ps:|others", name)]


def test_says_first_which_process_is_the_trouble(shown: Any, board: Any) -> None:
    """In the list, in the first sentence, beside its lane, in the first line of the table, and for screen readers."""
    shown.open(board, filter="small|done")
    assert len(shown.rows()) == 2
    lost = "1 of 5 workers is lost or failed: worker:1 on worker-1 is lost."
    assert lost in shown.find(".body .row:not([hidden])", has_text="small").locator(".finding").inner_text()
    assert "↻ 1 ↺ 2" in shown.find(".body .row:not([hidden])", has_text="small").inner_text()
    shown.find(".body .row:not([hidden]) .run-name", has_text="small").click()
    finding = shown.find(".findings li", has_text=lost)
    finding.wait_for()
    assert "5 workers: 1 lost, 1 stalled, 3 running" in shown.find(".sentences").inner_text()
    assert lanes(shown) == ["ps:0", "ps:1", "‖ worker:0", "? worker:1", "worker:2"]
    assert "worker:1" in shown.find(".workers tbody tr").first.inner_text()
    label = shown.find(".timeline-canvas").get_attribute("aria-label")
    assert "2 restarts within a session" in label
    assert "5 workers of which 2 in trouble: worker:1 lost" in label


def test_hover_describes_workers_and_recoveries(shown: Any, board: Any) -> None:
    """State, since when, last seen, step, for what it waited, where it runs; of a restart its error, losses, cost."""
    found = shown.open(board, run="small").hovers()
    assert {title for title in found if "worker:1" in title} == {
        "… worker:1: waiting", "▶ worker:1: running", "? worker:1: lost",
    }  # fmt: skip
    lost = found["? worker:1: lost"]
    assert re.search(r"Last seen\s+20\d\d-", lost) and "worker-1, pid 42" in lost and re.search(r"Step\s+[\d,]+", lost)
    assert "Processes" in lost
    first = next(text for title, text in found.items() if title.startswith("↺ Restart 1 within"))
    assert re.search(r"Connection reset(.|\n)*3 times(.|\n)*58 s(.|\n)*190 steps(.|\n)*model\.ckpt-", first)
    assert "nothing lost" in found["↻ Restart 1"]


def test_a_hundred_workers_do_not_drown_the_page(shown: Any, board: Any) -> None:
    """Those with trouble have a lane, the rest share one, until all are asked for; the address keeps that."""
    shown.open(board, run="hundred")
    few = lanes(shown)
    assert few[:4] == ["✕ worker:63", "? worker:88", "worker:7", "worker:41"]
    assert len(few) == 9 and few[-1] == "92 others"
    crowd = shown.hovers(24)["92 workers"]
    assert "running" in crowd
    shown.frame.get_by_role("button", name="Show all 100 workers").click()
    shown.page.wait_for_url(re.compile("workers=all"))
    assert len(lanes(shown)) == 100
    shown.open(board, run="hundred", workers="all")
    fewer = shown.frame.get_by_role("button", name="Fewer workers")
    fewer.focus()
    shown.page.keyboard.press("Enter")
    shown.page.wait_for_url(lambda url: "workers" not in url)
    assert len(lanes(shown)) == 9


def test_a_cluster_that_is_done_is_not_in_trouble(shown: Any, board: Any) -> None:
    """The workers' restarts are shown, and none is called in trouble. A curve goes back where its session did, and what
    was abandoned there is drawn dashed."""
    shown.open(board, run="done")
    words = shown.find(".sentences").inner_text()
    assert "5 workers: 5 stopped" in words and "in trouble" not in words
    assert re.search(r"1 restart, 2 more within a session, cost \d+ min .* 190 steps recomputed", words)
    shown.find(".chart .muted", has_text="dashed: recomputed").first.wait_for()


def test_names_of_workers_are_whole_on_a_telephone(tab: Callable[..., Any], board: Any) -> None:
    """The number at a name's end is not cut off, with the sign before it."""
    shown = tab(viewport={"width": 360, "height": 740}).open(board, run="hundred")
    shown.find(".row-name", has_text="worker:63").wait_for()
    shown.drawn()
    cut = shown.inside().evaluate(
        """() => [...document.querySelectorAll('.row-name')].filter(name => name.scrollWidth > name.clientWidth)
            .map(name => name.textContent)"""
    )
    assert [name for name in cut if "worker" in name] == []

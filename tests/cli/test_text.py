"""Quantities as people read them."""

from __future__ import annotations

import io
import time
from functools import partial

import pytest
from rich.console import Console

from supervisor_core.cli.text import ago, listed, moment, size
from supervisor_core.run.model.words import count, duration, rate, share
from tests.cases import each


@each(
    "secs, text",
    [
        (None, "-"),
        (0.0, "0 s"),
        (0.0042, "0.0042 s"),
        (1.26, "1.3 s"),
        (59.9, "60 s"),
        (60.0, "1 min"),
        (130.0, "2 min 10 s"),
        (3600.0, "1 h"),
        (3659.0, "1 h 1 min"),
        (93600.0, "1 d 2 h"),
        (-5.0, "-5 s"),
        (86399.9, "1 d"),
        (119.99, "2 min"),
        (125488800.0, "1,452 d"),
        (1e300, "1.2e+295 d"),
        (float("inf"), "-"),
        (float("nan"), "-"),
    ],
)
def test_a_duration_has_its_two_largest_units(secs: float | None, text: str) -> None:
    """Nothing smaller is shown, nothing overflows its unit, and what is not known is a dash."""
    assert duration(secs) == text


def test_ago_is_never_in_the_future() -> None:
    """Clocks disagree: what is ahead of now was just now. None, and a writer's zero, are not known."""
    assert ago(100.0, 190.0) == "1 min 30 s ago"
    assert ago(200.0, 190.0) == "0 s ago"
    assert ago(None, 190.0) == ago(0.0, 190.0) == "-"
    assert ago(1e300, 190.0) == ago(float("nan"), 190.0) == "-"


def test_a_moment_is_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the second."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        assert moment(1795222244.07) == "2026-11-21 00:50:44"
        assert moment(None) == moment(0.0) == moment(1e300) == moment(float("inf")) == "-"
    finally:
        monkeypatch.undo()
        time.tzset()


@each(
    "text, expected",
    [
        (count(1234567), "1,234,567"),
        (count(None), "-"),
        (rate(0.01234), "0.0123"),
        (rate(18.42), "18.4"),
        (rate(12345.6), "12,346"),
        (rate(None), "-"),
        (share(0.9731), "97.3 %"),
        (share(None), "-"),
        (size(512), "512 B"),
        (size(104857632), "105 MB"),
        (size(999_700), "1 MB"),
        (size(5_400_000_000_000), "5.4 TB"),
        (size(None), "-"),
    ],
)
def test_numbers(text: str, expected: str) -> None:
    """Numbers keep the digits that matter and name their unit."""
    assert text == expected


@each("width", range(30, 130, 7))
def test_a_narrow_terminal_wraps_tables_and_cuts_nothing(width: int) -> None:
    """Each letter is there, and a column whose cells are short is wrapped between words, where there is room."""
    heads = ("session", "started", "steps", "ended", "resume", "then")
    rows = [
        ("1", "2026-11-26 22:03:06", "0 to 5,000", "lost", "", "2.8 s down, 841 steps recomputed"),
        ("2", "2026-11-26 22:03:16", "4,353 to 6,654", "signal SIGINT", "observed exact", ""),
    ]
    output = io.StringIO()
    columns = {head: partial(lambda place, row: row[place], place) for place, head in enumerate(heads)}
    Console(file=output, width=width, color_system=None).print(*listed(rows, columns))
    printed = output.getvalue()
    assert sorted("".join(printed.split())) == sorted("".join(("".join(map("".join, rows)) + "".join(heads)).split()))
    assert max(map(len, printed.splitlines())) <= width
    assert width < 70 or "recomputed" in printed

from __future__ import annotations

from io import StringIO

from rich.console import Console

from examples.demo.display import LINE_SECS, Display
from examples.demo.metrics import Reading

READING = Reading(phase="training", step=640, steps_per_second=200.4, checkpoint_step=600, checkpoint_age_secs=0.25)
FACTS = "training, step 640 of 2500, epoch 6.4, 200 steps/s, saved step 600 0.2 s ago"


class Hand:
    """A clock that is moved by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_pipe_gets_plain_lines() -> None:
    """Without a terminal each act, note and progress is a line, with no control characters."""
    text = StringIO()
    with Display(Console(file=text, width=120), 2500) as display:
        display.act("A training starts")
        display.note("process 1 [bold]")
        display.progress(READING, 6.4)
    assert text.getvalue() == f"\n1. A training starts\n   process 1 [bold]\n   {FACTS}\n"


def test_a_pipe_is_not_flooded() -> None:
    """However often progress comes, a line is written once in `LINE_SECS`."""
    text, clock = StringIO(), Hand()
    with Display(Console(file=text, width=120), 2500, clock) as display:
        display.progress(READING, None)
        display.progress(READING, None)
        clock.now += LINE_SECS
        display.progress(READING, None)
    assert len(text.getvalue().splitlines()) == 2


def test_a_terminal_gets_a_live_bar() -> None:
    """On a terminal progress is drawn in place, and is gone at the end; acts and notes stay."""
    text = StringIO()
    with Display(Console(file=text, width=160, force_terminal=True), 2500) as display:
        display.act("A training starts")
        display.progress(READING, 6.4)
    assert FACTS in text.getvalue()
    assert "A training starts" in text.getvalue()
    assert "\x1b[" in text.getvalue()


def test_what_is_not_known_is_left_out() -> None:
    """A training that is starting has nothing to show but that."""
    text = StringIO()
    with Display(Console(file=text, width=120), 2500) as display:
        display.progress(Reading(), None)
    assert text.getvalue() == "   starting\n"

from __future__ import annotations

from collections.abc import Callable

from tests.cases import each
from tests.tb_plugin.conftest import Bench, a_run

WINDOWED = ("threads", "scalars")


@each("route", ["run", "threads", "checkpoints", "checkpoint_marks", "stalls", "tags", "scalars"])
@each("run", [{}, {"run": ""}])
def test_a_run_must_be_named(bench: Callable[..., Bench], route: str, run: dict[str, str]) -> None:
    """Without its run a route says what is missing."""
    assert "'run' is missing" in bench(a_run()).error(route, 400, tag="loss", **run)


@each(
    "route, arguments, expected",
    [
        ("runs", {"since": "yesterday"}, "a whole number from 0"),
        ("runs", {"since": "-1"}, "a whole number from 0"),
        ("runs", {"since": "1e3"}, "a whole number from 0"),
        ("runs", {"since": "\N{ARABIC-INDIC DIGIT ONE}"}, "a whole number from 0"),
        ("runs", {"since": "9" * 400}, "a whole number from 0"),
        ("checkpoints", {"limit": "0"}, "a whole number from 1 to 10,000"),
        ("checkpoints", {"limit": "10001"}, "a whole number from 1 to 10,000"),
        ("checkpoints", {"offset": "-5"}, "a whole number from 0"),
        ("checkpoints", {"order": "random"}, "one of newest, oldest"),
        ("scalars", {"by": "epoch"}, "one of wall, step, running"),
        ("scalars", {"pixels": "15"}, "a whole number from 16 to 8,192"),
        ("scalars", {"pixels": "8193"}, "a whole number from 16 to 8,192"),
        *((route, {"from_": text}, "a number") for route in WINDOWED for text in ("nan", "inf", "-inf", "1e999", "x")),
        *((route, {"to": text}, "a number") for route in WINDOWED for text in ("nan", "now()")),
        *((route, {"from_": "2", "to": "1"}, "expected it below") for route in WINDOWED),
    ],
)
def test_what_cannot_be_read_is_refused(
    bench: Callable[..., Bench], route: str, arguments: dict[str, str], expected: str
) -> None:
    """A bad argument is a 400 that names it, repeats what came (not all of it), and says what was expected."""
    text = bench(a_run()).error(route, 400, run="a", tag="loss", **arguments)
    assert expected in text
    assert next(iter(arguments)).rstrip("_") in text
    assert len(text) < 250

"""Whatever is asked of the tab: an answer or a refusal of bounded length, never a fault."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from supervisor_core.events.chunk import Chunk
from tb_plugin.backend import ROUTES
from tests.cases import each
from tests.tb_plugin.conftest import HOSTILE_NAMES, LOGDIR, NOW, Bench, FakeSource, a_rich_run, a_run, points, watched

NUMBERS = (
    "nan", "-NaN", "inf", "-inf", "1e400", "-1", "-0", "0", "1.5", "9223372036854775807", "9223372036854775808",
    "-9223372036854775809", "1" * 5_000, "1e-400", "0x10", "1_000", "+1", " 1 ", "\u0661\u0662", "\u00b2", "1,000",
    "\0", "",
)  # fmt: skip
PARAMETERS = {
    "runs": ("since",),
    "fields": (),
    "columns": ("since",),
    "run": (),
    "threads": ("from", "to"),
    "workers": ("from", "to"),
    "checkpoints": ("offset", "limit"),
    "checkpoint_marks": ("from", "to", "pixels"),
    "stalls": (),
    "tags": (),
    "scalars": ("from", "to", "pixels", "smoothing"),
    "compare": (),
    "timeline": ("from", "to"),
    "incidents": ("from", "to"),
    "metrics": (),
    "alerts": (),
}
"""The numbers that each route reads."""
TEXTS = ("", "\0", "../../etc/passwd", "/etc/passwd", "a/../a", "a\r\nX-Y: z", "\ud800", "%00", "x" * 100_000, "a")
QUERIES = {
    "none": "",
    "no name": "=&&&==&;",
    "bytes that are no text": "run=%ff%fe&tag=%ff&%ff=%ff",
    "bad escapes": "run=%&tag=%zz&from=%2",
    "a long value": "run=a&tag=" + "x" * 200_000,
    "a long name": "run=a&" + "x" * 200_000 + "=1",
    "many parameters": "run=a&tag=loss&" + "&".join(f"p{number}=1" for number in range(5_000)),
    "one parameter many times": "run=a&tag=loss&" + "from=1&limit=1&run=b&tag=c&" * 2_000,
    "brackets": "run[]=a&run[0]=b&tag[x][y]=loss&__proto__[a]=b",
}
ANSWERS = {200, 304, 400, 404, 405}
MOST_BYTES = 64 << 10


@pytest.fixture
def tab(bench: Callable[..., Bench]) -> Bench:
    """A run that has some of everything, and scalars."""
    made = bench(a_rich_run())
    loss = points([1, 2, 3], [NOW - 3, NOW - 2, NOW - 1], [0.5, 0.25, float("nan")])
    path = f"{LOGDIR}/a/two"
    made.sources[f"{LOGDIR}/a"] = FakeSource([Chunk(path=path, from_start=True, scalars={"loss": loss})])
    return made


def odd_queries(route: str) -> Iterator[str]:
    """Each odd number in each of a route's numbers, each odd text in each other parameter, and queries odd as such."""
    for name in PARAMETERS.get(route, ()):
        for value in NUMBERS:
            yield f"run=a&tag=loss&key=host&{name}={quote(value)}"
            yield f"run=a&tag=loss&key=host&{name}={quote(value)}&{name}=1"
    for name in ("run", "tag", "by", "order", "key", "path"):
        for value in TEXTS:
            others = {"run": "a", "tag": "loss", "key": "host", name: value}
            yield "&".join(f"{key}={quote(text, errors='surrogatepass')}" for key, text in others.items())
    yield from QUERIES.values()


@each("route", [*ROUTES, "index.js", "none", "run/../run", "../../../../etc/passwd", "%2e%2e/run", ""])
def test_an_odd_request_is_answered_or_refused(tab: Bench, route: str, caplog: pytest.LogCaptureFixture) -> None:
    """Odd values are refused in a sentence, arguments that are not known are passed over, other methods are refused;
    nothing of a request is a path, and no answer is longer than the run is."""
    assert PARAMETERS.keys() == ROUTES.keys()
    codes = set()
    for query in odd_queries(route):
        answer = tab.client.get(tab.address + route, query_string=query)
        assert answer.status_code in ANSWERS, (query[:200], answer.text[:200])
        assert len(answer.data) < MOST_BYTES, query[:200]
        codes.add(answer.status_code)
    for method in ("HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "NONE"):
        answer = tab.client.open(tab.address + route, method=method, query_string="run=a&tag=loss", data=b"x" * 100_000)
        assert answer.status_code in ANSWERS, method
        assert len(answer.data) < MOST_BYTES, method
        assert route not in ROUTES or answer.status_code == 405
    assert route not in ROUTES or 200 in codes
    assert not [record for record in caplog.records if record.exc_info]


DATA_ROUTES = ("run", "threads", "checkpoints", "checkpoint_marks", "stalls", "tags")


@each("name", HOSTILE_NAMES)
def test_any_name_goes_there_and_back(bench: Callable[..., Bench], name: str) -> None:
    """Runs and tags may have any name: answers have it letter by letter, and a request with it finds them."""
    tab = bench(watched(a_run(name), directory=f"{LOGDIR}/a"), watched(a_run("other")))
    made = Chunk(path=f"{LOGDIR}/a/1", from_start=True, scalars={name: points([1], [NOW], [0.5])})
    tab.sources[f"{LOGDIR}/a"] = FakeSource([made])
    listed = {row["run"] for row in tab.json("runs")["runs"]}
    assert listed == {name, "other"}
    assert tab.json("run", run=name)["run"] == name
    for route in DATA_ROUTES:
        assert tab.get(route, run=name).status_code == 200
    assert [item["tag"] for item in tab.json("tags", run=name)["tags"]] == [name]
    assert tab.columns("scalars", run=name, tag=name)[1]["value"] == [0.5]


def test_numbers_that_json_cannot_hold_are_null(bench: Callable[..., Bench]) -> None:
    """NaN and infinities of a broken run are null wherever they turn up, and columns have them as they are."""
    tab = bench(a_run(steps_per_sec=math.nan, last_event_at=math.inf, rates=(math.nan, 1.0)))
    (row,) = tab.json("runs")["runs"]
    assert (row["steps_per_sec"], row["last_event"], row["rates"]) == (None, None, [None, 1.0])
    values: list[Any] = [math.inf, -math.inf, math.nan]
    made = Chunk(path=f"{LOGDIR}/a/1", from_start=True, scalars={"loss": points([1, 2, 3], [NOW] * 3, values)})
    tab.sources[f"{LOGDIR}/a"] = FakeSource([made])
    assert tab.json("tags", run="a")["tags"][0]["last_value"] is None
    assert tab.columns("scalars", run="a", tag="loss")[1]["value"][:2] == [math.inf, -math.inf]


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


@each("name", HOSTILE_NAMES)
def test_errors_repeat_names_as_text(bench: Callable[..., Bench], name: str) -> None:
    """What came is repeated as JSON that no browser takes for a page."""
    answer = bench(a_run()).get("run", run=name)
    assert answer.status_code == 404
    assert answer.content_type == "application/json"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.data.isascii()


def test_bytes_that_are_no_text_are_no_name(bench: Callable[..., Bench]) -> None:
    """A query in bytes that are no UTF-8 finds nothing, and breaks nothing."""
    tab = bench(a_run("caf\udce9"))
    assert tab.client.get(tab.address + "run?run=caf%E9").status_code == 404
    assert tab.json("run", run="caf\\udce9")["run"] == "caf\\udce9"

"""Whatever is asked of the tab: an answer or a refusal of bounded length, never a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest

from supervisor_core.events.chunk import Chunk
from tb_plugin.backend import ROUTES
from tests.cases import each
from tests.tb_plugin.conftest import LOGDIR, NOW, Bench, FakeSource, a_rich_run, points

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

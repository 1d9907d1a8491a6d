"""http_api.md and the routes say the same: every route, every field, both ways."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tb_plugin
from supervisor_core.events.chunk import Chunk, FileFacts, Problem
from tb_plugin.backend import ROUTES
from tests.cases import each
from tests.tb_plugin.conftest import LOGDIR, NOW, Bench, FakeSource, a_rich_run, points, watched

PAGE = (Path(tb_plugin.__file__).parent / "http_api.md").read_text(encoding="utf-8")
INSPECT = Path(__file__).parents[2] / "docs" / "inspect.md"
KEYED_BY_DATA = ("stacks", "secs", "dropped", "evidence")

SECTIONS = {
    title: body
    for title, body in re.findall(r"^## `(\w+)[^\n]*`\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
}


def keys(value: Any, under: str = "") -> Iterator[str]:
    """The names of fields in an answer, wherever in it; not those that are data themselves."""
    if isinstance(value, dict):
        for name, item in value.items():
            if under not in KEYED_BY_DATA:
                yield name
            yield from keys(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from keys(item)


def published(*tables: str) -> set[str]:
    """The fields in these tables of docs/inspect.md."""
    text = INSPECT.read_text(encoding="utf-8")
    found: set[str] = set()
    for table in tables:
        section = text.split(f"\n## `{table}`\n", 1)[1].split("\n## ", 1)[0]
        found |= set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE))
    return found


@pytest.fixture
def tab(bench: Callable[..., Bench]) -> Bench:
    """A run that has some of everything, a damaged file too."""
    problem = Problem(kind="telemetry", offset=3, text="no JSON")
    file = FileFacts(
        path=f"{LOGDIR}/a/1",
        size_bytes=9,
        read_bytes=9,
        records=1,
        corrupt_records=0,
        torn_bytes=0,
        problems=(problem,),
    )
    made = bench(watched(a_rich_run(), files=(file,)))
    chunk = Chunk(path=f"{LOGDIR}/a/1", from_start=True, scalars={"loss": points([1], [NOW], [1.0])})
    made.sources[f"{LOGDIR}/a"] = FakeSource([chunk])
    return made


def test_every_route_is_described() -> None:
    """The page describes the routes that are served, and no others."""
    assert set(SECTIONS) == set(ROUTES)


@pytest.mark.skipif(not INSPECT.exists(), reason="docs/ is not here")
@each(
    "route, tables",
    [
        ("runs", ()),
        (
            "run",
            (
                "sessions",
                "restarts",
                "recoveries",
                "notices",
                "checkpoints",
                "goodput",
                "advice",
                "silences",
                "at_risk",
                "nonfinite_tags",
            ),
        ),
        ("threads", ()),
        ("workers", ("workers",)),
        ("checkpoints", ("checkpoints",)),
        ("stalls", ("stalls",)),
        ("tags", ()),
        ("incidents", ()),
    ],
)
def test_every_field_is_described(bench: Callable[..., Bench], tab: Bench, route: str, tables: tuple[str, ...]) -> None:
    """What an answer holds is on the page, or in the tables of docs/inspect.md that it points to; and the other way."""
    section = SECTIONS[route]
    described = set(re.findall(r'"(\w+)":', section))
    besides = section.partition("besides")[2] or section.partition("docs/inspect.md, and")[2]
    described |= set(re.findall(r"[`\"](\w+)[`\"]", besides))
    if route == "run":
        described |= {"offset", "kind", "text", "reason"}  # in the tables' own cells
    served = set(keys(tab.json(route, run="a")))
    if route == "runs":
        served |= set(keys(bench(read=False).json("runs")))  # while it is being read
    assert served <= described | published(*tables), "served, and not described"
    assert described <= served, "described, and not served"
    assert published(*tables) <= served


def test_every_column_is_described(tab: Bench) -> None:
    """The columns and the header of binary answers are those of the page."""
    marks, _ = tab.columns("checkpoint_marks", run="a")
    listed = SECTIONS["checkpoint_marks"].split("Columns: ")[1]
    assert re.findall(r"`(\w+)`", listed.split("The i-th")[0]) == marks["columns"]
    assert set(keys(marks)) == set(re.findall(r'"(\w+)":', SECTIONS["checkpoint_marks"])) | {"v", "length", "columns"}
    header, _ = tab.columns("scalars", run="a", tag="loss")
    listed = SECTIONS["scalars"].split("columns: ")[1].split("The\nheader")[0]
    assert re.findall(r"`(\w+)`", listed)[:4] == header["columns"]
    besides = set(re.findall(r'"(\w+)":', SECTIONS["scalars"]))
    assert set(keys(header)) == besides | {"v", "length", "columns"}
    header, _ = tab.columns("timeline")
    section = SECTIONS["timeline"]
    listed = section.split("columns: ")[1].split("The first")[0]
    assert [name for name in re.findall(r"`(\w+)`", listed) if name not in ("runs", "kinds")] == header["columns"]
    assert set(keys(header)) == set(re.findall(r'"(\w+)":', section)) | {"v", "length", "columns"}
    assert header["kinds"] == re.findall(r"\w+", section.split('"kinds": [')[1].split("]")[0])


def test_errors_are_described(tab: Bench) -> None:
    """Each status that a refusal can have is on the page."""
    listed = {int(code) for code in re.findall(r"^\* (\d{3}):", PAGE, flags=re.MULTILINE)}
    assert listed == {400, 404, 405, 500, 503}
    assert tab.get("run", run="no such run").status_code in listed

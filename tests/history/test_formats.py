"""`TableFile`: one table in one file, there as a whole or not at all; `ScalarPass`: what is in it of scalars."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if sys.platform == "win32":
    pytest.skip("works on Linux and macOS", allow_module_level=True)

from supervisor_core.base.errors import EventsError
from supervisor_core.events import index
from supervisor_core.events.writer import EventsWriter
from supervisor_core.history.formats import Coded, TableFile, pyarrow
from supervisor_core.history.rows import HistoryColumn, Table
from supervisor_core.history.scalars import RunPoints, ScalarPass
from tests.cases import each
from tests.conftest import StillClock

CELLS = json.loads((Path(__file__).parents[1] / "hostile" / "cells.json").read_text(encoding="utf-8"))
"""Texts, and how a CSV has them: the tab's, too (``frontend/test``)."""
ROWS: list[tuple[Any, ...]] = [
    ("a", 1, 86_400_000_000, 0.5, True, (("team", 'a "b", c'),)),
    ("b\n", None, None, None, None, None),
    ("=c", -(2**63), 0, -1e300, False, ()),
]


@pytest.fixture(scope="module")
def table() -> Table:
    """A table of saves, with a column of each type."""
    return Table(
        name="saves",
        columns=(
            HistoryColumn("run", "text", "The run."),
            HistoryColumn("step", "whole", "Its step."),
            HistoryColumn("at", "time", "When."),
            HistoryColumn("secs", "number", "How long it took, in seconds."),
            HistoryColumn("ok", "truth", "Whether it was good."),
            HistoryColumn("labels", "labels", "Whose it was."),
        ),
    )


@pytest.fixture(params=["parquet", "csv", "jsonl"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file of each format."""
    if request.param == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    return tmp_path / f"saves.{request.param}"


def test_a_file_has_its_rows(file: Path, table: Table) -> None:
    """Every type, unknown values, and names that are no plain words."""
    with TableFile(str(file), table) as writing:
        writing.write_rows(iter(ROWS))
        assert not file.exists()
    assert writing.rows == 3 and os.listdir(file.parent) == [file.name]
    if file.suffix == ".parquet":
        import pyarrow.parquet

        read = pyarrow.parquet.read_table(file)
        assert [read.schema.field(place).name for place in range(6)] == [column.name for column in table.columns]
        assert read.schema.field("at").metadata[b"description"] == b"When."
        assert str(read.schema.field("at").type) == "timestamp[us, tz=UTC]"
        assert read["labels"].to_pylist() == [[("team", 'a "b", c')], None, []]
        assert read["at"].cast("int64").to_pylist() == [86_400_000_000, None, 0]
        assert read["step"].to_pylist() == [1, None, -(2**63)]
    elif file.suffix == ".csv":
        assert file.read_text() == (
            "run,step,at,secs,ok,labels\n"
            '"a",1,1970-01-02T00:00:00.000000Z,0.5,true,"{""team"": ""a \\""b\\"", c""}"\n'
            '"b\n",,,,,\n'
            '"\'=c",-9223372036854775808,1970-01-01T00:00:00.000000Z,-1e+300,false,"{}"\n'
        )
    else:
        first, second, third = map(json.loads, file.read_text().splitlines())
        assert first["labels"] == {"team": 'a "b", c'} and first["at"] == "1970-01-02T00:00:00.000000Z"
        assert second == {"run": "b\n", "step": None, "at": None, "secs": None, "ok": None, "labels": None}
        assert third["secs"] == -1e300 and third["step"] == -(2**63)


def test_no_text_is_a_formula_in_a_spreadsheet(tmp_path: Path, table: Table) -> None:
    """Neither at the begin of a cell nor at that of a line which the text itself would begin; numbers stay numbers."""
    file = tmp_path / "saves.csv"
    names, shown = zip(*((cell["text"], cell["shown"]) for cell in CELLS), strict=True)
    with TableFile(str(file), table) as writing:
        writing.write_rows((name, -1, 0, -0.5, True, (("=a", "=b"),)) for name in names)
        codes = np.arange(len(names), dtype=np.int32)
        others: list[Any] = [[None] * len(names)] * (len(table.columns) - 1)
        writing.write([Coded(codes, names), *others])
    with open(file, encoding="utf-8", newline="") as reading:
        rows = list(csv.reader(reading))[1:]
    for separator in ";\t":
        with open(file, encoding="utf-8", newline="") as reading:
            cells = [cell for row in csv.reader(reading, delimiter=separator) for cell in row]
        assert not [cell for cell in cells if cell.lstrip(' "').startswith(tuple("=+-@\uff1d"))]
    assert [row[0] for row in rows] == [*shown, *shown]
    assert {tuple(row[1:]) for row in rows[: len(names)]} == {
        ("-1", "1970-01-01T00:00:00.000000Z", "-0.5", "true", '{"=a": "=b"}')
    }


def test_an_error_leaves_what_was_there(file: Path, table: Table) -> None:
    """And nothing else."""
    file.write_text("before")

    def rows() -> Iterator[tuple[Any, ...]]:
        yield from ROWS * 4_000
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"), TableFile(str(file), table) as writing:
        writing.write_rows(rows())
    assert file.read_text() == "before" and os.listdir(file.parent) == [file.name]


def test_one_export_at_a_time(tmp_path: Path, table: Table) -> None:
    """A second one to the same file is an error; it begins anew once the first has ended."""
    file = str(tmp_path / "saves.csv")
    with TableFile(file, table) as first:
        with pytest.raises(EventsError, match="is written by another export"):
            TableFile(file, table)
        first.write_rows(ROWS[:1])
    with TableFile(file, table) as second:
        second.write_rows(ROWS[2:])
    assert "=c" in Path(file).read_text() and "team" not in Path(file).read_text()


def test_a_kill_leaves_what_was_there(file: Path, table: Table) -> None:
    """What a killed export leaves is emptied by the next one, which needs no cleaning up."""
    file.write_text("before")
    count = 140_000 if file.suffix == ".parquet" else 2_000
    code = f"""
import sys
from supervisor_core.history.formats import TableFile
from supervisor_core.history.rows import CHECKPOINTS
rows = [("l", "r", "s", 0, "p", 1, "timer", 5, 0.1, 0.1, True, None, None)] * {count}
with TableFile({str(file)!r}, CHECKPOINTS) as file:
    file.write_rows(rows)
    print("written", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"written\n"
        child.send_signal(signal.SIGKILL)
    part = file.parent / f".{file.name}.part"
    assert file.read_text() == "before" and part.stat().st_size > 0
    with TableFile(str(file), table) as writing:
        writing.write_rows(ROWS)
    assert os.listdir(file.parent) == [file.name]
    fresh = file.with_name(f"fresh{file.suffix}")
    with TableFile(str(fresh), table) as writing:
        writing.write_rows(ROWS)
    assert file.read_bytes() == fresh.read_bytes()


@each("kind", ["link", "hard link"])
def test_nothing_is_written_through_a_link(tmp_path: Path, table: Table, kind: str) -> None:
    """Whoever can put one there must not have a file of somebody else emptied."""
    (tmp_path / "theirs").write_text("precious")
    make = os.symlink if kind == "link" else os.link
    make(tmp_path / "theirs", tmp_path / ".saves.csv.part")
    raises = nullcontext() if kind == "hard link" else pytest.raises(EventsError, match="link")
    with raises, TableFile(str(tmp_path / "saves.csv"), table) as file:
        file.write_rows(ROWS)
    assert (tmp_path / "theirs").read_text() == "precious"


@each("make", [os.mkfifo, os.mkdir])
def test_what_is_in_the_way_is_named(tmp_path: Path, table: Table, make: Callable[[Path], None]) -> None:
    """It is not the file that was asked for, and a listing does not show it."""
    make(tmp_path / ".saves.csv.part")
    with pytest.raises(EventsError, match=r"/\.saves\.csv\.part is in the way \(.*delete it"):
        TableFile(str(tmp_path / "saves.csv"), table)


def points(logdir: Path, most_held: int) -> dict[str, list[tuple[str, int, float]]]:
    """The points of each run, in their order."""
    found: dict[str, list[tuple[str, int, float]]] = {}

    def take(run: RunPoints) -> None:
        found[run.watched.run.name] = [
            (tag, *point)
            for _, by_tag in run.pieces
            for tag, some in by_tag.items()
            for point in zip(some.steps.tolist(), some.values.tolist(), strict=True)
        ]

    ScalarPass(str(logdir), most_held=most_held).read(take)
    return found


def test_what_cannot_be_held_is_read_again(tmp_path: Path) -> None:
    """The same points in the same order, however many of a run are held; and those of the run after it."""
    for name, count in (("a", 300), ("b", 20)):
        for at in (0.0, 1.0):
            with EventsWriter(tmp_path / name, clock=StillClock(1.7e9 + at)) as writer:
                for step in range(count):
                    writer.scalar("loss", step / 4, step)
                    writer.scalar("acc", step / 8, step)
    held = points(tmp_path, 10_000)
    assert [len(found) for found in held.values()] == [1200, 80]
    assert points(tmp_path, 500) == points(tmp_path, 0) == held


def test_a_file_that_is_replaced_while_it_is_read_again_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first points have been handed out: they cannot be taken back."""
    monkeypatch.setattr(index, "PIECE_BYTES", 300)
    with EventsWriter(tmp_path, clock=StillClock(1.7e9)) as writer:
        for step in range(100):
            writer.scalar("loss", 1.0, step)
    (file,) = tmp_path.iterdir()

    def take(run: RunPoints) -> None:
        next(run.pieces)
        file.write_bytes(file.read_bytes()[:250])
        list(run.pieces)

    with pytest.raises(EventsError, match="was replaced while it was read"):
        ScalarPass(str(tmp_path), most_held=0).read(take)


def test_without_pyarrow_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the package, the command and the other formats."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(EventsError, match=r"or name a .csv: .*pip install .*'pyarrow>=16'"):
        pyarrow("name a .csv")


def test_points_of_a_file_that_is_replaced_while_it_is_held_are_those_of_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was held of it before is let go of."""
    monkeypatch.setattr(index, "PIECE_BYTES", 300)
    for name, value in (("run", 1.0), ("other", 2.0)):
        with EventsWriter(tmp_path / name, clock=StillClock(1.7e9)) as writer:
            for step in range(100):
                writer.scalar("loss", value, step)
    (file,), (other,) = (tmp_path / "run").iterdir(), (tmp_path / "other").iterdir()
    found: list[float] = []

    def take(run: RunPoints) -> None:
        for _, by_tag in run.pieces:
            found.extend(by_tag["loss"].values.tolist())

    def replace(points: int) -> None:
        if points and other.exists():
            other.replace(file)

    ScalarPass(str(tmp_path / "run")).read(take, on_points=replace)
    assert set(found) == {2.0} and len(found) <= 100

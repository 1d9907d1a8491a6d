"""What the tests of the history share: a small table with a column of each type."""

from __future__ import annotations

import pytest

from supervisor_core.history.formats import FileFormat, JsonLines, Parquet
from supervisor_core.history.table import HistoryColumn, HistoryTable


@pytest.fixture(scope="session")
def table() -> HistoryTable:
    """A table of saves."""
    return HistoryTable(
        name="saves",
        day="at",
        key=("run", "step"),
        columns=(
            HistoryColumn("run", "text", "The run."),
            HistoryColumn("step", "whole", "Its step."),
            HistoryColumn("at", "time", "When."),
            HistoryColumn("secs", "number", "How long it took, in seconds."),
            HistoryColumn("ok", "truth", "Whether it was good."),
            HistoryColumn("labels", "labels", "Whose it was."),
        ),
    )


@pytest.fixture(params=["jsonl", "parquet"])
def form(request: pytest.FixtureRequest) -> FileFormat:
    """Each format."""
    if request.param == "jsonl":
        return JsonLines()
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    return Parquet()

"""One of several ranks hangs: the run says which one, by trials as `make faults` makes them by the hundred."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")

pytestmark = pytest.mark.timeout(400)
DECIDED = ("user code", "loader", "save", "evaluation")
"""Of a rank alone in another collective operation than one other nothing is known."""


def test_the_rank_that_hangs_is_named(tmp_path: Path) -> None:
    """In the program's code, its loader, a save, an evaluation; in a collective it may be undecided."""
    path = tmp_path / "rows.json"
    asked = ["--only", "culprit", "--trials", "1", "--jobs", "5", "--patience", "6", "--seed", "4", "--json", str(path)]
    command = [sys.executable, "-m", "benchmarks.faults", *asked]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert path.exists(), done.stderr
    rows: list[dict[str, Any]] = json.loads(path.read_text())
    assert [row["trials"] for row in rows] == [1] * 5
    for row in rows:
        (outcome,) = row["outcomes"]
        assert row["survived"] == 1, (outcome, done.stderr)
        assert outcome["note"] is None or row["fault"].rpartition(": ")[2] not in DECIDED, outcome

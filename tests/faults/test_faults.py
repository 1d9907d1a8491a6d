"""A few trials of the fault bench, as `make faults` makes them by the hundred: nothing is lost, nothing is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(1200)

FAMILIES = ("kills", "placed", "writes", "damages", "zombies", "forks", "signals", "clocks", "retention", "disks")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The rows of a quick run of the bench."""
    path = tmp_path_factory.mktemp("faults") / "rows.json"
    asked = ["--quick", "--seed", "9", "--jobs", "2", "--patience", "12", "--json", str(path)]
    command = [sys.executable, "-m", "benchmarks.faults", *asked]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert path.exists(), done.stderr
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_every_trial_is_survived(rows: list[dict[str, Any]], family: str) -> None:
    """Each fault of a family was tried, and every trial left what it must leave."""
    ours = [row for row in rows if row["family"] == family]
    assert ours
    if skipped := ours[0]["skipped"]:
        pytest.skip(skipped)
    for row in ours:
        assert row["trials"] > 0
        assert row["survived"] == row["trials"], row["outcomes"]

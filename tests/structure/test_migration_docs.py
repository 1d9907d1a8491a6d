"""What docs/migration.md says is kept, and what is different, is shown by tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "migration.md").read_text("utf-8")


def test_each_statement_names_a_test_that_there_is() -> None:
    """Tables and prose name their tests; none of them is missing."""
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    tests = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
    }
    assert len(named) >= 14
    assert named <= tests, named - tests


def test_each_row_of_a_table_names_a_test() -> None:
    """A row without a test would be a promise that nothing holds."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.endswith("| test |")]
    assert rows
    assert [row for row in rows if not re.search(r"\| `test_\w+` \|$", row)] == []

"""What docs/migration.md says is kept, and what is different, is shown by tests that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "migration.md").read_text("utf-8")
BACKED = json.loads((ROOT / "tests" / "structure" / "backed.json").read_text("utf-8"))
MIGRATED, EXPLAINED = BACKED["migration.md"], BACKED["migration.md, sentences of a section"]


def test_each_statement_has_a_test_that_there_is() -> None:
    """Those of the lists, and those of the sentences; none of the tests is missing."""
    named = {*MIGRATED.values(), *(name for names in EXPLAINED.values() for name in names)}
    tests = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
    }
    assert named <= tests, named - tests


def test_each_item_of_a_list_has_a_test() -> None:
    """In the order of the page; and a section whose sentences have tests is there."""
    assert re.findall(r"^\* (.+)$", PAGE, re.MULTILINE) == list(MIGRATED)
    titles = re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)
    assert [title for title in EXPLAINED if title not in titles] == []

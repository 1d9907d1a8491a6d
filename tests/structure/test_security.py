"""docs/security.md promises nothing that no test holds."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
TEXT = PAGE.read_text(encoding="utf-8").partition("## Fuzzing")[0] if PAGE.is_file() else ""

pytestmark = pytest.mark.skipif(not TEXT, reason="the page is not part of what is tested here")


def rows() -> list[list[str]]:
    """The cells of each row of the page's tables, without their heads."""
    lines = [line for line in TEXT.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if not line.startswith("|---")]
    return [row for row in cells if row[-1] != "test"]


def test_every_row_names_tests_that_exist() -> None:
    """Each row ends with the tests that hold it, by file and name."""
    assert len(rows()) > 20
    for row in rows():
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row[-1])
        assert named, row
        for file, name in named:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{file}::{name}"


def test_every_row_has_all_its_cells() -> None:
    """A row says for each reader what happens, or that nothing does."""
    assert {len(row) for row in rows()} == {3, 5}
    assert all(cell for row in rows() for cell in row)

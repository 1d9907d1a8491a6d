"""README.md, the site's home and the package's page are one text, and what it shows is right."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
MOST_WORDS = 520


@pytest.fixture
def front_page(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script that writes the other two."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import front_page

    return front_page


def test_the_home_and_the_packages_page_are_written_from_the_readme(front_page: Any) -> None:
    """Where they differ, scripts/front_page.py writes them again."""
    stale = [path.name for path, text in front_page.pages().items() if path.read_text("utf-8") != text]
    assert stale == [], "run .venv/bin/python scripts/front_page.py"


def test_the_package_is_described_by_the_first_sentence() -> None:
    """A package index shows it beside the name."""
    sentence = README.split("\n\n")[1]
    assert f'\ndescription = "{sentence}"\n' in (ROOT / "pyproject.toml").read_text("utf-8")


def test_the_first_page_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read in two minutes."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    from test_docs_size import words

    assert words(README) <= MOST_WORDS


def test_a_framework_is_one_row_with_a_line_of_python() -> None:
    """Each adapter has one, and the line is an expression or the head of a block."""
    (table,) = re.findall(r"\n\| training \| the line \|\n\|---\|---\|\n((?:\|.*\n)+)", README)
    lines = dict(re.findall(r"^\| \[[^]]+\]\(docs/(\w+)\.md\) \| `([^`]+)` \|$", table, re.MULTILINE))
    assert set(lines) == {"torch", "lightning", "transformers", "keras", "jax", "supervise"}
    for line in lines.values():
        ast.parse(f"{line}\n    pass" if line.endswith(":") else line)

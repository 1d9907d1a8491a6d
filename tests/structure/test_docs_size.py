"""How much a user has to read: the words of the pages, of a paragraph, and of a cell of a table.

As a program it lists what is too long: ``python tests/structure/test_docs_size.py [docs/PAGE.md ...]``
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.cases import each

ROOT = Path(__file__).parents[2]
MOST_WORDS, MOST_WORDS_OF_A_PARAGRAPH, MOST_WORDS_OF_A_CELL, MOST_TERMS = 45_000, 90, 25, 24
FOR_CONTRIBUTORS = "For contributors"
"""The part of the site that a user does not have to read; its title in ``mkdocs.yml``."""


_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)


def words(text: str) -> int:
    """The number of words: what stands between spaces and has a letter or a digit. Addresses of links are none."""
    return sum(re.search(r"\w", word) is not None for word in _LINK.sub(r"\1", text).split())


def pages_of(nav: list[Any], title: str | None = None) -> list[tuple[str | None, str]]:
    """The pages of the site: the part that each is in, and its name."""
    found: list[tuple[str | None, str]] = []
    for entry in nav:
        for name, value in entry.items():
            found += pages_of(value, title or name) if isinstance(value, list) else [(title, value)]
    return found


def user_pages() -> list[Path]:
    """The pages that a user meets: all of the site, but the part for contributors."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    return [
        ROOT / "docs" / name
        for part, name in pages_of(nav)
        if part not in (FOR_CONTRIBUTORS, "Project") and (ROOT / "docs" / name).exists()
    ]


def too_long(page: Path) -> list[str]:
    """The paragraphs and cells of a page that are too long, each with its number of words and its beginning."""
    text = _FENCE.sub("", page.read_text("utf-8"))
    found: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        lines = block.splitlines()
        rows = [line for line in lines if line.lstrip().startswith("|")]
        for row in rows:
            cells = (cell.strip() for cell in re.split(r"(?<!\\)\|", row))
            found += [_said(cell, "cell") for cell in cells if words(cell) > MOST_WORDS_OF_A_CELL]
        if lines and all(line.startswith("    ") for line in lines):
            continue  # what a command prints
        items = re.split(
            r"^\s*(?:[*-]|\d+\.) ", "\n".join(line for line in lines if line not in rows), flags=re.MULTILINE
        )
        found += [_said(item, "paragraph") for item in items if words(item) > MOST_WORDS_OF_A_PARAGRAPH]
    return found


def _said(text: str, kind: str) -> str:
    return f"{kind} of {words(text)} words: {' '.join(text.split())[:70]}"


def terms_of(glossary: str) -> list[str]:
    """The terms of the glossary: the first cells of its tables."""
    rows = re.findall(r"^\| ([^|]+?) \|", glossary, re.MULTILINE)
    return [row for row in rows if row != "term"]


PAGES = [ROOT / "README.md", *user_pages()]


@each("page", PAGES)
def test_no_paragraph_and_no_cell_is_long(page: Path) -> None:
    """Of what a user reads, each can be taken in at a look."""
    assert too_long(page) == []


def test_a_user_meets_few_words() -> None:
    """All pages together, but those for contributors."""
    assert sum(words(page.read_text("utf-8")) for page in user_pages()) <= MOST_WORDS


def test_the_glossary_has_few_terms() -> None:
    """One for each thing, each once."""
    terms = terms_of((ROOT / "docs" / "glossary.md").read_text("utf-8"))
    assert 10 < len(terms) == len(set(terms)) <= MOST_TERMS


if __name__ == "__main__":
    pages = [Path(name) for name in sys.argv[1:]] or user_pages()
    for path in pages:
        print(f"{words(path.read_text('utf-8')):6} {path.name}")
        for line in too_long(path):
            print("          ", line)
    print(f"{sum(words(path.read_text('utf-8')) for path in pages):6} words in {len(pages)} pages")

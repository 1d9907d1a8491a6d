#!/usr/bin/env python3
"""Write the site's home and the package's page from README.md: one text, with links that hold in each place.

scripts/front_page.py            write docs/index.md and docs/package-index.md
scripts/front_page.py --check    exit status 1 where one is not what this would write

A package index holds no other page and no picture: there links are plain text. The site's home ends with a list of all
pages, from mkdocs.yml.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
WRITTEN = "<!-- scripts/front_page.py writes this from README.md -->\n\n"
_LINK = re.compile(r"(!?)\[([^]]*)\]\((?!https?://)([^)#]*)(#[^)]*)?\)")


def home(readme: str, nav: list[dict[str, Any]]) -> str:
    """Return docs/index.md: the text, and a list of all pages by kind."""

    def rebase(link: re.Match[str]) -> str:
        image, text, target, anchor = link[1], link[2], link[3], link[4] or ""
        path = posixpath.relpath(target, "docs")
        return f"{image}[{text}]({'' if path == 'index.md' else path}{anchor})"

    parts = [WRITTEN + _LINK.sub(rebase, readme), "## All pages\n"]
    for entry in nav:
        ((kind, pages),) = entry.items()
        if isinstance(pages, list):
            listed = [f"* [{title}]({name})" for page in pages for title, name in page.items() if _exists(name)]
            parts.append(f"### {kind}\n\n" + "\n".join(listed) + "\n")
    return "\n".join(parts)


def package_page(readme: str) -> str:
    """Return docs/package-index.md: the text without pictures and links."""
    text = re.sub(r"^!\[.*\n\n", "", readme, flags=re.MULTILINE)
    return WRITTEN + _LINK.sub(lambda link: link[2], text)


def _exists(name: str) -> bool:
    return (ROOT / "docs" / name).exists()  # three pages of the site lie beside docs/: README.md links to them


def pages() -> dict[Path, str]:
    """Return each file and what is to be in it."""
    readme = (ROOT / "README.md").read_text("utf-8")
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    docs = ROOT / "docs"
    return {
        docs / "index.md": home(readme, nav),
        docs / "package-index.md": package_page(readme),
    }


def main() -> None:
    """Write the pages, or compare them."""
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text("utf-8") != text]
    if sys.argv[1:] == ["--check"]:
        names = ", ".join(path.name for path in stale)
        raise SystemExit(f"{names}: not as README.md and mkdocs.yml say: run scripts/front_page.py" if stale else 0)
    for path in stale:
        path.write_text(pages()[path], "utf-8")


if __name__ == "__main__":
    main()

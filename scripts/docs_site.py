"""What MkDocs needs to know of this repository: pages beside docs/, and links from docs/ to files that are no pages.

``CHANGELOG.md``, ``CONTRIBUTING.md`` and ``SECURITY.md`` become pages of the site. A link to any other file outside of
docs/ becomes that file's path, since the site does not hold the repository; one that does not exist stays a link, so
that a strict build fails.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
BESIDE = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security-policy.md"}
"""Pages beside docs/ -> their names on the site."""

_LINK = re.compile(r"(?<!!)\[([^]]*)\]\((?!https?://)([^)#]*)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages beside docs/."""
    for source, name in BESIDE.items():
        files.append(File.generated(config, name, content=_relinked((ROOT / source).read_text("utf-8"), "")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Adapt the links of a page of docs/."""
    return markdown if page.file.src_uri in BESIDE.values() else _relinked(markdown, "docs")


def _relinked(markdown: str, directory: str) -> str:
    def relink(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        path = posixpath.normpath(posixpath.join(directory, target)) if target else ""
        if path in BESIDE:
            return f"[{text}]({BESIDE[path]}{anchor})"
        if path.startswith("docs/"):
            return f"[{text}]({path.removeprefix('docs/')}{anchor})"
        return f"{text} (`{path}`)" if path and (ROOT / path).exists() else link[0]

    return _LINK.sub(relink, markdown)

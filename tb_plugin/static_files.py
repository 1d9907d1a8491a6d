"""The frontend's files, read whole when the plugin starts: a path of a request is looked up among them, not on disk."""

from __future__ import annotations

import json
import mimetypes
import re
from pathlib import Path

from tb_plugin.http import IMMUTABLE, Answer

BUILT = Path(__file__).with_name("static")
ENTRY = "index.js"

_HASHED = re.compile(r"-[A-Z0-9]{8}\.[a-z0-9.]+$")
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".map": "application/json"}
_REVALIDATED = "no-cache"

NOT_BUILT = (
    "This tab was left out when the package was installed (tab=no), or has not been built. Install the package again "
    "without tab=no, or from a wheel that has the tab; in a clone of the repository, run: make frontend."
)


def static_files(directory: Path = BUILT) -> dict[str, Answer]:
    """Return an answer for each file below a directory, by its name relative to that.

    Args:
        directory: the built frontend; where it is missing, ``index.js`` shows how to build it.
    """
    answers = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if not path.is_file() or "*" in name or path.suffix == ".gz":
            continue
        content_type = _TYPES.get(path.suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
        cache = IMMUTABLE if _HASHED.search(name) else _REVALIDATED
        answers[name] = Answer(body=path.read_bytes(), content_type=content_type, cache=cache)
    return answers if ENTRY in answers else {ENTRY: script_that_says(NOT_BUILT)}


def script_that_says(text: str) -> Answer:
    """Return an ``index.js`` that shows a text instead of the tab."""
    body = f"""\
export function render() {{
  const text = document.createElement("p");
  text.setAttribute("role", "alert");
  text.style.cssText = "margin:2em;max-width:50em;font:16px/1.5 sans-serif";
  text.textContent = {json.dumps(text)};
  document.body.replaceChildren(text);
}}
"""
    return Answer(body=body.encode(), content_type=_TYPES[".js"], cache=_REVALIDATED)

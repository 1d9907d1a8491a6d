"""The tab as TensorBoard knows it: its name, its files, and the tab that says why it could not start.

The frontend's files are read whole when the plugin starts: a path of a request is looked up among them, never on disk.
"""

from __future__ import annotations

import json
import mimetypes
import re
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tensorboard.plugins import base_plugin
from werkzeug.wrappers import Request

from tb_plugin.http import IMMUTABLE, Answer, endpoint, unavailable

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

PLUGIN_NAME = "supervisor"


class Tab(base_plugin.TBPlugin):
    """A TensorBoard plugin in an iframe."""

    plugin_name = PLUGIN_NAME

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """Return the tab's name and where its script is."""
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="Supervisor")


class FailedPlugin(Tab):
    """Answers every request with the reason.

    Args:
        problem: the reason, as shown in the tab.
    """

    def __init__(self, problem: str) -> None:
        self._text = f"The Supervisor tab could not start: {problem}"

    def is_active(self) -> bool:
        """Return True, so that the tab with the reason is shown."""
        return True

    def get_plugin_apps(self) -> dict[str, WSGIApplication]:
        """Return two apps: the script that shows the reason, and a refusal of every other path."""
        return {f"/{ENTRY}": endpoint(lambda request: _script_that_says(self._text)), "/*": endpoint(self._refuse)}

    def _refuse(self, request: Request) -> NoReturn:
        raise unavailable("failed", self._text)


BUILT = Path(__file__).with_name("static")
ENTRY = "index.js"

_HASHED = re.compile(r"-[A-Z0-9]{8}\.[a-z0-9.]+$")
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".map": "application/json"}
_REVALIDATED = "no-cache"

_NOT_BUILT = (
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
    return answers if ENTRY in answers else {ENTRY: _script_that_says(_NOT_BUILT)}


def _script_that_says(text: str) -> Answer:
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

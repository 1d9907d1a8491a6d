"""`FailedPlugin`: the tab where the plugin could not start. It says why, and leaves TensorBoard alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from werkzeug.wrappers import Request

from tb_plugin.answers import Answer, endpoint, unavailable
from tb_plugin.static_files import ENTRY, script_that_says
from tb_plugin.tab import Tab

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


class FailedPlugin(Tab):
    """Answers every request with the reason.

    Args:
        problem: what is wrong, for people.
    """

    def __init__(self, problem: str) -> None:
        self._text = f"The Supervisor tab could not start: {problem}"

    def is_active(self) -> bool:
        """Return True: somebody should see it."""
        return True

    def get_plugin_apps(self) -> dict[str, WSGIApplication]:
        """Return the script that shows the reason, and the refusal of everything else."""
        return {f"/{ENTRY}": endpoint(self._script), "/*": endpoint(self._refuse)}

    def _script(self, request: Request) -> Answer:
        return script_that_says(self._text)

    def _refuse(self, request: Request) -> NoReturn:
        raise unavailable("failed", self._text)

"""The tab as TensorBoard knows it: its name, and the tab that says why it could not start."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tensorboard.plugins import base_plugin
from werkzeug.wrappers import Request

from tb_plugin.http import endpoint, unavailable
from tb_plugin.static_files import ENTRY, script_that_says

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
        return {f"/{ENTRY}": endpoint(lambda request: script_that_says(self._text)), "/*": endpoint(self._refuse)}

    def _refuse(self, request: Request) -> NoReturn:
        raise unavailable("failed", self._text)

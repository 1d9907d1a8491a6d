"""What TensorBoard is told of the tab, whether it works or not."""

from __future__ import annotations

from tensorboard.plugins import base_plugin

PLUGIN_NAME = "supervisor"


class Tab(base_plugin.TBPlugin):
    """A TensorBoard plugin in an iframe, named as the tab is."""

    plugin_name = PLUGIN_NAME

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """Return the tab's name and where its script is."""
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="Supervisor")

"""What TensorBoard's entry point names: the loader of the tab, from ``tb_plugin`` if that package is this project's.

``tb_plugin`` is a name that others may use, too. TensorBoard would end over a module of theirs that has no such loader,
so the entry point is here, where the name cannot be taken, and a package that is not ours is said and left alone.
"""

from __future__ import annotations

import logging
from importlib import import_module, metadata
from typing import Any

from tensorboard.plugins import base_plugin

from supervisor_core.base.install import DISTRIBUTION

_LOG = logging.getLogger("supervisor_core")

PACKAGE = "tb_plugin"


class NoTab(base_plugin.TBLoader):
    """Stands in where another package has the name of the tab's: TensorBoard starts without the tab."""

    def load(self, context: base_plugin.TBContext) -> None:
        """Return None, which is TensorBoard's word for no plugin."""


def find_loader() -> type[base_plugin.TBLoader]:
    """Return the tab's loader; `NoTab`, after an error in the log, if ``tb_plugin`` is another project's."""
    package: Any
    try:
        package = import_module(PACKAGE)
    except Exception as error:  # whatever another project's package does when it is imported, TensorBoard goes on
        package = error
    if getattr(package, "DISTRIBUTION", None) == DISTRIBUTION:
        loader: type[base_plugin.TBLoader] = import_module(f"{PACKAGE}.loader").SupervisorLoader
        return loader
    where = str(getattr(package, "__path__", "") or getattr(package, "__file__", "") or repr(package))
    others = sorted(set(metadata.packages_distributions().get(PACKAGE, ())) - {DISTRIBUTION})
    _LOG.error(
        "TensorBoard has no Supervisor tab: the package %s that Python finds first, %s, is not the one of %s. It comes "
        "from %s. To get the tab: remove that, then install %s again, with --force-reinstall",
        PACKAGE,
        where,
        DISTRIBUTION,
        " and ".join(others) or "no installed distribution",
        DISTRIBUTION,
    )
    return NoTab


SupervisorLoader = find_loader()

"""What a session says of where it runs: host, versions, the run's name."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

LOGDIR_VARIABLE = "SUPERVISOR_LOGDIR"
"""The environment's variable that names the directory below which all runs are, as the exporter's ``--logdir``."""

DISTRIBUTION = "tensorboard-plugin-supervisor"
_TOLD = (DISTRIBUTION, "tensorflow", "tensorboard", "numpy")


def versions() -> dict[str, str]:
    """Return the versions that matter to who reads a run's records: package -> version."""
    found = {"python": platform.python_version()}
    for package in _TOLD:
        if package == DISTRIBUTION or package in sys.modules:
            try:
                found[package] = version(package)
            except PackageNotFoundError:  # run from a bare checkout, or a package without metadata
                continue
    return found


def run_name(given: str | None, logdir: str | None) -> str:
    """Return the run's name: the one given, or the logdir's place.

    That is its path below the directory that the environment's ``SUPERVISOR_LOGDIR`` names, as an exporter of that
    directory calls it; where it is not below, the last two parts of its absolute path; ``.`` where there are none.

    Example:
        >>> run_name(None, "/data/exp1/train")
        'exp1/train'
    """
    if given:
        return given
    if not logdir:
        return "."
    path, root = _absolute(logdir), os.environ.get(LOGDIR_VARIABLE)
    if root:
        above = _absolute(root).rstrip("/") + "/"
        if path.startswith(above):
            return path.removeprefix(above)
    _, _, rest = path.rpartition("://")
    parts = [part for part in rest.split("/") if part]
    return "/".join(parts[-2:]) or "."


def _absolute(path: str) -> str:
    return path.rstrip("/") if "://" in path else os.path.abspath(path)

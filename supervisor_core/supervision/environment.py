"""What a session says of where it runs: host, versions, the run's name."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePosixPath

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
    """Return the run's name: the one given, or the last part of the logdir's absolute path, or ``.``."""
    if given:
        return given
    if not logdir:
        return "."
    path = str(logdir) if "://" in str(logdir) else os.path.abspath(logdir)
    return PurePosixPath(path).name or "."

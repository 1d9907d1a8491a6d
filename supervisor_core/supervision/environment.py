"""What a session says of where it runs: host, versions, the run's name, its own among the cluster's."""

from __future__ import annotations

import logging
import os
import platform
import socket
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePosixPath

from supervisor_core.errors import OptionsError
from supervisor_core.supervision.tf_config import task_from_environment

DISTRIBUTION = "tensorboard-plugin-supervisor"
_TOLD = (DISTRIBUTION, "tensorflow", "tensorboard", "numpy")
_LOG = logging.getLogger("supervisor_core")


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


def task_name(given: str | None, devices: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """Return what this process is called among the cluster's: the name given, or the task in ``TF_CONFIG``, or that of
    the graph's devices, or host and process."""
    if given:
        return given
    try:
        identity = task_from_environment(environ)
    except OptionsError as error:  # programs that do not read it run all the same
        _LOG.warning("%s", error)
        identity = None
    if identity is not None and identity.type is not None:
        return identity.name
    return devices or f"{socket.gethostname()}-{os.getpid()}"

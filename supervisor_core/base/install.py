"""How to install what is missing: every command in a message that installs something is made here.

The commands name packages, not extras of this one. So they are right however this package came here: from a clone,
from a wheel, from an index, or by Python's path alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from supervisor_core.base.log import command_line

DISTRIBUTION = "tensorboard-plugin-supervisor"
"""This package, as pip calls it."""

PY_SPY = "py-spy>=0.4.3"
CRC32C = "google-crc32c>=1.7"
PYARROW = "pyarrow>=16"
MCP = "mcp>=2"
APPRISE = "apprise>=1.9"
OTLP = "opentelemetry-exporter-otlp-proto-http>=1.28"

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "tab": ("tensorboard>=2.16.2", "werkzeug>=2.2"),
    "tensorflow": ("tensorflow>=2.16.1",),
    "keras": ("keras>=3.10",),
    "torch": ("torch>=2.4",),
    "jax": ("jax>=0.7", "orbax-checkpoint>=0.11.20"),
    "lightning": ("lightning>=2.4", "torch>=2.4"),
    "transformers": ("transformers>=5", "accelerate>=1.3", "torch>=2.6"),
    "data": (PYARROW,),
    "mcp": (MCP,),
    "notify": (APPRISE,),
    "otlp": (OTLP,),
    "demo": ("tensorflow>=2.16.1", "scikit-learn>=1.4"),
}
"""What each extra installs, as in pyproject.toml; without ``tab``, which most of them bring for whoever looks."""


def install_command(extra: str) -> str:
    """Return the command that installs what an extra does, into the environment of this Python.

    Raises:
        KeyError: if it is not in `EXTRAS`.
    """
    return pip_install(*EXTRAS[extra])


def pip_install(*words: str) -> str:
    """Return the command that installs these into the environment of this Python: pip's, or uv's where pip is missing.

    Args:
        words: requirements and options.
    """
    return _pip("install", *words)


def pip_uninstall(*packages: str) -> str:
    """Return the command that removes packages from the environment of this Python."""
    return _pip("uninstall", *packages)


def reinstall_command() -> str:
    """Return the command that puts the files of this package back, from where they came."""
    return pip_install("--force-reinstall", "--no-deps", *_origin())


def _pip(verb: str, *words: str) -> str:
    python = sys.executable or "python3"
    if _has_pip():
        return command_line(python, "-m", "pip", verb, *words)
    return command_line("uv", "pip", verb, "--python", python, *words)  # which makes environments without pip


def _has_pip() -> bool:
    # Not by find_spec: setuptools takes that for pip's start, and puts distutils back.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        distribution("pip")
    except PackageNotFoundError:
        return False
    return True


def _origin() -> tuple[str, ...]:
    """What pip takes to install this package again: a directory, a wheel or its name in an index."""
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        recorded = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        recorded = None
    if recorded is None:
        checkout = Path(__file__).resolve().parents[2]
        return (str(checkout),) if (checkout / "pyproject.toml").is_file() else (DISTRIBUTION,)
    direct: dict[str, Any] = json.loads(recorded)
    url = str(direct["url"])
    if "vcs_info" in direct:
        return (f"{direct['vcs_info']['vcs']}+{url}@{direct['vcs_info']['commit_id']}",)
    parts = urlsplit(url)
    if parts.scheme != "file":
        return (url,)
    path = os.path.normpath(url2pathname(parts.path))
    return ("--editable", path) if direct.get("dir_info", {}).get("editable") else (path,)

"""How to install what is missing: every command in a message that installs something is made here.

The commands name packages, not extras of this one. So they are right however this package came here: from a clone,
from a wheel, from an index, or by Python's path alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from supervisor_core.base.log import command_line

DISTRIBUTION = "tensorboard-plugin-supervisor"
"""This package, as pip calls it."""

PY_SPY = "py-spy>=0.4.3"
CRC32C = "google-crc32c>=1.7"
PYARROW = "pyarrow>=16"
MCP = "mcp>=2"
APPRISE = "apprise>=2.0"
OTLP = "opentelemetry-exporter-otlp-proto-http>=1.28"

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "tab": ("tensorboard>=2.16.2", "werkzeug>=3.1.6"),
    "tensorflow": ("tensorflow>=2.16.1",),
    "keras": ("keras>=3.10",),
    "torch": ("torch>=2.6",),
    "jax": ("jax>=0.7", "orbax-checkpoint>=0.11.20"),
    "lightning": ("lightning>=2.4", "torch>=2.6"),
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
    python = sys.executable or "python3"
    if _has_pip():
        return command_line(python, "-m", "pip", "install", *words)
    return command_line("uv", "pip", "install", "--python", python, *words)  # which makes environments without pip


def _has_pip() -> bool:
    # Not by find_spec: setuptools takes that for pip's start, and puts distutils back.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        distribution("pip")
    except PackageNotFoundError:
        return False
    return True

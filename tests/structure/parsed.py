"""The product's sources, each read and parsed once for all tests of a process: parsing them takes seconds."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "supervisor_core", ROOT / "tb_plugin")


@cache
def sources() -> tuple[Path, ...]:
    """Every module of the packages."""
    return tuple(sorted(path for package in PACKAGES for path in package.rglob("*.py")))


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file; not to be changed."""
    return ast.parse(path.read_text("utf-8"))

"""The public API: docs/api.md, the programs on pages and the examples name what packages list in ``__all__``."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES: dict[str, ModuleType] = {
    name: import_module(name)
    for name in (
        "supervisor_core",
        "supervisor_core.checkpoint",
        "supervisor_core.events",
        "supervisor_core.metrics",
        "supervisor_core.process",
        "supervisor_core.run",
        "supervisor_core.training",
    )
}
"""Every package that users import from. The command, which examples start as a process, is `supervisor_core.cli`."""
ADAPTERS = ("keras", "torch", "lightning", "transformers", "jax")
"""Their frameworks need not be installed here: only their ``__all__`` is read."""
REFERENCE = (ROOT / "docs" / "api.md").read_text("utf-8")
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")] if path.name != "api.md")
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SHOWN = re.compile(r"^::: (\S+)$", re.MULTILINE)
_INLINE = re.compile(r"(?<![\w/.])supervisor_core(?:\.\w+)+")


def imported(code: str) -> set[str]:
    """The dotted names of ours that a program imports, or reads off the package."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "supervisor_core":
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("supervisor_core.")}
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "supervisor_core":
            found.add(f"supervisor_core.{node.attr}")
    return found


def is_public(dotted: str) -> bool:
    """Whether a dotted name is a package that users import from, or begins with a name in the ``__all__`` of one."""
    if dotted in PACKAGES or dotted == "supervisor_core.errors":
        return True
    for adapter in ADAPTERS:
        name = f"supervisor_core.{adapter}"
        if dotted == name or dotted.startswith(f"{name}."):
            return dotted == name or dotted.removeprefix(f"{name}.").split(".")[0] in import_module(name).__all__
    package = max((name for name in PACKAGES if dotted.startswith(f"{name}.")), key=len, default=None)
    return package is not None and dotted.removeprefix(f"{package}.").split(".")[0] in PACKAGES[package].__all__


@pytest.mark.parametrize("package", PACKAGES)
def test_the_reference_names_what_a_package_lists(package: str) -> None:
    """Each name is on the page, in a section that names its package, and can be imported."""
    sections = REFERENCE.split("\n## ")
    for name in set(PACKAGES[package].__all__) - {"__version__"}:
        assert getattr(PACKAGES[package], name) is not None
        of_name = [part for part in sections if re.search(rf"^::: [\w.]+\.{name}$|`{name}`", part, re.MULTILINE)]
        assert of_name, name
        assert package == "supervisor_core" or any(f"`{package}`" in part for part in of_name), name


@pytest.mark.parametrize("target", sorted(set(_SHOWN.findall(REFERENCE)) - {"supervisor_core.errors"}))
def test_a_package_lists_what_the_reference_shows(target: str) -> None:
    """What the page takes from a module is the object that a package has under that name."""
    module, _, name = target.rpartition(".")
    packages = [package for package in PACKAGES.values() if name in package.__all__]
    assert packages
    for package in packages:
        assert getattr(package, name) is getattr(import_module(module), name)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_lists_its_names_in_order(package: str) -> None:
    """Each once."""
    names = PACKAGES[package].__all__
    assert list(names) == sorted(set(names))
    assert set(names) <= set(dir(PACKAGES[package]))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_shows_public_names_only(path: Path) -> None:
    """In its programs, and in its text."""
    text = path.read_text("utf-8")
    named = {name for block in _BLOCK.findall(text) for name in imported(block)}
    named |= set(_INLINE.findall(_BLOCK.sub("", text)))
    assert {name for name in named if not is_public(name)} == set()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_example_uses_public_names_only(path: Path) -> None:
    """As its readers will."""
    assert {name for name in imported(path.read_text("utf-8")) if not is_public(name)} == set()


def test_names_that_are_not_public_are_found() -> None:
    """The tests above can fail."""
    assert imported("from supervisor_core.run import RunFold, fold") == {
        "supervisor_core.run.RunFold",
        "supervisor_core.run.fold",
    }
    assert is_public("supervisor_core.Supervisor.stop") and is_public("supervisor_core.events.FileWriter")
    assert not is_public("supervisor_core.run.fold") and not is_public("supervisor_core.run.fold.RunFold")

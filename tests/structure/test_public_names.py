"""The public API: docs/api.md, the programs on pages and the examples name what packages list in ``__all__``."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from supervisor_core.base.install import install_command
from supervisor_core.base.lazy import FRAMEWORKS
from tests.cases import each

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
PACKAGE = ROOT / "supervisor_core"
ADAPTERS = [name for name in ("keras", "torch", "lightning", "transformers", "jax") if (PACKAGE / name).is_dir()]
"""Their frameworks need not be installed here: only their sources are read."""
REFERENCE = (ROOT / "docs" / "api.md").read_text("utf-8")
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")] if path.name != "api.md")
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SHOWN = re.compile(r"^::: (\S+)$", re.MULTILINE)
_MEMBERS = re.compile(r"^    options:\n(?:      inherited_members: true\n)?      members: \[(.*)\]$", re.MULTILINE)
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


def listed(adapter: str) -> list[str]:
    """The ``__all__`` of an adapter."""
    tree = ast.parse((PACKAGE / adapter / "__init__.py").read_text("utf-8"))
    (names,) = [
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    return list(ast.literal_eval(names))


def defined(dotted: str) -> tuple[ast.Module, ast.AST]:
    """A module of ours, and what it defines under a name."""
    module, _, name = dotted.rpartition(".")
    tree = ast.parse((ROOT / (module.replace(".", "/") + ".py")).read_text("utf-8"))
    (definition,) = [node for node in tree.body if getattr(node, "name", "") == name]
    return tree, definition


def members(dotted: str) -> tuple[set[str], set[str]]:
    """The public methods and properties of a class, without a framework's hooks; and its public attributes. Those of
    classes of ours that it is derived from count, too."""
    tree, definition = defined(dotted)
    assert isinstance(definition, ast.ClassDef)
    methods = {item.name for item in definition.body if isinstance(item, ast.FunctionDef)}
    stored = {
        node for node in ast.walk(definition) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    attributes = {node.attr for node in stored if getattr(node.value, "id", "") == "self" and node.attr[0] != "_"}
    sources = {name.rpartition(".")[2]: name for name in imported(ast.unparse(tree))}
    for base in definition.bases:
        if (source := sources.get(ast.unparse(base))) is not None:
            inherited = members(source)
            methods, attributes = methods | inherited[0], attributes | inherited[1]
    return {name for name in methods if not name.startswith(("_", "on_", "setup", "teardown"))}, attributes


def is_public(dotted: str) -> bool:
    """Whether a dotted name is a package that users import from, or begins with a name in the ``__all__`` of one."""
    if dotted in PACKAGES or dotted == "supervisor_core.base.errors":
        return True
    for adapter in ADAPTERS:
        name = f"supervisor_core.{adapter}"
        if dotted == name or dotted.startswith(f"{name}."):
            return dotted == name or dotted.removeprefix(f"{name}.").split(".")[0] in listed(adapter)
    package = max((name for name in PACKAGES if dotted.startswith(f"{name}.")), key=len, default=None)
    return package is not None and dotted.removeprefix(f"{package}.").split(".")[0] in PACKAGES[package].__all__


@each("package", PACKAGES)
def test_the_reference_names_what_a_package_lists(package: str) -> None:
    """Each name is on the page, in a section that names its package, and can be imported."""
    sections = REFERENCE.split("\n## ")
    for name in set(PACKAGES[package].__all__) - {"__version__"}:
        assert getattr(PACKAGES[package], name) is not None
        of_name = [part for part in sections if re.search(rf"^::: [\w.]+\.{name}$|`{name}`", part, re.MULTILINE)]
        assert of_name, name
        assert package == "supervisor_core" or any(f"`{package}`" in part for part in of_name), name


@each("adapter", ADAPTERS)
def test_the_reference_shows_what_an_adapter_lists(adapter: str) -> None:
    """Each name is shown in a section that names the adapter; of a class, each public method and property."""
    (section,) = [part for part in REFERENCE.split("\n## ") if f"From `supervisor_core.{adapter}`" in part]
    shown = {target.rpartition(".")[2]: target for target in _SHOWN.findall(section)}
    assert sorted(shown) == sorted(listed(adapter)) == listed(adapter)
    for target in shown.values():
        if isinstance(defined(target)[1], ast.ClassDef):
            found = _MEMBERS.match(section.split(f"::: {target}\n")[1])
            assert found is not None
            methods, attributes = members(target)
            assert methods <= set(found[1].split(", ")) <= methods | attributes


@each("adapter", ADAPTERS)
def test_an_adapter_has_its_names_without_its_framework(adapter: str) -> None:
    """Importing one loads no framework; what it lists is what it has; a name of it says what is to be installed."""
    code = (
        f"import sys, supervisor_core.{adapter} as adapter\n"
        f"assert not set(sys.modules) & {set(FRAMEWORKS)!r}\n"
        f"assert set(adapter.__all__) <= set(dir(adapter))\n"
        f"sys.modules['{adapter}'] = None\n"
        f"try: adapter.{listed(adapter)[0]}\n"
        f"except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    missing = f"supervisor_core.{adapter}.{listed(adapter)[0]} needs {FRAMEWORKS[adapter]}, which is not installed"
    if adapter == "jax" and sys.version_info < (3, 11):
        assert done.stdout == f"{missing} and needs Python 3.11 or newer\n"
    else:
        assert done.stdout == f"{missing}: {install_command(adapter)}\n"


SHOWN = {target for target in _SHOWN.findall(REFERENCE) if target.split(".")[1] not in (*ADAPTERS, "base")}


@each("target", sorted(SHOWN))
def test_a_package_lists_what_the_reference_shows(target: str) -> None:
    """What the page takes from a module is the object that a package has under that name."""
    module, _, name = target.rpartition(".")
    packages = [package for package in PACKAGES.values() if name in package.__all__]
    assert packages
    for package in packages:
        assert getattr(package, name) is getattr(import_module(module), name)


@each("package", PACKAGES)
def test_a_package_lists_its_names_in_order(package: str) -> None:
    """Each once."""
    names = PACKAGES[package].__all__
    assert list(names) == sorted(set(names))
    assert set(names) <= set(dir(PACKAGES[package]))


@each("path", PAGES)
def test_a_page_shows_public_names_only(path: Path) -> None:
    """In its programs, and in its text."""
    text = path.read_text("utf-8")
    named = {name for block in _BLOCK.findall(text) for name in imported(block)}
    named |= set(_INLINE.findall(_BLOCK.sub("", text)))
    assert {name for name in named if not is_public(name)} == set()


@each("path", EXAMPLES)
def test_an_example_uses_public_names_only(path: Path) -> None:
    """As its readers will."""
    assert {name for name in imported(path.read_text("utf-8")) if not is_public(name)} == set()

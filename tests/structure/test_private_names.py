"""TensorFlow's names that are not public are known to one module, which says what happens without each."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor_core.tf1.private_symbols import SYMBOLS
from tests.cases import each
from tests.structure.parsed import ROOT, tree_of

KNOWS = ROOT / "supervisor_core" / "tf1" / "private_symbols.py"
PACKAGE = sorted((ROOT / "supervisor_core" / "tf1").rglob("*.py"))  # no other package may import tensorflow
LISTED = {symbol.name for symbol in SYMBOLS}
NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
READERS = {"attrgetter", "delattr", "getattr", "hasattr", "setattr"}


def is_private(name: object) -> bool:
    """Whether a name is one that its owner keeps to itself."""
    return isinstance(name, str) and name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLES


def own_names(tree: ast.AST) -> set[str]:
    """The private names that a module gives to things of its own."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Store):
            names.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    return {name for name in names if is_private(name)}


def read_names(tree: ast.AST) -> Iterator[tuple[int, str, bool]]:
    """Line, private name, and whether it is read off ``self`` or ``cls``, for each that is read off an object."""
    standard = {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name.partition(".")[0] in sys.stdlib_module_names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if owner not in standard:
                yield node.lineno, node.attr, owner in ("self", "cls")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in READERS:
            for argument in node.args:
                if isinstance(argument, ast.Constant) and is_private(argument.value):
                    owner = node.args[0].id if isinstance(node.args[0], ast.Name) else ""
                    yield node.lineno, str(argument.value), owner in ("self", "cls")


@pytest.fixture(scope="module")
def own() -> dict[Path, set[str]]:
    """Each module's own private names."""
    paths = (ROOT / "supervisor_core").rglob("*.py")
    return {path: own_names(tree_of(path)) for path in paths if path != KNOWS}


@each("path", [path for path in PACKAGE if path != KNOWS])
def test_no_other_module_touches_a_private_name_of_tensorflow(path: Path, own: dict[Path, set[str]]) -> None:
    """What is not public is read through `private_symbols`: no import from inside TensorFlow, no name of its own."""
    tree, anywhere = tree_of(path), set().union(*own.values())
    found = [
        f"line {line}: {name}"
        for line, name, of_itself in read_names(tree)
        if name not in own[path] and (name not in anywhere or (name in LISTED and not of_itself))
    ]
    for node in ast.walk(tree):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        inside = ("tensorflow.python", "tensorflow.core", "tensorflow.compiler", "tensorflow.tools")
        found += [f"line {node.lineno}: {name}" for name in modules if name.startswith(inside)]
    assert not found, (
        f"{path.relative_to(ROOT)} reads names that are not public: {found}. Add each to tf1/private_symbols.py, with "
        "what happens where it is missing, read it by `private.NAME.get(...)`, and show in "
        "tests/tf1/test_private_symbols.py that this is what happens"
    )


def test_every_symbol_is_used() -> None:
    """What is listed is used; what is no longer used is not listed."""
    text = "\n".join(path.read_text() for path in PACKAGE if path != KNOWS)
    from supervisor_core.tf1 import private_symbols

    names = [name for name, value in vars(private_symbols).items() if value in SYMBOLS]
    assert [name for name in names if f"private.{name}" not in text] == []
    assert len(names) == len(SYMBOLS) >= 20


def test_the_list_loads_no_tensorflow() -> None:
    """Whoever reads a symbol of a saver that is not TensorFlow's needs no TensorFlow for it."""
    code = (
        "import sys; sys.modules['tensorflow'] = None\n"
        "from supervisor_core.tf1 import private_symbols as private\n"
        "assert private.LAST_CHECKPOINTS.get(object(), 7) == 7\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

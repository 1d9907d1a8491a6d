"""The layout is the architecture: who may import whom, and what stays out of memory until it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from tests.cases import each
from tests.structure.parsed import ROOT, sources, tree_of

# A package imports only itself and what stands on a lower line.
LAYERS = [
    {"cli", "tf1", "tb_plugin", "transformers", "lightning", "jax", "keras"},
    {"torch"},
    {"training"},
    {"restarter"},
    {"engine"},
    {"history", "metrics", "notify"},
    {"run"},
    {"events", "checkpoint"},
    {"storage", "process"},
    {"base"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

# What only some packages may import, anywhere in their files.
HEAVY = {
    "tensorflow": {"tf1"},
    "prometheus_client": {"metrics"},
    "tensorboard": {"storage", "tb_plugin", "base"},
    "werkzeug": {"tb_plugin"},
    "numpy": {"checkpoint", "events", "history", "run", "training", "torch", "tf1", "tb_plugin", "jax", "keras"},
    "safetensors": {"torch"},
    "torch": {"torch", "transformers", "lightning", "checkpoint"},  # for `verify --values` alone
    "jax": {"jax"},
    "keras": {"keras"},
    "flax": {"jax"},
    "orbax": {"jax"},
    "transformers": {"transformers"},
    "lightning": {"lightning"},
    "torchmetrics": {"lightning"},
    "click": {"cli"},
    "rich": {"cli"},
    "yaml": {"metrics"},
    "bcrypt": {"metrics"},
    "google_crc32c": {"base"},
    "msgspec": {"base", "checkpoint", "events", "history", "metrics", "run", "notify"},
    "pyarrow": {"history"},
    "mcp": {"cli"},
    "apprise": {"notify"},
    "opentelemetry": {"metrics"},
}

PUBLIC = [
    "supervisor_core",
    "supervisor_core.checkpoint",
    "supervisor_core.events",
    "supervisor_core.metrics",
    "supervisor_core.run.status",
    "supervisor_core.engine",
    "supervisor_core.storage",
    "supervisor_core.training",
]


def part_of(path: Path) -> str:
    """The package, or top-level module, that a file belongs to."""
    first, second, *_ = path.relative_to(ROOT).parts
    return "tb_plugin" if first == "tb_plugin" else second.removesuffix(".py")


@cache
def imports(path: Path) -> list[str]:
    """The modules that a file imports, wherever in it."""
    found = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides its layer"
            found.append(node.module or "")
            if node.module == "supervisor_core":
                found += [f"supervisor_core.{alias.name}" for alias in node.names]
    return found


@each("path", sources())
def test_imports_run_one_way(path: Path) -> None:
    """A module imports only its own package or one further down."""
    part = part_of(path)
    for name in imports(path):
        pieces = name.split(".")
        if pieces[0] == "supervisor_core" and len(pieces) > 1 and part != "__init__" and pieces[1] in RANK:
            assert pieces[1] == part or RANK[pieces[1]] > RANK[part], f"{part} imports {name}"
        assert pieces[0] != "tb_plugin" or part == "tb_plugin", f"{part} imports {name}"
        if pieces[0] in HEAVY:
            assert part in HEAVY[pieces[0]], f"{part} imports {name}; only {HEAVY[pieces[0]]} may"


RUN_LAYERS = ["model", "fold", "judge", "watch"]
"""The packages of `run`: each imports only itself and those before it."""
OUTSIDE = {"os", "time", "threading", "subprocess", "socket", "sqlite3", "pathlib", "logging", "random"}
"""What reads a clock, a file or a process: not for model, fold and judge."""


def test_the_packages_of_run_import_one_way() -> None:
    """From values to folds, judges and watches; only a watch has I/O and a clock."""
    checked = 0
    for rank, package in enumerate(RUN_LAYERS):
        for path in (ROOT / "supervisor_core" / "run" / package).glob("*.py"):
            checked += 1
            for name in imports(path):
                pieces = name.split(".")
                if name.startswith("supervisor_core.run."):
                    assert pieces[2] in RUN_LAYERS[: rank + 1], f"{path} imports {name}"
                if package != "watch":
                    assert pieces[0] not in OUTSIDE and name != "supervisor_core.base.clock", f"{path} imports {name}"
    assert checked > 50


def test_no_folders_import_each_other() -> None:
    """Folders, sub-packages included, can be drawn without a circle: each imports only folders that never import it."""
    folders = {".".join(path.relative_to(ROOT).parts[:-1]) for path in sources()}
    graph: dict[str, set[str]] = {folder: set() for folder in folders}
    for path in sources():
        if path == ROOT / "supervisor_core" / "__init__.py":  # re-exports what is below it, when it is asked for
            continue
        folder = ".".join(path.relative_to(ROOT).parts[:-1])
        for name in imports(path):
            while name and name not in folders:
                name = name.rpartition(".")[0]
            if name and name != folder:
                graph[folder].add(name)
    assert len(graph) > 10
    TopologicalSorter(graph).prepare()  # raises CycleError, with the circle


def test_no_modules_import_each_other() -> None:
    """Modules can be read in an order, inside a package as well: none imports itself by way of others, not even for
    its types. An import inside a function, which loads what is heavy or optional when it is used, is not counted."""
    modules = {module_of(path): path for path in sources() if path != ROOT / "supervisor_core" / "__init__.py"}
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for module, path in modules.items():
        for node in outside_functions(tree_of(path)):
            if isinstance(node, ast.Import):
                graph[module].update(alias.name for alias in node.names if alias.name in modules)
            elif isinstance(node, ast.ImportFrom):
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                graph[module].update(names & modules.keys() or {str(node.module)} & modules.keys())
    assert sum(map(len, graph.values())) > 500
    TopologicalSorter(graph).prepare()  # raises CycleError, with the circle


def module_of(path: Path) -> str:
    """The dotted name of a file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a module that are executed when it is loaded, or would be for a type checker."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from outside_functions(child)


def test_the_random_numbers_are_the_programs() -> None:
    """Nothing draws from the generator of `random` itself: the next number would be another one for the program, and a
    resume not exact."""
    drawn = [
        f"{path.name}:{node.lineno}"
        for path in sources()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random"
        if node.attr in ("random", "uniform", "randrange", "randint", "choice", "choices", "shuffle", "sample", "gauss")
    ]
    assert drawn == []


def test_every_package_has_a_layer() -> None:
    """A new package cannot stand outside the order."""
    assert {part_of(path) for path in sources()} - {"__init__"} == set(RANK)


@each("module", PUBLIC)
def test_a_neutral_module_loads_nothing_heavy(module: str) -> None:
    """Importing a public neutral module loads neither a framework nor TensorBoard nor the metrics library."""
    heavy = ("tensorflow", "tensorboard", "torch", "keras", "prometheus_client", "numpy", "google.protobuf")
    code = f"import sys, {module}\nprint([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_plugin_loader_loads_nothing_heavy() -> None:
    """What TensorBoard imports to find the tab costs it nothing: its own plugin class, and the standard library."""
    code = """
import sys
from tensorboard.plugins import base_plugin
before = set(sys.modules)
import supervisor_core.base.tensorboard_tab
added = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(added - sys.stdlib_module_names))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['supervisor_core', 'tb_plugin']"

"""Whether a number in a variable of a training loop is only for the log: `is_only_logged`.

The loop's source is followed from the number: into what is computed of it, and into what is done on a condition with
it. Where that ends in the log, no training depends on the number. Whatever is not understood may be a dependence.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType, FunctionType
from typing import Any

_LOGS = frozenset(
    ("print", "debug", "info", "warning", "error", "log", "log_metric", "log_metrics", "add_scalar", "add_scalars")
)
"""What a function or method is named that logs, where its value is not used."""
_PURE = frozenset(
    ("abs", "bool", "exp", "float", "int", "len", "max", "min", "round", "str", "sum", "item", "numel", "size", "dim",
     "tolist", "parameters", "named_parameters", "format", "join", "time", "perf_counter", "monotonic")
)  # fmt: skip
"""What a function or method is named that changes nothing."""
_LOOK_AROUND = frozenset(("eval", "exec", "globals", "locals", "vars"))
_DEPTH = 3
"""How many of the program's own methods are followed into each other."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def is_only_logged(name: str, frame: FrameType, variables: Mapping[str, Any]) -> bool:
    """Return whether nothing in a loop depends on a number in a variable, but for the log.

    Args:
        name: the variable's.
        frame: of the function with the loop, or of its module, while the loop asks for a step.
        variables: of both.
    """
    try:
        code, scope = frame.f_code, _scope_of(frame)
        loop = min(_around(scope, frame.f_lineno, (ast.For, ast.While)), key=lambda node: node.lineno)
        inner = (part for part in ast.walk(scope) if part is not scope and isinstance(part, _FUNCTIONS))
        if any(name in _names(part) for part in inner) or _names(loop) & _LOOK_AROUND:
            return False
        is_of_loop = name.isidentifier() and (isinstance(scope, ast.Module) or name in code.co_varnames)
        return is_of_loop and _Uses(loop, variables).only_log(name)
    except Exception:  # a source that is not there, or not the one that runs
        return False


def enumerated(frame: FrameType) -> str:
    """Return the variable that ``enumerate`` sets in a loop; empty where there is none, or no source.

    Args:
        frame: of the function with the loop, or of its module, while the loop asks for a step.
    """
    try:
        line = frame.f_lineno
        loops = [loop for loop in _around(_scope_of(frame), line, (ast.For,)) if line <= (loop.iter.end_lineno or 0)]
        loop = max(loops, key=lambda node: node.lineno)
        calls = {_name_of(part) for part in ast.walk(loop.iter) if isinstance(part, ast.Call)}
        number = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else None
        return number.id if "enumerate" in calls and isinstance(number, ast.Name) else ""
    except Exception:  # a source that is not there, or not the one that runs
        return ""


def _scope_of(frame: FrameType) -> ast.AST:
    """Return the source of a frame's function, or module."""
    code = frame.f_code
    module = ast.parse("".join(linecache.getlines(code.co_filename, frame.f_globals)))
    if code.co_name == "<module>":
        return module
    functions = _around(module, frame.f_lineno, (ast.FunctionDef, ast.AsyncFunctionDef))
    found: ast.AST = max(functions, key=lambda node: node.lineno)
    return found


def _around(scope: ast.AST, line: int, kinds: tuple[type[Any], ...]) -> list[Any]:
    """Return the statements of some kinds that a line is in."""
    nodes = (node for node in ast.walk(scope) if isinstance(node, kinds))
    return [node for node in nodes if node.lineno <= line <= node.end_lineno]


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


class _Uses:
    """What is done with variables in a loop.

    Args:
        loop: the loop.
        variables: of its function.
    """

    def __init__(self, loop: ast.AST, variables: Mapping[str, Any]) -> None:
        self._loop = loop
        self._variables = variables
        self._parents = {child: node for node in ast.walk(loop) for child in ast.iter_child_nodes(node)}
        self._asked: set[str] = set()
        names = (node for node in ast.walk(loop) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load))
        self._set_here = {node.id for node in names}

    def only_log(self, name: str) -> bool:
        """Return whether each use of a variable ends in the log."""
        if name in self._asked:  # in itself
            return True
        self._asked.add(name)
        return all(self._ends_in_log(node) for node in self._reads(name))

    def _reads(self, name: str) -> Iterator[ast.Name]:
        for node in ast.walk(self._loop):
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                yield node

    def _ends_in_log(self, node: ast.AST) -> bool:
        while not isinstance(node, ast.stmt):
            inner, node = node, self._parents[node]
            if isinstance(node, ast.Call):
                if _name_of(node) in _LOGS and isinstance(self._parents[node], ast.Expr):
                    return True
                if inner is node.func or not self._is_pure(node):
                    return False
            elif isinstance(
                node, (ast.Subscript, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, ast.comprehension)
            ):
                return False
            elif isinstance(node, ast.If) and inner is node.test:
                return self._does_nothing_else([*node.body, *node.orelse])
        return self._does_nothing_else([node]) if isinstance(node, (ast.Assign, ast.AugAssign)) else False

    def _does_nothing_else(self, statements: Iterable[ast.stmt]) -> bool:
        """Return whether statements only log, and compute what is logged."""
        for node in statements:
            if isinstance(node, (ast.Assign, ast.AugAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                parts = [part for each in targets for part in (each.elts if isinstance(each, ast.Tuple) else [each])]
                is_logged = all(isinstance(part, ast.Name) and self.only_log(part.id) for part in parts)
                is_fine = is_logged and self._calls_are_pure(node.value)
            elif isinstance(node, ast.If) and self._is_off(node.test):
                is_fine = self._does_nothing_else(node.orelse)
            elif isinstance(node, ast.If):
                is_fine = self._calls_are_pure(node.test) and self._does_nothing_else([*node.body, *node.orelse])
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                arguments = (*node.value.args, *(each.value for each in node.value.keywords))
                is_fine = _name_of(node.value) in _LOGS and all(map(self._calls_are_pure, arguments))
            else:
                is_fine = isinstance(node, ast.Pass)
            if not is_fine:
                return False
        return True

    def _is_off(self, test: ast.expr) -> bool:
        """Return whether a condition is an option that is not set, as ``args.dry_run``."""
        path: list[str] = []
        while isinstance(test, ast.Attribute):
            path, test = [test.attr, *path], test.value
        if not isinstance(test, ast.Name) or test.id in self._set_here:
            return False
        value = self._variables.get(test.id)
        for name in path:
            value = getattr(value, "__dict__", {}).get(name)
        return value is False

    def _calls_are_pure(self, node: ast.AST) -> bool:
        return all(self._is_pure(part) for part in ast.walk(node) if isinstance(part, ast.Call))

    def _is_pure(self, call: ast.Call) -> bool:
        return _is_pure(call, self._variables, _DEPTH)


def _name_of(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_pure(call: ast.Call, variables: Mapping[str, Any], depth: int) -> bool:
    """Return whether a call changes nothing: by its name, or by the source of the program's own method."""
    function = call.func
    if _name_of(call) in _PURE:
        return True
    if not depth or not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return False
    owner = variables.get(function.value.id)
    method = getattr(type(owner), function.attr, None)
    if not isinstance(method, FunctionType):
        return False
    tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    (definition,) = tree.body
    if not isinstance(definition, ast.FunctionDef) or definition.decorator_list or not definition.args.args:
        return False
    inside = {definition.args.args[0].arg: owner}
    for node in ast.walk(definition):
        is_store = isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load)
        if is_store or isinstance(node, (ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await, ast.With)):
            return False
        if isinstance(node, ast.Call) and not _is_pure(node, inside, depth - 1):
            return False
    return True

"""An expression of the product takes time in proportion to the text, whatever the text repeats.

Python handles no signal while an expression is searched: one that takes time in proportion to the square of the text
holds up whoever searches, and 256 KiB of blank lines are cheap to write.
"""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

try:
    from re import _parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_parse as _parser

ROOT = Path(__file__).parents[2]
SIZES = (4 << 10, 16 << 10, 64 << 10, 256 << 10)
USED = ("match", "fullmatch", "search", "sub", "split", "findall", "finditer")
NOT_FOREIGN = (
    "base/address.py", "cli/hints.py", "cli/render.py", "metrics/alerts_page.py", "metrics/config_files.py",
    "run/model/thresholds.py", "tb_plugin/report.py",
)  # fmt: skip
"""Files whose expressions read what is in the package, or what its operator types."""
OF_NAMES = ("events/chunk_builder.py:_PROCESS",)
"""Read names of files, which no file system has longer than a kilobyte or two."""


def expressions() -> Iterator[tuple[str, str, Any]]:
    """Where each expression is, how it is used, and the expression. What a function compiles from a name is left out:
    it reads names of files."""
    paths = sorted(path for package in ("supervisor_core", "tb_plugin") for path in (ROOT / package).rglob("*.py"))
    trees = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in paths}
    used: dict[tuple[str, str], set[str]] = {}
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in USED:
                name = node.value.id
                used.setdefault((file if name.startswith("_") else "", name), set()).add(node.attr)
    for file, tree in trees.items():
        if file.endswith(NOT_FOREIGN):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                call, first = node.func, node.args[0]
                if ast.unparse(call.value) == "re" and call.attr in USED and isinstance(first, ast.Constant):
                    flags = re.MULTILINE if "MULTILINE" in ast.unparse(node) else 0
                    yield f"{file}:{first.value!r}", call.attr, re.compile(first.value, flags)
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("re.compile("):
                name = ast.unparse(node.targets[0])
                module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
                ways = used.get((file if name.startswith("_") else "", name), {"search"})
                is_whole = ways <= {"match", "fullmatch"}
                if not f"{file}:{name}".endswith(OF_NAMES):
                    yield f"{file}:{name}", min(ways) if is_whole else "search", getattr(module, name)


def seeds(pattern: Any) -> list[str]:
    """What a text may repeat: blank lines and the like, and what the expression itself asks for, up to each place."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    built, found = "", ["\n", " ", "(", "a", "a ", "\n "]
    for piece in _pieces(_parser.parse(text, pattern.flags & ~re.DEBUG)):
        built += piece
        found.append(built)
    return list(dict.fromkeys(found))


def _pieces(parsed: Any) -> Iterator[str]:
    """Yield a short text that each part of an expression takes."""
    for op, value in parsed:
        kind = str(op)
        if kind == "LITERAL":
            yield chr(value)
        elif kind in ("ANY", "NOT_LITERAL"):
            yield "a"
        elif kind == "IN":
            yield _one_of(value)
        elif kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            yield "".join(_pieces(value[2])) * max(1, min(value[0], 40))
        elif kind == "SUBPATTERN":
            yield from _pieces(value[3])
        elif kind == "BRANCH":
            yield "".join(_pieces(value[1][0]))


def _one_of(items: Any) -> str:
    for op, value in items:
        if str(op) == "LITERAL":
            return chr(value)
        if str(op) == "RANGE":
            return chr(value[0])
        if str(op) == "CATEGORY":
            return {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " "}.get(str(value), "a")
    return "a"


def grows_faster(run: Callable[[int], object]) -> bool:
    """Whether four times the text takes more than eight times as long, where that can be told from noise."""
    before = None
    for size in SIZES:
        took = []
        for _ in range(2):
            began = time.thread_time()
            run(size)
            took.append(time.thread_time() - began)
        if before is not None and min(took) > max(8 * before, 0.02):
            return True
        before = min(took)
    return False


FOUND = {where: (way, pattern) for where, way, pattern in expressions()}


@pytest.mark.parametrize("where", FOUND)
def test_an_expression_takes_time_in_proportion_to_the_text(where: str) -> None:
    """Whatever is repeated: blank lines, blanks, brackets, letters, or the beginning of what is looked for."""
    way, pattern = FOUND[where]
    for seed in seeds(pattern):

        def run(size: int, seed: str = seed) -> object:
            text = seed * (size // len(seed))
            given = text if isinstance(pattern.pattern, str) else text.encode("latin-1", "replace")
            found = pattern.sub("", given) if way == "sub" else getattr(pattern, way)(given)
            return sum(1 for _ in found) if way == "finditer" else found

        assert not grows_faster(run), (pattern.pattern, seed)

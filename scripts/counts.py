#!/usr/bin/env python3
"""Count what tells how large and how tangled the product is: python scripts/counts.py

Printed by `make check`, and held against nothing. A line of code is one that is neither blank, nor a comment, nor a
docstring.
"""

from __future__ import annotations

import ast
import io
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONG_FUNCTION, MANY_ATTRIBUTES = 40, 15
FACT = "resume_exact"
"""A fact that is measured in a session, recorded, folded, served and shown: what a new one would touch."""
_NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(source: str) -> int:
    """Return the number of lines of code."""
    docstrings = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {n for token in tokens if token.type not in _NOT_CODE for n in range(token.start[0], token.end[0] + 1)}
    return len(lines - docstrings)


def docstring_lines(source: str) -> int:
    """Return the number of lines of docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in ast.walk(ast.parse(source)) if isinstance(node, documented) and node.body]
    found = [body[0] for body in bodies if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)]
    return sum((node.end_lineno or 0) - node.lineno + 1 for node in found)


def attributes(node: ast.ClassDef) -> int:
    """Return the number of attributes that the instances of a class have of it."""
    declared = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
    names = {target.id for target in declared if isinstance(target, ast.Name)}
    for each in ast.walk(node):
        is_own = isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self"
        if is_own and isinstance(each.ctx, ast.Store):
            names.add(each.attr)
    return len(names)


def copies(tree: ast.AST) -> int:
    """Return the number of assignments and arguments that only copy a field: ``name=other.name``."""
    targets = [(item.targets[0], item.value) for item in ast.walk(tree) if isinstance(item, ast.Assign)]
    pairs = [(target.attr, value) for target, value in targets if isinstance(target, ast.Attribute)]
    pairs += [(item.arg or "", item.value) for item in ast.walk(tree) if isinstance(item, ast.keyword)]
    return sum(isinstance(value, ast.Attribute) and value.attr == name for name, value in pairs)


def tracked(*patterns: str) -> Iterator[Path]:
    """Yield the files under version control that match; a star is for any text, with its slashes."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    yield from (ROOT / name for name in listed.stdout.split())


def package_of(path: Path) -> str:
    """Return the package that a file belongs to, as a person would name it."""
    parts = path.relative_to(ROOT).parts
    return parts[1] if len(parts) > 2 else parts[0]


def main() -> None:
    """Print the counts."""
    product = {path: path.read_text() for path in tracked("supervisor_core/*.py", "tb_plugin/*.py")}
    lines, files, docstrings = Counter[str](), Counter[str](), Counter[str]()
    classes: list[ast.ClassDef] = []
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
    for path, source in product.items():
        lines[package_of(path)] += code_lines(source)
        files[package_of(path)] += 1
        docstrings[package_of(path)] += docstring_lines(source)
        nodes = list(ast.walk(ast.parse(source)))
        classes += [node for node in nodes if isinstance(node, ast.ClassDef)]
        functions += [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    tests = Counter[str]()
    for path in tracked("tests/*.py"):
        tests[package_of(path)] += code_lines(path.read_text())
    print("   code docstrings files   tests")
    for package, count in lines.most_common():
        print(f"{count:7,} {docstrings[package]:10,} {files[package]:5} {tests[package]:7,}  {package}")
    for package, count in sorted(tests.items() - {(name, tests[name]) for name in lines}):
        print(f"{'':24} {count:7,}  tests/{package}")
    print(f"{lines.total():7,} {docstrings.total():10,} {files.total():5} {tests.total():7,}  all")
    words = sum(len(path.read_text().split()) for path in tracked("docs/*.md", "README.md"))
    print(f"{words:7,} words: documentation")
    names = Counter(node.name for node in classes)
    large = sum(attributes(node) > MANY_ATTRIBUTES for node in classes)
    long = sum((node.end_lineno or 0) - node.lineno >= LONG_FUNCTION for node in functions)
    touched = sum(FACT in source for source in product.values())
    print(f"{large:7} classes with more than {MANY_ATTRIBUTES} attributes")
    print(f"{long:7} functions over {LONG_FUNCTION} lines")
    print(f"{sum(count > 1 for count in names.values()):7} names that several classes have")
    print(f"{sum(copies(ast.parse(source)) for source in product.values()):7} assignments that only copy a field")
    print(f"{touched:7} files of the product that one fact touches ({FACT})")


if __name__ == "__main__":
    main()

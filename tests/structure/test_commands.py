"""Whoever reads a message may paste the command in it: no command is made of names by hand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.cases import each
from tests.structure.parsed import ROOT, tree_of

SOURCES = [path for part in ("supervisor_core", "tb_plugin", "examples/demo") for path in (ROOT / part).rglob("*.py")]
COMMANDS = r"inspect|verify|rewind|stacks|run|exporter|rules|manifests|dashboard|watch"
PROGRAMS = rf"tb-supervisor (?:{COMMANDS})|tensorboard|pip|htpasswd|kill|rm|mv|cp|chmod|chown|ls|ps|cat|ss"
BY_HAND = re.compile(rf"(?<![\w/.-])(?:{PROGRAMS})(?: [-\w=:./'\"\[\],+]+)* [^\s\0]*\0")
"""A program, words, and something that is filled in."""

ALLOWED = ("ss -ltnp 'sport = :\0",)
"""A port's number."""


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of every string, with a zero for each part that is filled in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, re.sub(r"%[sr]|\{\w*\}", "\0", node.value)


def by_hand(tree: ast.AST) -> list[tuple[int, str]]:
    """The commands in which something is filled in, but not by `command_line`."""
    found = ((line, each[0]) for line, text in texts(tree) for each in BY_HAND.finditer(text))
    return [(line, text) for line, text in found if text not in ALLOWED]


@each("path", SOURCES)
def test_no_command_is_made_by_hand(path: Path) -> None:
    """`command_line` quotes what it is given."""
    assert by_hand(tree_of(path)) == []

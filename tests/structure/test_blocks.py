"""Every block and command on a page: read, parsed, or called as far as that is possible without running it."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path

import click
import yaml

from supervisor_core.cli import main
from tests.cases import each
from tests.docs.console import File, Typed, parts_of

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
OTHERS = {
    "amtool",
    "apprise",
    "cd",
    "curl",
    "docker",
    "eval",
    "export",
    "kubectl",
    "mkdir",
    "mv",
    "promtool",
    "srun",
    "tensorboard",
    "torchrun",
}
"""Programs of others that the pages call; their own tests call them where they are installed."""
CHECKED_ELSEWHERE = {
    "console": "tests/docs/test_console.py",
    "diff": "test_part3_migration.py",
    "promql": "test_docs.py",
    "ini": "test_docs.py",
}

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_TYPED = re.compile(r"^    (?:\$ )?((?:\.venv/bin/)?(?:tb-supervisor|make) .*)$", re.MULTILINE)


def blocks(path: Path) -> list[tuple[str, str]]:
    """The fenced blocks of a page: language and text."""
    found = _FENCE.findall(path.read_text("utf-8"))
    return [(language, re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)) for indent, language, text in found]


def commands(path: Path) -> list[str]:
    """What a page says to type: the lines of its shell blocks and consoles, and of indented ones that begin
    with our commands."""
    shell = [line for language, text in blocks(path) if language == "sh" for line in text.splitlines()]
    shell += [part.command.removesuffix(" &") for part in parts_of(path) if isinstance(part, Typed)]
    text = _FENCE.sub("", path.read_text("utf-8"))
    return [line.strip() for line in (*shell, *_TYPED.findall(text)) if line.strip() and not line.startswith("#")]


@each("path", PAGES)
def test_blocks_can_be_read(path: Path) -> None:
    """Each block has a language, and is text of that language; Python, YAML and JSON can be parsed."""
    for language, text in blocks(path):
        if language == "python":
            ast.parse(text)
        elif language == "yaml":
            assert all(document is not None for document in yaml.safe_load_all(text))
        elif language == "json":
            json.loads(text)
        elif language == "text":
            assert text.strip()  # a file's content, or what a command prints
        else:
            assert language == "sh" or language in CHECKED_ELSEWHERE, f"{path.name}: a block in {language!r}"


@each("path", PAGES)
def test_commands_are_ones_that_exist(path: Path) -> None:
    """Our commands take their arguments, make has its targets, files that are named are there."""
    if path.name == "cluster.md":
        return  # its scripts run in test_cluster_docs.py
    files = {part.name for part in parts_of(path) if isinstance(part, File)}
    for line in commands(path):
        check_command(re.sub(r"^(\w+=\S+ )+", "", line), files)


def check_command(line: str, files: Collection[str] = ()) -> None:
    """One line as one types it; ``files`` are those that the page shows."""
    words = shlex.split(re.split(r"(?<!\\)[|>]| && ", line)[0], comments=True)
    if words[0] == "timeout":
        words = words[4:] if words[1] == "-s" else words[2:]
    program, rest = words[0], words[1:]
    if program.endswith("tb-supervisor"):
        check_call(rest)
    elif program == "make":
        targets = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert targets is not None and rest[0] in targets[1].split(), line
    elif program.endswith(("python", "python3")):
        assert rest[0] in files or (rest[0] == "-m" and find_spec(rest[1]) is not None), line
    elif program.startswith("scripts/"):
        assert (ROOT / program).exists(), line
    else:
        assert program.rpartition("/")[2] in {*OTHERS, "pip", "pre-commit"}, line
    if program == "docker" and "-f" in rest:
        assert (ROOT / rest[rest.index("-f") + 1]).exists(), line


def check_call(words: list[str]) -> None:
    """A call of our command; a usage line with its placeholders is none."""
    if {"[OPTIONS]", "COMMAND"} & set(words):
        return
    if words[0].startswith("-"):
        assert words[0] in ("--version", "--help")
        return
    command = main.get_command(click.Context(main), words[0])
    assert command is not None, words
    if words[1:] != ["--help"]:
        command.make_context(words[0], list(words[1:]))  # raises where the command would

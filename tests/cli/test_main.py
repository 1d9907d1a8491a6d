"""The command as a whole: its version, its help, and that its documentation is in step with it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import click
import pytest
from click.testing import Result

from supervisor_core.cli import COMMANDS, DISTRIBUTION, main
from tests.cases import each

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


def documented() -> dict[str, str]:
    """Return the sections of the documentation: command -> text."""
    parts = re.split(r"^## `tb-supervisor ?([\w-]*)`$", DOCS.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def options_in(text: str) -> set[str]:
    """Return the options that a section describes, each in a table row of its own."""
    return {
        option
        for row in re.findall(r"^\| `(-[^|]*)\|", text, re.MULTILINE)
        for option in re.findall(r"--?[\w.-]+", row)
    }


def options_of(command: click.Command) -> set[str]:
    """Return the options that a command takes."""
    return {name for item in command.params if isinstance(item, click.Option) for name in item.opts}


def command_of(name: str) -> click.Command:
    """Return a command by its name, the whole for an empty one."""
    command = main.get_command(click.Context(main), name) if name else main
    assert command is not None
    return command


def test_every_command_is_documented() -> None:
    """docs/cli.md has a section for each command, and none for a command that does not exist."""
    assert set(documented()) == {"", *COMMANDS}


@each("name", ["", *COMMANDS])
def test_every_option_is_documented(name: str) -> None:
    """Each section has a row for each option, and none for an option that does not exist."""
    assert options_in(documented()[name]) - {"-h", "--help"} == options_of(command_of(name))


@each("name", COMMANDS)
def test_every_exit_status_is_documented(name: str) -> None:
    """The exit statuses are in the help and in the documentation."""
    assert "Exit status: 0 " in (command_of(name).help or "").replace("\n", " ")
    assert re.search(r"^\| 0 \|", documented()[name], re.MULTILINE)
    assert re.search(r"^\| 2 \|", documented()[name], re.MULTILINE)


def test_the_json_fields_are_documented() -> None:
    """Every field of the JSON output is described, and no other."""
    from dataclasses import fields

    from supervisor_core.checkpoint.set_aside import SetAside
    from supervisor_core.cli.verify import CheckpointVerdict, EventsVerdict, RunVerdict

    text = documented()["verify"]
    described = set(re.findall(r"^\| `([a-z_]+)` \|", text, re.MULTILINE))
    top = {"v", "logdir", "good", "damaged", "missing", "unsearched", "runs"}
    assert described == top | {
        item.name for kind in (CheckpointVerdict, SetAside, RunVerdict, EventsVerdict) for item in fields(kind)
    }


def test_version(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is the distribution's; from bare sources it says that there is none."""
    monkeypatch.setattr("supervisor_core.cli.version", lambda name: {DISTRIBUTION: "1.2.3"}[name])
    assert run("--version").stdout == run("-V").stdout == "tb-supervisor 1.2.3\n"

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("supervisor_core.cli.version", missing)
    assert "running from the sources" in run("--version").stdout


@each("name", ["", *COMMANDS])
def test_help_ends_with_an_example_that_parses(run: Callable[..., Result], name: str) -> None:
    """The last lines of each help are calls that the command accepts."""
    text = run(*([name] if name else []), "--help").stdout
    examples = text.split("Examples:\n" if "Examples:" in text else "Example:\n")[1].rstrip().splitlines()
    assert examples
    for line in examples:
        program, *words = shlex.split(re.split("[>|]", line)[0])
        assert (program, words[0]) == ("tb-supervisor", name or "inspect")
        if words[1:] != ["--help"]:
            command_of(words[0]).make_context(words[0], words[1:])  # raises where one is wrong


def test_the_list_of_commands_is_whole(run: Callable[..., Result]) -> None:
    """Each command has a line that fits into 80 columns: nothing is cut."""
    assert run("-h").stdout == run("--help").stdout
    listed = run("--help").stdout.split("Commands:\n")[1].split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in listed] == sorted(COMMANDS)
    assert all(line.endswith(".") and not line.endswith("...") and len(line) <= 80 for line in listed)


def test_ctrl_c(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted command ends with 130 and one line."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("supervisor_core.metrics.config_files.rule_groups", interrupted)
    result = run("rules")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "\nInterrupted.\n")


COMMAND = [sys.executable, "-c", "from supervisor_core.cli import main; main(prog_name='tb-supervisor')"]


@each("output", ["pipe", "disk"])
@each("how", ["click", "rich"])
def test_output_that_cannot_be_written(tmp_path: Path, output: str, how: str) -> None:
    """A closed pipe and a full disk end a command with one line and a status of their own, however it prints."""
    if how == "rich":
        (tmp_path / "events.out.tfevents.1.h").write_bytes(b"")
    arguments = ["inspect", str(tmp_path)] if how == "rich" else ["dashboard"]
    if output == "disk":
        with open("/dev/full", "wb") as full:
            ended = subprocess.run([*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert (ended.returncode, ended.stderr) == (74, "Error: Cannot write the output: No space left on device.\n")
        return
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run([*COMMAND, *arguments], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, "Error: The output was closed before everything was written.\n")


def test_every_command_starts_with_the_oldest_click() -> None:
    """Before 8.4 a `click.ParamType` takes no type argument; the commands start there as they do with the newest."""
    code = """
import click
def refuse(*arguments):
    raise TypeError("type 'ParamType' is not subscriptable")
click.ParamType.__class_getitem__ = refuse
from supervisor_core.cli import COMMANDS, main
for name in COMMANDS:
    assert main.get_command(click.Context(main), name).name == name
main(["rules"])
"""
    started = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert started.returncode == 0, started.stderr
    assert "groups:" in started.stdout


def test_completion() -> None:
    """The variable that the documentation names makes the command print completions for the shell."""
    assert "_TB_SUPERVISOR_COMPLETE=bash_source" in documented()[""]
    environment = {
        **os.environ,
        "_TB_SUPERVISOR_COMPLETE": "bash_complete",
        "COMP_WORDS": "tb-supervisor ins",
        "COMP_CWORD": "1",
    }
    completed = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, check=False)
    assert completed.stdout.split() == ["plain,inspect"]

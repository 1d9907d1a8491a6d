"""What commands, errors and logs print of names that somebody may have made: text to read, and commands to paste."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner
from pasting import NAMES, SHOWN, commands_in, paste

from supervisor_core.base.errors import OptionsError
from supervisor_core.base.log import printable
from supervisor_core.cli import main
from supervisor_core.metrics.render import label_text
from supervisor_core.metrics.web_config import BasicAuth
from supervisor_core.process.runtime_directory import VARIABLE, private_directory
from supervisor_core.restarter.processes import command_text
from tests.cases import each
from tests.story import run_file

TB_SUPERVISOR = [sys.executable, "-c", "from supervisor_core.cli import main; main(prog_name='tb-supervisor')"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, module_at: Callable[[str], ModuleType]) -> dict[str, Path]:
    """Name -> the directory of a run with that name, each in a logdir of its own, of a training that is dead."""
    logdir = tmp_path_factory.mktemp("logdirs")
    made = {name: logdir / str(number) / name.replace("/", "_") for number, name in enumerate(NAMES)}
    writing = run_file
    for name, directory in made.items():
        tag = f"loss {label_text(name)}"
        run = writing.RunFile(directory).ready().beat(writing.T0 + 10, steps=5)
        run.scalar(tag, 1, writing.T0 + 11, value=b"\0\0\xc0\x7f")  # NaN: the tag is shown
    return made


def quoted(text: str) -> str:
    """The command that a sentence has between backquotes."""
    found = re.search("`((?:htpasswd|chmod) .*)`", text, re.DOTALL)
    assert found is not None, text
    return found[1]


@each("arguments", ["inspect", "inspect --fail-on=lost", "inspect --run=.", "verify", "stacks"])
def test_a_command_shows_names_as_text(runs: dict[str, Path], tmp_path: Path, arguments: str) -> None:
    """Of a logdir, or of a run: no character is obeyed or unseen, and what can be pasted is one command."""
    all_of_them = next(iter(runs.values())).parent.parent
    calls = [[*arguments.split(), "--", str(directory)] for directory in (all_of_them, *runs.values())]
    lines = [line for call in calls for line in CliRunner().invoke(main, call).output.splitlines()]
    assert [line for line in lines if printable(line) != line] == []
    commands = [command for line in lines for command in commands_in(line)]
    assert len(paste(commands, tmp_path)) == len(commands)


@each("name", ["two\n$(touch pwned)\n", "\x1b[201~`touch pwned` <!channel>\u202e"])
def test_a_restarter_shows_names_as_text(tmp_path: Path, name: str) -> None:
    """Of its logdir and of its program, whether that cannot be started or fails."""
    program = tmp_path / name
    program.write_text("#!/bin/sh\nexit 2\n")
    lines = []
    for mode in (0o644, 0o755):
        program.chmod(mode)
        call = [*TB_SUPERVISOR, "run", "--logdir", str(tmp_path / "logs" / name), "--", str(program), name]
        done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=100)
        assert done.returncode == 93, done.stderr
        lines += done.stderr.splitlines()
    assert lines and [line for line in lines if printable(line) != line] == []
    commands = [command for line in lines for command in commands_in(line)]
    assert len(paste(commands, tmp_path / "pasted")) == len(commands)


@each("name", NAMES)
def test_a_run_is_found_and_shown_by_its_name(runs: dict[str, Path], name: str) -> None:
    """Whatever a run is called, `--run=NAME` shows it; its name is on one line, and can be read."""
    done = CliRunner().invoke(main, ["inspect", f"--run={runs[name].name}", "--", str(runs[name].parent)])
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"{SHOWN[name].replace('/', '_')}  ")


def test_the_command_that_makes_a_password(tmp_path: Path) -> None:
    """Of a user with any name the error has a command that asks for that user's."""
    said = []
    for name in NAMES:
        with pytest.raises(OptionsError) as caught:
            BasicAuth({name: "not a hash"})
        said.append(quoted(str(caught.value)))
    assert paste(said, tmp_path) == [["htpasswd", "-nBC", "12", "--", name] for name in NAMES]


def test_the_command_that_makes_a_directory_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a directory with any name the error has a command that changes that directory."""
    directories = [tmp_path / "there" / name.replace("/", "_") for name in NAMES]
    said = []
    for directory in directories:
        directory.mkdir(parents=True)
        directory.chmod(0o777)
        monkeypatch.setenv(VARIABLE, str(directory))
        refused: list[OSError] = []
        private_directory(refused.append)
        said.append(quoted(str(refused[0])))
    assert paste(said, tmp_path / "pasted") == [["chmod", "700", "--", str(directory)] for directory in directories]


def test_the_command_that_a_launch_records(tmp_path: Path) -> None:
    """A restarter records what it starts as a shell takes it."""
    meant = [["tb-supervisor", "run", "--", name] for name in NAMES]
    assert paste([command_text(command) for command in meant], tmp_path) == meant

"""Calls that are wrong: each error names what came, what was expected and what to do, with a command to paste."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

from supervisor_core.cli import COMMANDS, main
from supervisor_core.cli.run import _outer_restarter
from tests.cases import each

Run = Callable[..., Result]


def error_of(result: Result) -> str:
    """What is said after the usage; the status is that of a wrong call."""
    assert result.exit_code == 2
    usage, found, error = result.stderr.rpartition("Error: ")
    assert found and error.count("\n") == 1, result.stderr
    assert not usage or usage.startswith("Usage: ")
    return error.rstrip("\n")


def test_a_bare_call_prints_the_help(run: Run) -> None:
    """Exactly what --help prints, in the same place; but the status is that of a wrong call."""
    bare, asked = run(), run("--help")
    assert bare.stdout == asked.stdout and bare.stderr == asked.stderr == ""
    assert (bare.exit_code, asked.exit_code) == (2, 0)
    assert "\n\nOptions:\n" in bare.stdout


@each("name", ["inspect", "verify", "exporter", "stacks", "run", "report", "watch"])
def test_without_arguments(run: Run, name: str) -> None:
    """The error names what is missing, and the first example of the help, which the command accepts."""
    said = error_of(run(name))
    what, example = re.fullmatch(r"(.+) is missing, as in `(.+)`", said).groups()  # type: ignore[union-attr]
    assert what == {"stacks": "PID|LOGDIR", "run": "LOGDIR -- COMMAND"}.get(name, "LOGDIR")
    assert f"\n    {example}\n" in run(name, "--help").stdout
    program, command, *words = shlex.split(example)
    assert (program, command) == ("tb-supervisor", name)
    found = main.get_command(click.Context(main), name)
    assert found is not None
    found.make_context(name, words)


def test_a_removed_command_names_what_to_use(run: Run) -> None:
    """The error of `diff` says how to compare two checkpoints."""
    assert "The command 'diff' was removed. Instead: compare the arrays" in error_of(run("diff", "a", "b"))


@each(
    "words, said",
    [
        ("inspct", "There is no command 'inspct'. Did you mean inspect?"),
        ("help", "There is no command 'help'. Did you mean `tb-supervisor --help`?"),
        ("xyz", f"There is no command 'xyz'. The commands are {', '.join(sorted(COMMANDS))}."),
        ("logs", "There is no command 'logs'. To see the runs in that directory: `tb-supervisor inspect logs`"),
        ("sh a.sh", "There is no command 'sh'. To run that program: `tb-supervisor run runs -- sh a.sh`"),
        ("--verson", "There is no option --verson. Did you mean --version?"),
        ("inspect -json logs", "There is no option -j. Did you mean --json?"),
        ("inspect --xyzzy logs", "There is no option --xyzzy. `tb-supervisor inspect --help` lists the options."),
        (
            "inspect --hang-timeout 3 logs",
            "There is no option --hang-timeout. It is an option of run, and comes after the command: tb-supervisor run",
        ),
        ("--follow logs", "It is an option of inspect, and comes after the command: tb-supervisor inspect"),
        (
            "--hold 5m",
            "It is an option of exporter, manifests and rules, and comes after the command: tb-supervisor exporter",
        ),
        ("manifests /a --logdir /b", "Several logdirs were given, /b and /a; expected one."),
        ("stacks nosuch", "nosuch does not exist. The directory {here} has no 'nosuch'. Expected the number of a"),
        ("stacks 4194304", "There is no process 4194304 on this machine. Give the logdir: its sessions are found."),
        ("exporter logs --refresh-interval x", "'x' is not a duration above 0; write 15, 15s, 2m or 1h30m"),
        (
            "watch logs",
            "--notify, --on-event or --ping is missing, as in `tb-supervisor watch --notify ntfy://TOPIC /runs`",
        ),
        ("watch --notify token logs", "Notify URL 1 is not SCHEME://...; expected one as ntfy://TOPIC."),
        ("watch --ping token logs", "The ping URL is none of a web server, as https://HOST/ID."),
        (
            "watch --ping http://h --notify-on pge logs",
            "The topics are 'pge'; expected some of page, warn, info, restart",
        ),
    ],
)
def test_what_was_mistyped(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str) -> None:
    """A command or an option that does not exist: what may have been meant."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "train.sh").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(main, "name", "tb-supervisor")
    error = error_of(run(*words.split()))
    assert said.format(here=tmp_path) in error and "token" not in error


@each(
    "words, said",
    [
        (["sh", "a.sh"], "LOGDIR is missing, as in `tb-supervisor run runs -- sh a.sh`."),
        (["no-such", "x"], "The -- after LOGDIR is missing: `tb-supervisor run no-such -- x`"),
        (["--", "./a.sh"], "LOGDIR is missing, as in `tb-supervisor run runs -- ./a.sh`."),
        (["./logs"], "COMMAND is missing, as in `tb-supervisor run ./logs -- python train.py`"),
        (["logs", "--"], "COMMAND is missing, as in `tb-supervisor run logs -- python train.py`"),
        (["--logdir", "logs"], "COMMAND is missing, as in `tb-supervisor run logs -- python train.py`"),
        (["logs", "no-such"], "The -- after LOGDIR is missing: `tb-supervisor run logs -- no-such`"),
        (["", "--", "sh"], "LOGDIR is empty: ''; expected a directory. If it came from a variable, that is not set."),
        (["--logdir=", "--", "sh"], "--logdir is empty: ''; expected a directory."),
        (["a.sh", "--", "sh"], "LOGDIR is a.sh, a file; expected a directory, which need not exist yet."),
        (["logs", "--", ""], "COMMAND is empty: ''; expected a program."),
        (["logs", "--reset"], "--reset comes after LOGDIR; expected `tb-supervisor run [OPTIONS] LOGDIR -- COMMAND`"),
        (["logs", "--notify", "json://x", "--", "sh"], "--notify comes after LOGDIR; expected `tb-supervisor run ["),
        (["--hang-actin", "x", "logs", "--", "sh"], "There is no option --hang-actin. Did you mean --hang-action"),
    ],
)
def test_running_without_a_part(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    """Which part is missing, with the command as it may have been meant; a program that does not exist is named.
    Nothing is run or written."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    (tmp_path / "logs").mkdir()
    (tmp_path / "a.sh").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)
    assert said in error_of(run("run", *words))
    assert not os.listdir(tmp_path / "logs") and len(os.listdir(tmp_path)) == 3


@each(
    "environment, warns",
    [
        ({}, False),
        ({"TORCHELASTIC_RUN_ID": "x"}, True),
        ({"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_MAX_RESTARTS": "3"}, True),
        ({"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_MAX_RESTARTS": "0"}, False),
    ],
)
def test_run_inside_of_torchrun_is_warned_about(environment: dict[str, str], warns: bool) -> None:
    """Where that one restarts its ranks, too."""
    assert (_outer_restarter(environment) is not None) == warns

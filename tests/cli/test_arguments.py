"""The commands that show runs take the same arguments: logdirs, patterns, events files, filters."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

from supervisor_core.cli import exporter
from supervisor_core.events import EventsWriter
from tests.cases import each

Seen = Callable[..., set[str]]

COMMANDS = ("inspect", "verify", "exporter", "report", "watch")
READING = COMMANDS[:3]
"""``report`` reads as ``inspect`` does, and ``watch`` as ``exporter``, which waits for a logdir."""


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A logdir with the runs ``x/a``, ``x/a/below`` and ``y/b``, and a file that is no events file."""
    for name in ("x/a", "x/a/below", "y/b"):
        with EventsWriter(str(tmp_path / "logs" / name)) as writer:
            writer.scalar("loss", 1.0, 7)
    (tmp_path / "logs" / "x" / "README").touch()
    return tmp_path / "logs"


@pytest.fixture(params=READING)
def seen(
    request: pytest.FixtureRequest, run: Callable[..., Result], logs: Path, monkeypatch: pytest.MonkeyPatch
) -> Seen:
    """Returns a function that calls a command and returns the runs that it read, by their directories in `logs`."""
    served: list[str] = []

    def instead_of_listening(serving: Any, *_: object) -> None:
        served[:] = [found.directory for watch in serving.watches for found in watch.refresh().runs.values()]
        raise click.exceptions.Exit(0)

    monkeypatch.setattr(exporter, "_web", instead_of_listening)

    def call(*arguments: object) -> set[str]:
        if request.param == "exporter":
            result, paths = run(request.param, *arguments), served
        else:
            result = run(request.param, "--json", *arguments)
            whole = json.loads(result.stdout)
            paths = [os.path.join(whole["logdir"], item["run"]) for item in whole["runs"]]
        assert result.exit_code == 0, result.stderr
        names = [os.path.relpath(path, logs) for path in paths]
        assert len(names) == len(set(names))
        return set(names)

    return call


def test_a_logdir_is_an_argument_or_an_option(seen: Seen, logs: Path) -> None:
    """Both mean the same, and both may be repeated."""
    assert seen(logs) == seen("--logdir", logs) == {"x/a", "x/a/below", "y/b"}
    assert seen(logs / "x", "--logdir", logs / "y") == {"x/a", "x/a/below", "y/b"}


def test_a_pattern(seen: Seen, logs: Path) -> None:
    """It stands for all that it matches; what is no logdir among that is left out."""
    assert seen(f"{logs}/x/*") == {"x/a", "x/a/below"}
    assert seen(f"{logs}/*/[b]") == {"y/b"}


def test_an_events_file(seen: Seen, logs: Path) -> None:
    """It stands for its directory, without those below."""
    (file,) = (logs / "x" / "a").glob("*tfevents*")
    assert seen(file) == {"x/a"}
    assert seen(file, logs / "y") == {"x/a", "y/b"}
    assert seen(file, logs / "x") == {"x/a", "x/a/below"}
    assert seen(file, logs / "x" / "a") == seen(logs / "x" / "a", file) == {"x/a", "x/a/below"}


def test_filters(seen: Seen, logs: Path) -> None:
    """Of all of that, regular expressions choose runs by their names in their logdirs."""
    assert seen(logs, "--include", "a$") == {"x/a"}
    assert seen(logs, "--exclude", "below|b$") == {"x/a"}
    assert seen(logs, "--include", "a", "--exclude", "below") == {"x/a"}
    (file,) = (logs / "x" / "a").glob("*tfevents*")
    assert seen(file, logs / "y", "--include", "b") == {"y/b"}


@each("command", COMMANDS)
@each(
    "arguments, said",
    [
        ([], "LOGDIR is missing, as in `tb-supervisor {command} "),
        ([""], "LOGDIR is empty: ''; expected a directory."),
        (["--logdir="], "--logdir is empty: ''; expected a directory."),
        (
            ["{logs}/x/README"],
            "{logs}/x/README is a file, and no events file, which has tfevents in its name; give the",
        ),
        (["{logs}/z*"], "Nothing matches {logs}/z*."),
        (["nosuchfs://bucket"], "no file system for nosuchfs:// is installed"),
        (["{logs}", "--include", "("], "Invalid value for '--include': '(': missing )"),
        (["{logs}", "--exclude", "["], "Invalid value for '--exclude': '[': unterminated"),
    ],
)
def test_what_cannot_be_used(
    run: Callable[..., Result],
    logs: Path,
    command: str,
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is named in the same words by each command, with what was expected; status 2."""
    monkeypatch.setenv("SUPERVISOR_PING", "http://127.0.0.1:9")
    given = [argument.format(logs=logs) for argument in arguments]
    result = run(command, *given)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("Error: ")
    assert said.format(logs=logs, command=command) in result.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", ["inspect", "verify"])
@pytest.mark.parametrize(
    "arguments, said",
    [
        (["{logs}/x/b"], "{logs}/x/b does not exist. The directory {logs}/x has no 'b'."),
        (["{logs}/x/a/belwo"], "{logs}/x/a/belwo does not exist. Did you mean {logs}/x/a/below?"),
        (["{logs}/x/a/belwo/c"], "{logs}/x/a/belwo/c does not exist. Did you mean {logs}/x/a/below?"),
        (["s3:/bucket/runs"], "If an address was meant: s3://bucket/runs."),
        (["~/no such"], "A shell replaces ~ only where it is not quoted: give "),
        (["{logs}/empty"], "in {logs}/empty or below it."),
        (["{logs}", "--include", "z"], "{logs} or below it of a run whose name matches --include 'z'. Leave that out"),
    ],
)
def test_what_may_have_been_meant(
    run: Callable[..., Result], logs: Path, command: str, arguments: list[str], said: str
) -> None:
    """One line says it, with names that are spelled like what came."""
    (logs / "empty").mkdir()
    (logs / "x" / "a" / "below" / "c").mkdir()
    result = run(command, *(argument.format(logs=logs) for argument in arguments))
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1
    assert said.format(logs=logs, command=command) in result.stderr


def test_a_run_that_is_not_there(run: Callable[..., Result], logs: Path) -> None:
    """Its error names the closest ones, and how many there are."""
    assert "has no run 'x/aa'; did you mean 'x/a'? It has 3 runs." in run("inspect", logs, "--run", "x/aa").stderr
    assert "has no run 'q'; it has 3 runs: 'x/a', 'x/a/below', 'y/b'." in run("inspect", logs, "--run", "q").stderr


def test_a_state_that_does_not_exist(run: Callable[..., Result], logs: Path) -> None:
    """The error lists the states, and the one that may have been meant."""
    said = run("inspect", logs, "--fail-on", "lst").stderr
    assert "'lst' is no state; expected some of running,stalled,lost,stopped,completed,failed,unknown" in said
    assert said.endswith("Did you mean lost?\n")
    assert "'' is no state; expected some of " in run("inspect", logs, "--fail-on", "").stderr  # an unset variable

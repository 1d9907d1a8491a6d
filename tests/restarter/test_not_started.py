"""Why a program could not be started: what was looked for, what is wrong with it, what to do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.restarter.child import why_not_started
from tests.cases import each


def reason(*command: str, path: str | None = None) -> str:
    """What is said of a command that the system refuses."""
    environment = {"PATH": os.environ["PATH"] if path is None else path}
    with pytest.raises(OSError) as caught:
        subprocess.Popen(command, env=environment)
    assert caught.value.errno is not None
    return why_not_started(command, caught.value.errno, environment)


def file(path: Path, data: bytes, mode: int = 0o755) -> str:
    """A file with this content."""
    path.write_bytes(data)
    path.chmod(mode)
    return str(path)


def test_what_was_looked_for_is_named(tmp_path: Path) -> None:
    """The directories of PATH, a file, a directory."""
    path = f"/nowhere:{tmp_path}"
    assert reason("pyhton", path=path) == f"there is no program 'pyhton' in the directories of PATH ({path})"
    assert reason(f"{tmp_path}/a") == f"there is no file '{tmp_path}/a'"
    assert reason(str(tmp_path)) == f"'{tmp_path}' is a directory, not a program"


@each("by_path", [True, False])
def test_a_file_that_is_not_executable(tmp_path: Path, by_path: bool) -> None:
    """Found by its path, or in a directory of PATH."""
    found = file(tmp_path / "train", b"#!/bin/sh\n", 0o644)
    said = f"{found!r} is not executable: give its interpreter first, or `chmod +x {found}`"
    assert reason(found if by_path else "train", path=str(tmp_path)) == said


@each(
    "first_line, said",
    [
        (
            b"#!/usr/bin/pyhton3 -u",
            "No such file or directory; its first line names the interpreter",
        ),
        (b"#! /bin/sh\r", "names the interpreter '/bin/sh\\r': the line ends with a carriage return"),
        (b"#!/etc/passwd", "Permission denied; its first line names the interpreter '/etc/passwd'"),
        (b"import sys", "is neither a program of this machine nor a script whose first line begins with #!"),
    ],
)
def test_a_script_whose_first_line_is_wrong(tmp_path: Path, first_line: bytes, said: str) -> None:
    """The interpreter is what is missing, not the script that is there."""
    found = file(tmp_path / "train.py", first_line + b"\n")
    text = reason(found)
    assert text.startswith(repr(found)) and said in text


def test_the_line_of_the_restarter_names_it(running: Callable[..., Any]) -> None:
    """It is the last one: no restart would help."""
    restarter = running("pyhton", "train.py")
    assert restarter.status() == 93
    assert "not started: there is no program 'pyhton' in the directories of PATH (" in restarter.log


def test_a_disk_that_takes_nothing_is_named_by_its_file(tmp_path: Path, run_command: list[str]) -> None:
    """Whatever the restarter cannot write, its lines say where."""
    logs = tmp_path / "logs"
    limited = ["bash", "-c", 'ulimit -f 0; exec "$@"', "bash", *run_command, "--logdir", str(logs), "--", "true"]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"WARNING {logs}/.supervisor.restarts: File too large\n" in done.stderr
    assert all(str(logs) in line for line in done.stderr.splitlines() if "File too large" in line)


def test_any_other_reason_names_the_program(tmp_path: Path) -> None:
    """As too long a command line."""
    assert reason("/bin/true", "x" * (1 << 22)) == "'/bin/true': Argument list too long"

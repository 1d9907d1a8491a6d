"""What a shell makes of printed commands: they are pasted into a real one, in which nothing but stubs can be run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_ROWS = json.loads(Path(__file__).with_name("hostile").joinpath("names.json").read_text())
NAMES: list[str] = [row["name"] for row in _ROWS]
"""Names of directories that somebody may have made."""
SHOWN: dict[str, str] = {row["name"]: row["shown"] for row in _ROWS}
"""Each name, as people see it."""

_COMMANDS = {
    "tb-supervisor": "(?:inspect|verify|stacks|run|exporter|rules|manifests|dashboard)",
    "pip": "(?:un)?install",
    "htpasswd": "-",
    "chmod": "[0-7]",
    "tensorboard": "--",
}
"""Program -> what comes after it in a command, and not in a sentence."""
_COMMAND = re.compile(
    rf"(?<![\w/.-])(?:{'|'.join(f'{name} {after}' for name, after in _COMMANDS.items())}).*", re.DOTALL
)

_STUB = """#!/bin/sh
printf '%s\\0' "$#" "${0##*/}" "$@" >> "$PASTED"
"""
_START = """HISTFILE=
set -T -o history
history -s touch pwned
trap 'printf "%s\\0" "$BASH_COMMAND" >> "$TRACED"' DEBUG
"""
"""bash keeps what it runs, subshells included; and ``!!`` would run something."""


def commands_in(text: str) -> list[str]:
    """The command in a text, if there is one: from its program to the text's end."""
    return _COMMAND.findall(text)


def paste(commands: Sequence[str], directory: Path, shell: str = "bash") -> list[list[str]]:
    """Paste commands into a shell at which somebody sits; return the words of each program that was run.

    Fails if a file was made, or if bash has run anything else: more, or fewer, commands than lines were pasted.
    """
    program = shutil.which(shell)
    assert program is not None
    home, stubs, pasted, traced, start = (directory / name for name in ("home", "stubs", "pasted", "traced", "start"))
    for made in (home, stubs):
        made.mkdir(parents=True)
    for name in (*_COMMANDS, "touch", "rm"):
        (stubs / name).write_text(_STUB)
        (stubs / name).chmod(0o755)
    for file in (pasted, traced):
        file.write_bytes(b"")
    start.write_text(_START)
    options = ["--noprofile", "--rcfile", str(start)] if shell == "bash" else []
    done = subprocess.run(
        [program, *options, "-i"],
        input="".join(f"{command}\n" for command in commands).encode(),
        cwd=home,
        env={
            "PATH": str(stubs),
            "HOME": str(home),
            "PASTED": str(pasted),
            "TRACED": str(traced),
            "LC_ALL": "C.UTF-8",
            "PS1": "",
            "PS2": "",
        },
        capture_output=True,
        timeout=60,
        check=False,
    )
    said = done.stderr.decode("utf-8", "backslashreplace")
    assert list(home.iterdir()) == [], said
    if shell == "bash":
        ran = traced.read_bytes().split(b"\0")[:-1]
        assert len(ran) == len(commands), f"{len(commands)} commands were pasted, {len(ran)} were run:\n{said}"
    return _calls(pasted.read_bytes())


def _calls(recorded: bytes) -> list[list[str]]:
    words = recorded.decode("utf-8", "surrogateescape").split("\0")[:-1]
    calls = []
    while words:
        count = int(words[0])
        calls.append(words[1 : count + 2])
        words = words[count + 2 :]
    return calls

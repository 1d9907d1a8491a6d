"""`why_not_started`: why the system could not run a program, and what to do, from the error's number and the files."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice

from supervisor_core.base.log import command_line

MOST_BYTES = 4096
"""Of a program's file: Linux reads its first 256 for the interpreter's name."""
MOST_PROGRAMS = 5_000
"""Of one directory of PATH, among which one of a similar name is looked for."""
INTERPRETERS = {".py": ("python", "python3"), ".sh": ("bash", "sh")}
"""End of a script's name -> what may start it."""


def why_not_started(command: Sequence[str], number: int, environment: Mapping[str, str]) -> str:
    """Return the reason, with the program's name and the files that were looked for.

    Args:
        command: the program and its arguments.
        number: the `errno` of its start.
        environment: the one in which it was looked for.

    Example:
        >>> why_not_started(["pyhton", "train.py"], errno.ENOENT, {"PATH": "/nowhere"})
        "there is no program 'pyhton' in the directories of PATH (/nowhere)"
    """
    name = command[0]
    path = environment.get("PATH", os.defpath)
    if "/" in name:
        return _of_file(name, number, path)
    found = shutil.which(name, path=path)
    if found is not None:
        return _of_file(found, number, path)
    others = [other for each in path.split(os.pathsep) if os.path.isfile(other := os.path.join(each, name))]
    if others and number == errno.EACCES:
        return _of_file(others[0], number, path)
    reason = f"there is no program {name!r} in the directories of PATH ({path})"
    if os.path.isfile(name):
        with_interpreter = _with_interpreter(name, path)
        return f"{reason}; for the file in this directory give {with_interpreter or repr(f'./{name}')}"
    close = get_close_matches(name, _programs(path), 1)
    return f"{reason}; a similar one is {close[0]!r}" if close else reason


def _programs(path: str) -> set[str]:
    """Return the names of files in the directories of PATH."""
    found: set[str] = set()
    for each in path.split(os.pathsep):
        with suppress(OSError):
            found.update(islice(os.listdir(each), MOST_PROGRAMS))
    return found


def _with_interpreter(file: str, path: str) -> str | None:
    """Return what starts a script by its interpreter, a command; None where its name does not say which."""
    interpreters = INTERPRETERS.get(os.path.splitext(file)[1], ())
    found = next((name for name in interpreters if shutil.which(name, path=path)), None)
    return None if found is None else f"`{command_line(found, file)}`"


def _of_file(path: str, number: int, search_path: str) -> str:
    shown, with_interpreter = repr(path), _with_interpreter(path, search_path)
    try:
        mode = os.stat(path).st_mode
        with open(path, "rb") if stat.S_ISREG(mode) else open(os.devnull, "rb") as file:
            head = file.read(MOST_BYTES)
    except FileNotFoundError:
        return f"there is no file {shown}"
    except OSError:
        return f"{shown}: {os.strerror(number)}"
    if stat.S_ISDIR(mode):
        return f"{shown} is a directory, not a program"
    interpreter = head.partition(b"\n")[0][2:].strip(b" \t").decode(errors="replace") if head[:2] == b"#!" else None
    if number == errno.EACCES:
        if not os.access(path, os.X_OK):
            give = f"give {with_interpreter or 'its interpreter first'}"
            return f"{shown} is not executable: {give}, or `{command_line('chmod', '+x', path)}`"
        where = "its file system may be mounted with noexec"
        return f"{shown} may not be run: {where if interpreter is None else _of_interpreter(interpreter) or where}"
    if number == errno.ENOENT and interpreter is not None:
        return f"{shown} cannot be run: {_of_interpreter(interpreter) or os.strerror(number)}"
    if number == errno.ENOENT:
        return f"{shown} cannot be run: the loader that it names is missing, it was built for another system"
    if number == errno.ENOEXEC:
        reason = f"{shown} is neither a program of this machine nor a script whose first line begins with #!"
        return reason if with_interpreter is None else f"{reason}; give {with_interpreter}"
    return f"{shown}: {os.strerror(number)}"


def _of_interpreter(line: str) -> str | None:
    """Return what is wrong with the interpreter that a script's first line names; None if nothing is."""
    path = line.split(" ")[0].split("\t")[0]
    said = f"its first line names the interpreter {path!r}"
    if path.endswith("\r"):
        return f"{said}: the line ends with a carriage return, as in a file from Windows"
    if not os.path.exists(path):
        return f"{said}, and there is no such file"
    if os.path.isdir(path) or not os.access(path, os.X_OK):
        return f"{said}, which is not an executable file"
    return None

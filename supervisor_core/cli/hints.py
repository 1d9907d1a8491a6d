"""What may have been meant by a path, an option, a command or a program that does not exist: ends of error messages.

Each function returns a sentence or several. A command in it can be pasted. Nothing is looked for far away: the
directory around a path, the directories of PATH, the names of commands and options.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice

import click

from supervisor_core.base.log import command_line
from supervisor_core.run.model.words import listed

_MOST_ENTRIES = 2_000
"""Of directories that are looked through for a hint."""
_MOST_SHOWN = 3
_ONE_SLASH = re.compile(r"([a-z][a-z0-9+.-]+):/+([^/].*)")


def missing(what: str, context: click.Context | None) -> click.UsageError:
    """Return the error for what a command was not given, with the first example of its help."""
    epilog = "" if context is None else context.command.epilog or ""
    found = re.search(r"^\s*(tb-supervisor .*)$", epilog, re.MULTILINE)
    return click.UsageError(f"{what} is missing" + (f", as in `{found[1]}`" if found else "."), context)


def close_to(word: str, words: Iterable[str]) -> str:
    """Return a question with the words that are spelled like one; empty without any.

    Example:
        >>> close_to("inspct", ["inspect", "verify"])
        'Did you mean inspect?'
    """
    close = get_close_matches(word, list(words), _MOST_SHOWN)
    return f"Did you mean {' or '.join(close)}?" if close else ""


def of_path(path: str) -> str:
    """Return what to say of a local path that does not exist."""
    if path.startswith("~"):
        return f"A shell replaces ~ only where it is not quoted: give {command_line(os.path.expanduser(path))}."
    if (match := _ONE_SLASH.fullmatch(path)) and match[1] != "file":
        return f"If an address was meant: {match[1]}://{match[2]}."
    missing, parent = os.path.basename(path.rstrip("/")), os.path.dirname(path.rstrip("/"))
    while parent and not os.path.exists(parent):
        missing, parent = os.path.basename(parent), os.path.dirname(parent)
    names: list[str] = []
    with suppress(OSError), os.scandir(parent or ".") as found:
        names = [entry.name for entry in islice(found, _MOST_ENTRIES) if entry.is_dir()]
    near = [command_line(os.path.join(parent, name)) for name in get_close_matches(missing, names, _MOST_SHOWN)]
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return f"The directory {command_line(os.path.abspath(parent))} has no {missing!r}."


def of_option(name: str, context: click.Context | None, commands: Iterable[tuple[str, click.Command]]) -> str:
    """Return what to say of an option that a command does not have.

    Args:
        name: the option.
        context: the command's.
        commands: all commands, by name.
    """
    others = [other for other, command in commands if name in _options(command)]
    if others:
        return f"It is an option of {listed(others)}, and comes after the command: tb-supervisor {others[0]} {name}."
    own = [] if context is None else _options(context.command)
    long = [each for each in own if each.startswith(f"-{name}")]  # -json, of which -j comes here
    close = f"Did you mean {' or '.join(long)}?" if len(name) == 2 and long else close_to(name, own)
    path = "tb-supervisor" if context is None else context.command_path
    return close or f"`{path} --help` lists the options."


def of_command(words: Sequence[str], commands: Iterable[str]) -> str:
    """Return what to say of a command that does not exist.

    Args:
        words: what came, from the command on.
        commands: the names of those that there are.
    """
    name, known = words[0], sorted(commands)
    if name in ("help", "version"):
        return f"Did you mean `tb-supervisor --{name}`?"
    if os.path.isdir(name):
        return f"To see the runs in that directory: `{command_line('tb-supervisor', 'inspect', name)}`"
    if close := close_to(name, known):
        return close
    if os.path.isfile(name) or shutil.which(name) is not None:
        return f"To run that program: `{run_line(words)}`"
    return f"The commands are {', '.join(known)}."


def run_line(words: Sequence[str], logdir: str = "runs") -> str:
    """Return the command that runs a program under supervision."""
    return command_line("tb-supervisor", "run", logdir, "--", *words)


def _options(command: click.Command) -> list[str]:
    found = [name for item in command.params if isinstance(item, click.Option) for name in item.opts]
    return [*found, "--help"]

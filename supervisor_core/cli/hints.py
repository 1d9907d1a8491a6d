"""What may have been meant by a path, an option, a command or a program that does not exist: ends of error messages.

Each function returns a sentence or several. A command in it can be pasted. Nothing is looked for far away: the
directory around a path, the directories of PATH, the names of commands and options.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from itertools import accumulate, islice

import click

from supervisor_core.base.log import command_line

_MOST_ENTRIES = 2_000
"""Of directories that are looked through for a hint."""
_MOST_SHOWN = 3
_MOST_WORDS = 20
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
    parts = path.split(",")
    if len(parts) > 1 and all(map(os.path.exists, parts)):
        return f"Several are separated by blanks: {command_line(*parts)}."
    missing, parent = os.path.basename(path.rstrip("/")), os.path.dirname(path.rstrip("/"))
    while parent and not os.path.exists(parent):
        missing, parent = os.path.basename(parent), os.path.dirname(parent)
    names = [name for name, is_directory in _entries(parent or ".") if is_directory]
    near = [command_line(os.path.join(parent, name)) for name in get_close_matches(missing, names, _MOST_SHOWN)]
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return f"The directory {command_line(os.path.abspath(parent))} has no {missing!r}."


def divided(words: Sequence[str]) -> str | None:
    """Return the path that the first words are together, if they are one that a shell has divided at its blanks."""
    if len(words) < 2 or os.path.lexists(words[0]):
        return None
    joined = accumulate(words[:_MOST_WORDS], "{} {}".format)
    return next((path for path in joined if os.path.exists(path)), None)


def of_pattern(pattern: str, mark: re.Pattern[str]) -> str:
    """Return what to say of a pattern of local paths that matches nothing: about its part before the first mark."""
    found = mark.search(pattern)
    fixed = os.path.dirname(pattern[: found.start() if found else None]) or "."
    if not os.path.isdir(fixed):
        return f"{fixed} does not exist. {of_path(fixed)}"
    return f"{fixed} exists: `{command_line('ls', os.path.join(fixed, ''))}` shows what there is to match."


def of_logdir_without_runs(path: str) -> str:
    """Return where runs are near a local directory that has none: in the directory around it; empty without any."""
    parent = os.path.dirname(os.path.abspath(path))
    if not any(_events_files(parent)):
        return ""
    return f"{parent} has some: `{command_line('tb-supervisor', 'inspect', parent)}`"


def of_option(name: str, context: click.Context | None, commands: Iterable[tuple[str, click.Command]]) -> str:
    """Return what to say of an option that a command does not have.

    Args:
        name: the option.
        context: the command's, with that of the whole around it.
        commands: all commands, by name.
    """
    own = [] if context is None else _options(context.command)
    others = [other for other, command in commands if name in _options(command)]
    if not others:
        long = [each for each in own if each.startswith(f"-{name}")]  # -json, of which -j comes here
        close = f"Did you mean {' or '.join(long)}?" if len(name) == 2 and long else close_to(name, own)
        return close or f"{_help_of(context)} lists the options."
    if context is not None and context.parent is None:
        return f"It is an option of {_listed(others)}, and comes after the command: tb-supervisor {others[0]} {name}."
    return f"It is an option of {_listed(others)}: {_help_of(context)} lists those of this command."


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


def _help_of(context: click.Context | None) -> str:
    return f"`{'tb-supervisor' if context is None else context.command_path} --help`"


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _entries(directory: str) -> Iterator[tuple[str, bool]]:
    """Yield the first entries of a directory: name, and whether it is a directory; nothing where that is unknown."""
    with suppress(OSError), os.scandir(directory) as found:
        for entry in islice(found, _MOST_ENTRIES):
            yield entry.name, entry.is_dir()


def _events_files(top: str) -> Iterator[str]:
    """Yield events files in and below a directory, the highest first, among its first few entries."""
    from supervisor_core.events.directory import is_events_file  # which loads NumPy

    def below() -> Iterator[str]:
        directories = deque([top])
        while directories:
            directory = directories.popleft()
            for name, is_directory in _entries(directory):
                yield name
                if is_directory:
                    directories.append(os.path.join(directory, name))

    return (name for name in islice(below(), _MOST_ENTRIES) if is_events_file(name))

"""Which logdirs a command is given: one grammar for all commands, as arguments and as ``--logdir``.

Where a command takes several, each may be given either way. A path that does not exist and has ``*``, ``?`` or ``[`` in
it is a pattern for local directories. An events file stands for the directory that it is in, without those below.
"""

from __future__ import annotations

import functools
import glob
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, cast

import click
from click.shell_completion import CompletionItem

from supervisor_core.cli import Command, WrongInput
from supervisor_core.storage.local import local_path

_PATTERN = re.compile(r"[*?[]")


def directories(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete an argument as a directory."""
    return [CompletionItem(incomplete, type="dir")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Logdir:
    """A directory with runs."""

    path: str
    itself_only: bool = False
    """Whether runs in directories below it are left out."""

    @property
    def include(self) -> str | None:
        """The regular expression for names of its runs; None: all of them."""
        return r"^\.$" if self.itself_only else None


def logdirs(
    text: str = "The same as LOGDIR. Repeatable.", *, metavar: str = "LOGDIR", default: str | None = None
) -> Callable[[Command], Command]:
    """Return what gives a command any number of logdirs: the parameter ``logdirs``, a tuple of what was typed, each
    once.

    Args:
        text: the help of ``--logdir``.
        metavar: what an argument is.
        default: what there is without any; None: one is required.
    """

    def decorate(command: Command) -> Command:
        def called(*args: Any, logdir_arguments: tuple[str, ...], logdir_options: tuple[str, ...], **given: Any) -> Any:
            found = tuple(dict.fromkeys((*logdir_options, *logdir_arguments))) or (
                () if default is None else (default,)
            )
            if not found:
                raise click.UsageError(f"Missing argument '{metavar}'.")
            return command(*args, logdirs=found, **given)

        option = click.option(
            "--logdir", "logdir_options", multiple=True, metavar="DIR", shell_complete=directories, help=text
        )
        argument = click.argument("logdir_arguments", metavar=f"[{metavar}]...", nargs=-1, shell_complete=directories)
        decorated: Any = functools.wraps(command)(called)
        return cast("Command", argument(option(decorated)))

    return decorate


def one_logdir(given: Sequence[str]) -> str:
    """Return the logdir of a command that takes a single one.

    Raises:
        click.UsageError: if several were given.
    """
    if len(given) > 1:
        raise click.UsageError(f"Several logdirs were given, {' and '.join(given[:2])}; expected one.")
    return given[0]


def existing(given: Iterable[str]) -> list[Logdir]:
    """Return the directories that arguments stand for, each once, in their order; a remote one as it is.

    Of several arguments, files that are no events files are left out: a pattern of the shell may match some.

    Raises:
        WrongInput: for one that does not exist, or is nothing of the kind; for a pattern that matches nothing.
    """
    paths = [path for each in given for path in expanded(each)]
    found: dict[str, Logdir] = {}
    wrong: WrongInput | None = None
    for path in paths:
        try:
            logdir = _existing(path)
        except _NotALogdir as error:
            wrong = wrong or error
            continue
        known = found.get(_key(logdir.path))
        if known is None or known.itself_only:
            found[_key(logdir.path)] = logdir
    if not found and wrong is not None:
        raise wrong
    whole = {key for key, logdir in found.items() if not logdir.itself_only}
    return [logdir for key, logdir in found.items() if not any(_is_below(key, other) for other in whole)]


def expanded(path: str) -> list[str]:
    """Return what a pattern of local paths matches, by name; a path that is none as it is, without a look at the disk.

    Raises:
        WrongInput: for a pattern that matches nothing.
    """
    local = local_path(path)
    if local is None or not _PATTERN.search(local) or os.path.exists(local):
        return [path]
    found = sorted(glob.glob(local, recursive=True))
    if not found:
        raise WrongInput(f"Nothing matches {path}.")
    return found


class _NotALogdir(WrongInput):
    """A file that is no events file."""


def _existing(path: str) -> Logdir:
    local = local_path(path)
    if local is None or os.path.isdir(local):
        return Logdir(path=path)
    if os.path.exists(local):
        from supervisor_core.events.directory import is_events_file  # which loads NumPy

        if is_events_file(os.path.basename(local)):
            return Logdir(path=os.path.dirname(local) or ".", itself_only=True)
        raise _NotALogdir(f"{path} is a file; give the directory that it is in.")
    if os.path.exists(f"{local}.index"):
        raise WrongInput(f"{path} is a checkpoint; give the directory that it is in.")
    raise WrongInput(f"{path} does not exist.")


def _key(path: str) -> str:
    local = local_path(path)
    return path.rstrip("/") if local is None else os.path.abspath(local)


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip("/") + "/")


def common_directory(found: Sequence[Logdir]) -> str:
    """Return the directory that several have in common, of which names of runs are relative; of one, itself.

    Example:
        >>> common_directory([Logdir(path="/runs/a"), Logdir(path="/runs/b/c")])
        '/runs'
    """
    if len(found) == 1:
        return found[0].path
    parts = [_key(logdir.path).split("/") for logdir in found]
    shared = shared_parts(parts)
    return "/".join(shared) or "/"


def shared_parts(paths: Iterable[Sequence[str]]) -> list[str]:
    """Return the first parts that several paths have in common."""
    return [level[0] for level in takewhile(lambda level: len(set(level)) == 1, zip(*paths, strict=False))]


def name_in(directory: str, logdir: str, run: str) -> str:
    """Return the name of a run of a logdir, relative to a directory around it; where it is in none, its path.

    Example:
        >>> name_in("/runs", "/runs/b/c", "."), name_in("/runs", "/runs/a", "b"), name_in("/", "gs://x/y", "a")
        ('b/c', 'a/b', 'gs://x/y/a')
    """
    top, whole = _key(directory), _key(logdir) + ("" if run == "." else f"/{run}")
    if whole == top:
        return "."
    return whole[len(top.rstrip("/")) + 1 :] if _is_below(whole, top) else whole

"""Which logdirs a command is given: one grammar for all commands, as arguments and as ``--logdir``.

Where a command takes several, each may be given either way. A path that does not exist and has ``*``, ``?`` or ``[`` in
it is a pattern for local directories. An events file stands for the directory that it is in, without those below. Of
these directories, ``--include`` and ``--exclude`` choose runs by name.
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

from supervisor_core.base.log import command_line
from supervisor_core.base.options import CACHE_VARIABLE
from supervisor_core.cli import Command, WrongInput, hints
from supervisor_core.storage.local import local_path

_PATTERN = re.compile(r"[*?[]")
_NOTHING = r"(?!)"


def directories(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete an argument as a directory."""
    return [CompletionItem(incomplete, type="dir")]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenLogdir:
    """A directory with runs."""

    path: str
    itself_only: bool = False
    """Whether runs in directories below it are left out."""

    def include(self, wanted: str | None = None) -> str | None:
        """Return the regular expression for names of its runs, of which one is wanted; None: all of them."""
        if not self.itself_only:
            return wanted
        return r"^\.$" if wanted is None or re.search(wanted, ".") else _NOTHING


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
                raise hints.missing(metavar, click.get_current_context())
            for name, values in (("--logdir", logdir_options), (metavar, logdir_arguments)):
                if "" in values:
                    raise empty(name)
            return command(*args, logdirs=found, **given)

        option = click.option(
            "--logdir", "logdir_options", multiple=True, metavar="DIR", shell_complete=directories, help=text
        )
        argument = click.argument("logdir_arguments", metavar=f"[{metavar}]...", nargs=-1, shell_complete=directories)
        decorated: Any = functools.wraps(command)(called)
        return cast("Command", argument(option(decorated)))

    return decorate


def empty(name: str) -> WrongInput:
    """Return the error for an empty logdir, as an unset variable of a shell gives it."""
    return WrongInput(f"{name} is empty: ''; expected a directory. If it came from a variable, that is not set.")


def filters(command: Command) -> Command:
    """Give a command ``--include`` and ``--exclude``; it gets a regular expression, or None, of each."""
    for name, text in (
        ("--exclude", "Leave out runs whose name matches."),
        ("--include", "Only runs whose name matches."),
    ):
        command = click.option(name, metavar="REGEX", callback=_expression, help=text)(command)
    return command


def cache(command: Command) -> Command:
    """Give a command ``--cache``; it gets the directory, or None."""
    return click.option(
        "--cache",
        metavar="DIR",
        envvar=CACHE_VARIABLE,
        callback=lambda context, parameter, given: given or None,
        shell_complete=directories,
        help=f"Keep in DIR what was read, so that the next start reads what is new. [env: {CACHE_VARIABLE}]",
    )(command)


def _expression(context: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    try:
        re.compile(given or "")
    except re.error as error:
        raise click.BadParameter(f"{given!r}: {error}; expected a regular expression like 'mnist|digits'.") from error
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRuns:
    """The runs that a command is about, as they were given."""

    logdirs: tuple[str, ...]
    include: str | None = None
    """A regular expression that a run's name must match somewhere; None: all match."""
    exclude: str | None = None
    """One that it must not match anywhere."""
    cache: str | None = None
    """See `LogdirWatch`."""

    def existing(self, find: Callable[[str], GivenLogdir] | None = None) -> list[GivenLogdir]:
        """Return the logdirs; see `existing`."""
        return existing(self.logdirs, find)


def given_runs(command: Command) -> Command:
    """Give a command LOGDIR, ``--include``, ``--exclude`` and ``--cache``; it gets them as `GivenRuns`, by ``runs``."""

    def called(*args: Any, logdirs: tuple[str, ...], include: str, exclude: str, cache: str, **given: Any) -> Any:
        runs = GivenRuns(logdirs=logdirs, include=include, exclude=exclude, cache=cache)
        return command(*args, runs=runs, **given)

    return logdirs()(filters(cache(cast("Command", functools.wraps(command)(called)))))


def is_wanted(name: str, include: str | None, exclude: str | None) -> bool:
    """Say whether the options leave a run of this name."""
    included = include is None or re.search(include, name) is not None
    return included and (exclude is None or re.search(exclude, name) is None)


def no_runs(what: str, given: Sequence[str]) -> WrongInput:
    """Return the error for logdirs in which there is nothing to show.

    Args:
        what: what was looked for.
        given: the logdirs, as they were given.
    """
    context = click.get_current_context()
    said = f"There are no {what} in {' or '.join(given)} or below it"
    wanted = [
        f"{verb} --{name} {context.params[name]!r}"
        for name, verb in (("include", "matches"), ("exclude", "does not match"))
        if context.params.get(name) is not None
    ]
    if wanted:
        return WrongInput(f"{said} of a run whose name {' and '.join(wanted)}. Leave that out to see all.")
    return WrongInput(f"{said}.")


def one_logdir(given: Sequence[str]) -> str:
    """Return the logdir of a command that takes a single one.

    Raises:
        click.UsageError: if several were given.
    """
    if len(given) > 1:
        raise click.UsageError(f"Several logdirs were given, {' and '.join(given[:2])}; expected one.")
    return given[0]


def existing(given: Iterable[str], find: Callable[[str], GivenLogdir] | None = None) -> list[GivenLogdir]:
    """Return the directories that arguments stand for, each once, in their order; a remote one as it is.

    Of several arguments, files that are no events files are left out: a pattern of the shell may match some.

    Args:
        given: the arguments.
        find: what returns the directory of one path. Default: `find_logdir`.

    Raises:
        WrongInput: for one that does not exist, or is nothing of the kind; for a pattern that matches nothing.
    """
    find = find or find_logdir
    paths = [path for each in given for path in expanded(each)]
    found: dict[str, GivenLogdir] = {}
    wrong: WrongInput | None = None
    for path in paths:
        try:
            logdir = find(path)
        except NotALogdir as error:
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


class NotALogdir(WrongInput):
    """A file that is no events file."""


class NoSuchLogdir(WrongInput):
    """Nothing is there."""


def find_logdir(path: str) -> GivenLogdir:
    """Return the directory that a path stands for; a remote one as it is.

    Raises:
        NoSuchLogdir: if there is nothing.
        NotALogdir: for a file that is no events file.
        WrongInput: for the name of a checkpoint.
    """
    local = local_path(path)
    if local is None or os.path.isdir(local):
        return GivenLogdir(path=path)
    directory = os.path.dirname(local) or "."
    if os.path.exists(local):
        from supervisor_core.events.directory import is_events_file  # which loads NumPy

        if is_events_file(os.path.basename(local)):
            return GivenLogdir(path=directory, itself_only=True)
        raise NotALogdir(
            f"{path} is a file, and no events file, which has tfevents in its name; give the directory that it is in: "
            f"{command_line(directory)}"
        )
    if os.path.exists(f"{local}.index"):
        raise WrongInput(f"{path} is a checkpoint; give the directory that it is in: {command_line(directory)}")
    raise NoSuchLogdir(f"{path} does not exist. {hints.of_path(local)}")


def _key(path: str) -> str:
    local = local_path(path)
    return path.rstrip("/") if local is None else os.path.abspath(local).replace(os.sep, "/")


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip("/") + "/")


def common_directory(found: Sequence[GivenLogdir]) -> str:
    """Return the directory that several have in common, of which names of runs are relative; of one, itself.

    Example:
        >>> common_directory([GivenLogdir(path="/runs/a"), GivenLogdir(path="/runs/b/c")])
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

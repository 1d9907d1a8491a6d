"""``tb-supervisor``: the command line, whose commands are loaded when they are called. docs/cli.md describes them.

Failures of the terminal, and input that cannot be used, end a command with one line. Below `main` is what arguments of
several commands have in common: durations, labels, and paths that a shell completes.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from supervisor_core.base.install import DISTRIBUTION
from supervisor_core.base.log import printable, printable_lines
from supervisor_core.base.systems import user_id
from supervisor_core.run.model.thresholds import RUN_LABELS, duration, parse_duration

INTERRUPTED_STATUS = 130
"""128 and the number of SIGINT, as a shell reports it."""
CLOSED_PIPE_STATUS = 141
"""128 and the number of SIGPIPE, likewise."""
OUTPUT_STATUS = 74
"""EX_IOERR of sysexits.h: the output could not be written."""

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a full disk: a command that gets one ends with `OUTPUT_STATUS`."""


class LazyGroup(click.Group):
    """The group of `COMMANDS`, each the object in its module that has its name.

    Ctrl-C, a closed pipe and a full disk end a command with one line on standard error, and a status of their own.

    Example:
        >>> group = LazyGroup()
        >>> group.get_command(click.Context(group), "verify").name
        'verify'
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in alphabetical order."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, loading it; None for one that does not exist."""
        if cmd_name not in COMMANDS:
            return None
        return _command(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is called; one that does not exist is an error that names similar ones."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            from supervisor_core.cli import hints

            if name in REMOVED:
                ctx.fail(f"The command {name!r} was removed. Instead: {REMOVED[name]}.")
            ctx.fail(f"There is no command {name!r}. {hints.of_command(args, COMMANDS)}")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; without any, print the help: a wrong call."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit(click.UsageError.exit_code)
        return super().parse_args(ctx, args)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the arguments; help and version are printed here."""
        with _failures_in_one_line():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was called."""
        with _failures_in_one_line():
            return super().invoke(ctx)


def _command(name: str) -> click.Command:
    command: click.Command = getattr(import_module(COMMANDS[name]), name)
    return command


@contextmanager
def _failures_in_one_line() -> Iterator[None]:
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except click.NoSuchOption as error:
        from supervisor_core.cli import hints

        commands = [(name, _command(name)) for name in sorted(COMMANDS)]
        hint = hints.of_option(error.option_name, error.ctx, commands)
        raise click.UsageError(printable(f"There is no option {error.option_name}. {hint}"), error.ctx) from None
    except click.MissingParameter as error:
        from supervisor_core.cli import hints

        given = error.param
        name = given.opts[0] if isinstance(given, click.Option) else given and given.human_readable_name
        raise hints.missing(str(name), error.ctx) from None
    except click.ClickException as error:
        vars(error)["message"] = printable_lines(error.message)  # the names in it may be anybody's
        raise
    except KeyboardInterrupt:
        click.echo("\nInterrupted.", err=True)
        raise click.exceptions.Exit(INTERRUPTED_STATUS) from None
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            text, status = "The output was closed before everything was written", CLOSED_PIPE_STATUS
        elif error.errno in NO_SPACE:
            text, status = f"Cannot write the output: {error.strerror}", OUTPUT_STATUS
        else:
            raise
        _discard_output()
        click.echo(f"Error: {text}.", err=True)
        raise click.exceptions.Exit(status) from None


def _discard_output() -> None:
    """Let the interpreter's last flush succeed: it would print a traceback otherwise."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    try:
        number = version(DISTRIBUTION)
    except PackageNotFoundError:
        number = "(not installed: running from the sources)"
    click.echo(f"tb-supervisor {number}")
    context.exit()


COMMANDS = {
    "dashboard": "supervisor_core.cli.render",
    "export": "supervisor_core.cli.export",
    "exporter": "supervisor_core.cli.exporter",
    "inspect": "supervisor_core.cli.inspect",
    "manifests": "supervisor_core.cli.render",
    "mcp": "supervisor_core.cli.mcp",
    "report": "supervisor_core.cli.report",
    "rules": "supervisor_core.cli.render",
    "rewind": "supervisor_core.cli.rewind",
    "run": "supervisor_core.cli.run",
    "stacks": "supervisor_core.cli.stacks",
    "verify": "supervisor_core.cli.verify",
    "watch": "supervisor_core.cli.watch",
}
"""Command -> the module that defines it."""

REMOVED = {
    "diff": "compare the arrays with what wrote them: torch.load(..., weights_only=True), safetensors.safe_open, "
    "tf.train.load_checkpoint; tb-supervisor verify --values shows NaN and the norm of each checkpoint",
}
"""A command that was removed -> what to use instead."""


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="\b\nExamples:\n  tb-supervisor inspect /runs\n  tb-supervisor inspect --help",
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Inspect, verify and monitor training runs. Works without TensorFlow."""


Command = TypeVar("Command", bound=Callable[..., Any])

if TYPE_CHECKING:
    _Seconds = click.ParamType[float]
else:
    _Seconds = click.ParamType  # generic from click 8.4 on only

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_TAKEN = frozenset(
    (
        "run",
        "job",
        "instance",
        "logdir",
        "phase",
        "thread",
        "worker",
        "activity",
        "reason",
        "le",
        "state",
        "cause",
        "kind",
        "severity",
        "alertname",
    )
)


SYSTEMS = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}
"""``sys.platform`` -> what people call it."""


def require_system(command: str, *systems: str) -> None:
    """Do nothing on a system on which a command works.

    Args:
        command: its name.
        systems: of `SYSTEMS`.

    Raises:
        WrongInput: on any other.
    """
    if sys.platform not in systems:
        names = " and ".join(map(SYSTEMS.__getitem__, systems))
        raise WrongInput(
            f"tb-supervisor {command} works on {names}; this is {SYSTEMS.get(sys.platform, sys.platform)}."
        )


class WrongInput(click.ClickException):
    """Ends a command with one line and status 2: the input cannot be used."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class Duration(_Seconds):
    """A duration like ``15``, ``15s``, ``2m`` or ``1h30m``; the command gets seconds.

    Args:
        least: the shortest that is accepted, in seconds.
        most: the longest that is accepted, in seconds.
    """

    name = "duration"

    def __init__(self, least: float = 0.0, most: float = float("inf")) -> None:
        self._least, self._most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        try:
            secs = parse_duration(value) if isinstance(value, str) else float(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not self._least <= secs <= self._most:
            self.fail(f"{value!r} is not from {duration(self._least)} to {duration(self._most)}", param, ctx)
        return secs


def seconds_option(
    name: str, text: str, *, default: str | None = None, least: float = 0.0, most: float = float("inf")
) -> Callable[[Command], Command]:
    """Return an option that is a `Duration`; the command gets it by the option's name and ``_secs``."""
    parameter = name.strip("-").replace("-", "_") + "_secs"
    return click.option(name, parameter, type=Duration(least, most), default=default, help=text)


def paths(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete an argument as a file."""
    return [CompletionItem(incomplete, type="file")]


def checked_target(target: str) -> str:
    """Return where a file is written: through links, but no other user's, where it is a file already, or nothing
    yet.

    Args:
        target: as it was typed.

    Raises:
        WrongInput: if no file can be there.
    """
    path = os.path.realpath(target)
    if os.path.islink(target) and os.lstat(target).st_uid not in (0, user_id()):
        raise WrongInput(f"{target} is another user's link to {path}: give that, or the name of another file.")
    if os.path.lexists(path) and not os.path.isfile(path):
        what = "a directory" if os.path.isdir(path) else "no file"
        raise WrongInput(f"{target} is {what}; expected the name of a file to write.")
    if not os.path.basename(target):
        raise WrongInput(f"{target} is the name of a directory; expected the name of a file to write.")
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        raise WrongInput(f"The directory {os.path.dirname(target)} does not exist; create it first.")
    return path


@contextmanager
def writing(target: str, advice: str = "") -> Iterator[None]:
    """End the command with one line if a file cannot be written; a full disk is left to `LazyGroup`.

    Args:
        target: the file, as it was typed.
        advice: a sentence more.
    """
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise
        text = f"{target} cannot be written: {error.strerror or error}. {advice}"
        raise WrongInput(text.rstrip()) from error


def by_option(labels: Sequence[str] = RUN_LABELS) -> Callable[[Command], Command]:
    """Return the option ``--by``; a command gets a tuple of labels, ``run`` first.

    Args:
        labels: the default.
    """
    return click.option(
        "--by",
        default=",".join(labels),
        metavar="LABELS",
        callback=_labels,
        help="Labels that identify a run: run, and what the scraper adds.",
    )


def _labels(ctx: click.Context, param: click.Parameter, given: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in given.split(","))
    if names[0] != "run" or len(set(names)) < len(names):
        raise click.BadParameter(f"{given!r}; expected 'run' first, and each label once, for example 'run,namespace'.")
    for name in names[1:]:
        if not _LABEL.fullmatch(name) or name in _TAKEN:
            raise click.BadParameter(f"{name!r} cannot identify a run; expected a label like 'namespace'.")
    return names

"""What the commands' arguments have in common: wrong input, durations, labels, and paths that a shell completes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from supervisor_core.log import printable
from supervisor_core.monitoring.thresholds import duration, parse_duration

Command = TypeVar("Command", bound=Callable[..., Any])

if TYPE_CHECKING:
    _Seconds = click.ParamType[float]
else:
    _Seconds = click.ParamType  # generic from click 8.4 on only

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_TAKEN = frozenset(
    ("run", "job", "instance", "logdir", "phase", "thread", "worker", "activity", "reason", "le", "state")
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


def directories(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete an argument as a directory."""
    return [CompletionItem(incomplete, type="dir")]


def paths(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete an argument as a file."""
    return [CompletionItem(incomplete, type="file")]


def by_option(command: Command) -> Command:
    """Give a command ``--by``; it gets a tuple of labels, ``run`` first."""
    return click.option(
        "--by",
        default="run",
        show_default=True,
        metavar="LABELS",
        callback=_labels,
        help="Labels that identify a run, for example run,namespace. Every alert of a run has them.",
    )(command)


def _labels(ctx: click.Context, param: click.Parameter, given: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in given.split(","))
    if names[0] != "run" or len(set(names)) < len(names):
        raise click.BadParameter(f"{given!r}; expected 'run' first, and each label once, for example 'run,namespace'.")
    for name in names[1:]:
        if not _LABEL.fullmatch(name) or name in _TAKEN:
            raise click.BadParameter(f"{name!r} cannot identify a run; expected a label like 'namespace'.")
    return names

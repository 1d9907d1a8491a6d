"""The option that says which labels tell runs apart."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_TAKEN = frozenset(
    ("run", "job", "instance", "logdir", "phase", "thread", "worker", "activity", "reason", "le", "state")
)


def _labels(ctx: click.Context, param: click.Parameter, given: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in given.split(","))
    if names[0] != "run" or len(set(names)) < len(names):
        raise click.BadParameter(f"{given!r}; expected 'run' first, and each label once, as 'run,namespace'.")
    for name in names[1:]:
        if not _LABEL.fullmatch(name) or name in _TAKEN:
            raise click.BadParameter(f"{name!r} is no label that may tell runs apart; expected one as 'namespace'.")
    return names


def by_option(command: Command) -> Command:
    """Give a command ``--by``; it gets a tuple of labels, ``run`` first."""
    return click.option(
        "--by",
        default="run",
        show_default=True,
        metavar="LABELS",
        callback=_labels,
        help="The labels that tell runs apart, as run,namespace; every alert of a run has them.",
    )(command)

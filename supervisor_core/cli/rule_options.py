"""The options of the commands that print rules: thresholds, and the URL of the runbook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from supervisor_core.cli.parameters import Duration, WrongInput
from supervisor_core.monitoring.thresholds import DEFAULT_RUNBOOK_BASE, Thresholds, duration

Command = TypeVar("Command", bound=Callable[..., Any])

_USUAL = Thresholds()

_DURATIONS = {
    "interval": "How often Prometheus evaluates the rules. Use the scrape interval.",
    "hold": "How long a condition must hold before an alert fires, except for a stall.",
    "stall-hold": "How long a run must be stalled before an alert fires.",
    "dead-hold": "How long a run must be lost or failed before an alert fires.",
    "unanswered": "How long a trainer without an exporter may not answer before it is lost.",
    "forget": "After how long without a report a dead run, or a deleted exporter, is dropped.",
    "silent": "How long the alert for a silent run of another program stays on.",
    "save-hold": "How long saves, or event writes, must fail before an alert fires.",
    "worker-hold": "How long a worker must be lost before an alert fires.",
    "worker-wait": "How long a worker may wait, or make no progress, while its chief trains.",
    "behind": "How old an exporter's data may be. At least twice its refresh interval.",
    "slow-window": "The time over which speed is averaged. It is compared with 24 times as long.",
}
_NUMBERS: dict[str, tuple[click.ParamType[Any], str]] = {
    "checkpoint-intervals": (click.FLOAT, "How many checkpoint intervals old the newest checkpoint may be."),
    "restarts": (click.INT, "How many unplanned restarts within one hour are a loop."),
    "recoveries": (click.INT, "How many lost TensorFlow sessions within half an hour are a loop."),
    "slow-below": (click.FLOAT, "A training is slow below this share of its usual speed."),
    "goodput-below": (click.FLOAT, "Goodput is low below this share of the sessions' time."),
}


def rule_options(command: Command) -> Command:
    """Give a command the options; it gets them as keyword arguments, for `limits_of`."""
    decorators = [
        *(
            click.option(
                f"--{name}",
                _field(name),
                type=Duration(),
                default=duration(getattr(_USUAL, _field(name))),
                show_default=True,
                metavar="DURATION",
                help=text,
            )
            for name, text in _DURATIONS.items()
        ),
        *(
            click.option(
                f"--{name}",
                _field(name),
                type=kind,
                default=getattr(_USUAL, _field(name)),
                show_default=True,
                metavar="NUMBER",
                help=text,
            )
            for name, (kind, text) in _NUMBERS.items()
        ),
    ]
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def runbook_option(default: str | None = DEFAULT_RUNBOOK_BASE) -> Callable[[Command], Command]:
    """Return the option for the URL of docs/alerts.md.

    Args:
        default: shown as it is; None lets the command choose, and say how in its own description.
    """
    return click.option(
        "--runbook-base",
        default=default,
        show_default=default is not None,
        metavar="URL",
        help="URL of the page of alerts. A runbook_url is this and the alert's anchor.",
    )


def limits_of(given: dict[str, Any]) -> Thresholds:
    """Return the thresholds that the options give.

    Raises:
        WrongInput: if one makes no sense.
    """
    try:
        return Thresholds(**given)
    except ValueError as error:
        field, _, rest = str(error).partition(" ")
        raise WrongInput(f"--{field.removesuffix('_secs').replace('_', '-')} {rest}.") from error


def checked_url(url: str) -> str:
    """Return the URL.

    Raises:
        WrongInput: if it is none that a browser can follow.
    """
    if not url.startswith(("http://", "https://")) or not url.isprintable() or " " in url or "#" in url:
        raise WrongInput(
            f"The runbook base is {url!r}; expected a URL like https://wiki.example.org/alerts, without '#'."
        )
    return url


def _field(option: str) -> str:
    return option.replace("-", "_") + ("_secs" if option in _DURATIONS else "")

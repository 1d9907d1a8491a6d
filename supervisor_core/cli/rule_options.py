"""The options that the commands which print rules share: thresholds, and where the runbook is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from supervisor_core.monitoring.thresholds import DEFAULT_RUNBOOK_BASE, Thresholds, duration, parse_duration

Command = TypeVar("Command", bound=Callable[..., Any])

_USUAL = Thresholds()

if TYPE_CHECKING:
    _Seconds = click.ParamType[float]
else:
    _Seconds = click.ParamType  # generic from click 8.4 on only


class Duration(_Seconds):
    """A duration as Prometheus writes it; seconds to the command."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        if not isinstance(value, str):
            return float(value)
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class WrongInput(click.ClickException):
    """Ends a command with one line and status 2."""

    exit_code = 2


_DURATIONS = {
    "interval": "How often the rules are evaluated; best the scrape interval.",
    "hold": "For how long something must be so before it is an alert, other than a stall.",
    "stall-hold": "For how long a run must be past its phase's budget before that is an alert.",
    "dead-hold": "For how long a run must be lost, or have failed, before that is an alert.",
    "unanswered": "For how long a training process that no exporter reports may not answer before it is lost.",
    "forget": "After how long without a report a dead run, or an exporter that is gone, is given up.",
    "silent": "For how long a run that another writer writes is an alert after it has ceased.",
    "save-hold": "For how long saves, or events, must fail before that is an alert.",
    "worker-hold": "For how long another process of a cluster must be lost before that is an alert.",
    "worker-wait": "For how long another process of a cluster may wait, or not move, while its chief trains.",
    "behind": "How old what an exporter serves may be; at least twice its refresh interval.",
    "slow-window": "The time over which the speed is averaged; it is compared with 24 times as long.",
}
_NUMBERS: dict[str, tuple[click.ParamType[Any], str]] = {
    "checkpoint-intervals": (click.FLOAT, "How many checkpoint intervals the newest checkpoint may be old."),
    "restarts": (click.INT, "How many unplanned restarts within an hour are a loop."),
    "recoveries": (click.INT, "How many lost sessions of TensorFlow's within half an hour are a loop."),
    "slow-below": (click.FLOAT, "The share of its usual speed below which a training is slow."),
    "goodput-below": (click.FLOAT, "The share of the sessions' time that must go into steps which are kept."),
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
    """Return the option that says where docs/alerts.md is to be read.

    Args:
        default: shown as it is; None lets the command choose, and say how in its own description.
    """
    return click.option(
        "--runbook-base",
        default=default,
        show_default=default is not None,
        metavar="URL",
        help="Where the page of alerts is; an alert's runbook is this and its anchor.",
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

"""``tb-supervisor run``: starts a training, and starts it again when it has died or hangs."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from supervisor_core.cli import Duration, WrongInput, directories
from supervisor_core.cli.exporter import configure_log
from supervisor_core.errors import SupervisorError
from supervisor_core.log import error_text

if TYPE_CHECKING:
    from supervisor_core.restarter.restarter import RestarterEnd


@click.command(
    short_help="Start a training, and start it again when it has died or hangs.",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    epilog="\b\nExamples:\n"
    "  tb-supervisor run --logdir /runs/mnist -- python train.py --logdir /runs/mnist\n"
    "  tb-supervisor run --logdir /runs/mnist -- torchrun --max-restarts=0 train.py",
)
@click.option(
    "--logdir",
    required=True,
    metavar="DIR",
    shell_complete=directories,
    help="Where the program writes its events and checkpoints: they show whether it makes progress.",
)
@click.option(
    "--no-progress-limit",
    "no_progress",
    type=click.IntRange(1, 1000),
    default=3,
    metavar="N",
    help="End after N launches in a row without progress.",
)
@click.option(
    "--identical-limit",
    "identical",
    type=click.IntRange(1, 1000),
    default=3,
    metavar="N",
    help="End after N identical failures in a row.",
)
@click.option(
    "--restarts-per-hour",
    "per_hour",
    type=click.IntRange(1, 1000),
    default=10,
    metavar="N",
    help="End when more than N restarts are needed within an hour without progress.",
)
@click.option(
    "--max-backoff",
    "backoff_max_secs",
    type=Duration(least=0.0, most=86_400.0),
    default="5m",
    help="The longest wait before a restart.",
)
@click.option(
    "--never-restart",
    "never",
    type=click.IntRange(1, 255),
    multiple=True,
    metavar="STATUS",
    help="Exit status of the program after which it is not started again, besides 93. Repeatable.",
)
@click.option(
    "--stop-timeout",
    "stop_timeout_secs",
    type=Duration(least=0.1, most=86_400.0),
    default="28s",
    help="How long the program may take to end after a stop signal.",
)
@click.option(
    "--stall-timeout",
    "stall_timeout_secs",
    type=Duration(least=1.0, most=864_000.0),
    help="Take a program without a progress page for hung if it writes no events for this long.",
)
@click.option(
    "--on-hang",
    type=click.Choice(["restart", "observe"]),
    default="restart",
    help="What to do with a program that hangs, after its stacks were taken.",
)
@click.option(
    "--hang-timeout",
    "hang_timeout_secs",
    type=Duration(least=0.1, most=864_000.0),
    help="End a program that hangs only after this long without progress, even where its budget is shorter. Default: "
    "when its own watchdog would act, never before 5m in training; 5m where the program does not say.",
)
@click.option(
    "--reset",
    is_flag=True,
    help="Count failures and restarts from zero: the cause of those so far was repaired.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(logdir: str, never: tuple[int, ...], command: tuple[str, ...], **given: Any) -> None:
    """Run COMMAND, and run it again whenever it dies or hangs, as long as that gets the run in the logdir further.

    Works with any program that writes events or TensorFlow checkpoints. SIGTERM, SIGINT, SIGHUP and SIGQUIT stop it:
    the program gets SIGINT or SIGTERM, and has the time of --stop-timeout to end.

    Exit status: 0 when the program is done; after a stop signal that of the program; 93 if another restart would not
    help; 94 if too many restarts were needed; 95 if the logdir is in use; 2 if an argument is wrong.
    """
    from supervisor_core.restarter.journal import LaunchJournal
    from supervisor_core.restarter.launch import Display, RestarterOptions
    from supervisor_core.restarter.logdir_view import LogdirView
    from supervisor_core.restarter.policy import NEVER_STATUS, Limits
    from supervisor_core.restarter.restarter import Restarter

    configure_log()
    counts = {item.name: given.pop(item.name) for item in fields(Limits) if item.name in given}
    limits = Limits(**counts, never=(NEVER_STATUS, *never))
    options = RestarterOptions(logdir=logdir, command=command, limits=limits, **given)
    display = Display()
    if sys.stderr.isatty():
        from supervisor_core.cli.display import TerminalDisplay  # which imports rich

        display = TerminalDisplay()
    if (warning := _outer_restarter(os.environ)) is not None:
        display.line(f"warning: {warning}")
    try:
        view = LogdirView(logdir)
        end = Restarter(options, view, display=display, journal=LaunchJournal(command)).run()
    except SupervisorError as error:
        raise WrongInput(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"Cannot start the program: {error_text(error)}.") from error
    _end_process(end)


def _end_process(end: RestarterEnd) -> None:
    """End this process as its end says: with a status, or by a signal, so that whoever waits for it sees that one."""
    if end.signal is not None:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # of SIGQUIT
            signal.signal(end.signal, signal.SIG_DFL)
            sys.stdout.flush()
            os.kill(os.getpid(), end.signal)
        sys.exit(128 + end.signal)  # process 1 does not die of it
    sys.exit(end.status)


def _outer_restarter(environment: Mapping[str, str]) -> str | None:
    """Return a warning where another restarter would restart this one's program as well; None where none would."""
    if "TORCHELASTIC_RUN_ID" in environment and environment.get("TORCHELASTIC_MAX_RESTARTS") != "0":
        return (
            "this runs inside torchrun, which restarts its ranks itself: run torchrun inside tb-supervisor run, or "
            "give it --max-restarts=0"
        )
    return None

"""``tb-supervisor run``: starts a training, and starts it again when it has died or hangs."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any

import click

from supervisor_core.base.errors import SupervisorError
from supervisor_core.base.log import error_text
from supervisor_core.base.options import STOP_TIMEOUT_SECS
from supervisor_core.cli import Command, WrongInput, hints, require_system, seconds_option
from supervisor_core.cli.logdirs import directories, empty
from supervisor_core.cli.serving import configure_log
from supervisor_core.cli.watch import notify_options, settings_of
from supervisor_core.notify.settings import NotifySettings
from supervisor_core.storage.local import local_path

NODE_VARIABLES = ("SLURM_NODEID", "JOB_COMPLETION_INDEX")
"""Where schedulers say which machine of a job this is."""

_CHECK_SECS = 5.0
"""How long a logdir may take to say whether it is a file."""


def _count_option(name: str, default: int, text: str) -> Callable[[Command], Command]:
    kind = click.IntRange(1, 1000)
    return click.option(name, type=kind, default=default, metavar="N", help=text)


@click.command(
    short_help="Start a training, and start it again when it has died or hangs.",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    epilog="\b\nExamples:\n"
    "  tb-supervisor run /runs/mnist -- python train.py --logdir /runs/mnist\n"
    "  tb-supervisor run --logdir /runs/mnist -- torchrun --max-restarts=0 train.py",
)
@click.option(
    "--logdir",
    metavar="DIR",
    shell_complete=directories,
    help="Where the program writes its events and checkpoints, which show whether it makes progress: the same as "
    "LOGDIR. Without it LOGDIR and -- come before COMMAND.",
)
@_count_option("--no-progress-limit", 3, "End after N launches in a row without progress.")
@_count_option("--identical-limit", 3, "End after N identical failures in a row.")
@_count_option("--restarts-per-hour", 10, "End when more than N restarts are needed within an hour without progress.")
@seconds_option("--max-backoff", "The longest wait before a restart.", default="5m", most=86_400.0)
@click.option(
    "--never-restart",
    "never",
    type=click.IntRange(1, 255),
    multiple=True,
    metavar="STATUS",
    help="Exit status of the program after which it is not started again, besides 93. Repeatable.",
)
@seconds_option(
    "--stop-timeout",
    "How long a stop of the program may take. A session in it takes no longer; what still runs 3s later is killed.",
    default=f"{STOP_TIMEOUT_SECS:g}s",
    least=0.1,
    most=86_400.0,
)
@click.option(
    "--hang-action",
    type=click.Choice(["restart", "observe"]),
    default="restart",
    help="What to do with a program that hangs, after its stacks were taken.",
)
@seconds_option(
    "--hang-timeout",
    "How long the program may make no progress, as Options.hang_timeout_secs, which comes first where the program "
    "gives one. Progress is what its progress page shows; without one, an event in --logdir. Default: learned; what "
    "was learned ends no program before 5m in training, or 10m without a page.",
    least=1.0,
    most=864_000.0,
)
@click.option(
    "--reset",
    is_flag=True,
    help="Count failures and restarts from zero: the cause of those so far was repaired.",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, 100_000),
    default=1,
    metavar="N",
    help="The training runs on N machines: give this command on each, with the same --logdir, which they share.",
)
@click.option(
    "--node",
    type=click.IntRange(0),
    metavar="K",
    help="With --nodes: the number of this machine, from 0. Default: SLURM_NODEID, or JOB_COMPLETION_INDEX. Node 0 "
    "decides for all.",
)
@notify_options
@click.argument("command", metavar="[LOGDIR --] COMMAND...", nargs=-1, type=click.UNPROCESSED)
def run(logdir: str | None, never: tuple[int, ...], node: int | None, command: tuple[str, ...], **given: Any) -> None:
    """Run COMMAND; restart it when it dies or hangs while the run in the logdir makes progress.

    Works with any program that writes events or TensorFlow checkpoints. SIGTERM, SIGINT, SIGHUP and SIGQUIT stop it:
    the program gets SIGINT or SIGTERM, and has --stop-timeout to end.

    Exit status: 0 when the program is done; after a stop signal that of the program; 93 if another restart would not
    help; 94 if too many restarts were needed; 95 if another tb-supervisor run holds the logdir; 2 if an argument is
    wrong.
    """
    require_system("run", "linux")
    from supervisor_core.restarter.journal import LaunchJournal
    from supervisor_core.restarter.launch import RestarterOptions, say
    from supervisor_core.restarter.logdir_view import LogdirView
    from supervisor_core.restarter.nodes import Follower
    from supervisor_core.restarter.policy import NEVER_STATUS, Limits
    from supervisor_core.restarter.restarter import Restarter
    from supervisor_core.restarter.running import Node

    where = "--logdir"
    if logdir is None:
        where, (logdir, command) = "LOGDIR", _logdir_and_command(command)
    if not logdir:
        raise empty(where)
    if _is_file(logdir):
        raise WrongInput(f"{where} is {logdir}, a file; expected a directory, which need not exist yet.")
    if not command:
        raise _no_command(logdir)
    if not command[0]:
        raise WrongInput("COMMAND is empty: ''; expected a program. If it came from a variable, that is not set.")
    node = _node(node, given["nodes"], os.environ)
    configure_log(click.style("tb-supervisor", fg="cyan", bold=True) if sys.stderr.isatty() else None)
    notify = _notify(given, node)
    counts = {item.name: given.pop(item.name) for item in fields(Limits) if item.name in given}
    limits = Limits(**counts, never=(NEVER_STATUS, *never))
    options = RestarterOptions(logdir=logdir, command=command, limits=limits, notify=notify, **given)
    if (warning := _outer_restarter(os.environ)) is not None:
        say(f"warning: {warning}")
    try:
        own = Node(options, LogdirView(logdir))
        end = Follower(own, node).run() if node else Restarter(own, LaunchJournal(command)).run()
    except SupervisorError as error:
        raise WrongInput(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"Cannot start the program: {error_text(error)}.") from error
    _end_process(end)


def _notify(given: dict[str, Any], node: int) -> NotifySettings | None:
    """Return where messages are sent; None where they are not. What only the environment says ends no training."""
    is_asked = any(given[name] for name in ("notify", "on_event", "ping"))
    try:
        settings = settings_of(given)
    except WrongInput as error:
        if is_asked:
            raise
        logging.getLogger("supervisor_core").warning("No messages are sent: %s", error.message)
        return None
    return None if node else settings  # node 0 sends them


def _logdir_and_command(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the logdir and the command after it: without ``--logdir`` only ``--`` says which is which."""
    if not words:
        raise hints.missing("LOGDIR -- COMMAND", click.get_current_context())
    first, rest = words[0], words[1:]
    if rest[:1] == ("--",) and rest[1:]:
        return first, rest[1:]
    is_program = shutil.which(first) is not None
    if rest in ((), ("--",)) and not is_program and (os.path.isdir(first) or not os.path.exists(first)):
        raise _no_command(first)
    if rest and not is_program:
        if rest[0].startswith("-"):
            expected = "`tb-supervisor run [OPTIONS] LOGDIR -- COMMAND`"
            raise click.UsageError(f"{rest[0]} comes after LOGDIR; expected {expected}")
        raise click.UsageError(f"The -- after LOGDIR is missing: `{hints.run_line(rest, first)}`")
    raise click.UsageError(f"LOGDIR is missing, as in `{hints.run_line(words)}`.")


def _is_file(logdir: str) -> bool:
    """Say whether a logdir is a file; one that does not answer, as on a dead mount, is none."""
    from supervisor_core.engine.blocking_call import BlockingCall

    local = local_path(logdir)
    if local is None:
        return False
    check = BlockingCall(lambda: os.path.isfile(local), name="logdir-check")
    return check.wait(_CHECK_SECS) and check.result()


def _no_command(logdir: str) -> click.UsageError:
    return click.UsageError(f"COMMAND is missing, as in `{hints.run_line(('python', 'train.py'), logdir)}`")


def _node(given: int | None, nodes: int, environment: Mapping[str, str]) -> int:
    """Return the number of this machine; 0 where there is one."""
    if nodes == 1:
        if given is not None:
            raise click.UsageError("--node needs --nodes, the number of machines.")
        return 0
    found = next((name for name in NODE_VARIABLES if name in environment), None)
    text = str(given) if given is not None else "" if found is None else environment[found]
    what = "--node" if given is not None or found is None else found
    if not text.isdecimal() or int(text) >= nodes:
        came = f"is {text!r}" if text else f"is missing, and none of {', '.join(NODE_VARIABLES)} is set"
        raise click.UsageError(f"{what} {came}. Expected with --nodes {nodes}: 0 to {nodes - 1}.")
    return int(text)


def _end_process(end: int) -> None:
    """End this process with a status, or by the signal that it is minus of, so that whoever waits for it sees that."""
    if end < 0:
        import resource

        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # of SIGQUIT
            signal.signal(-end, signal.SIG_DFL)
            sys.stdout.flush()
            os.kill(os.getpid(), -end)
        sys.exit(128 - end)  # process 1 does not die of it
    sys.exit(end)


def _outer_restarter(environment: Mapping[str, str]) -> str | None:
    """Return a warning where another restarter would restart this one's program as well; None where none would."""
    if "TORCHELASTIC_RUN_ID" in environment and environment.get("TORCHELASTIC_MAX_RESTARTS") != "0":
        return (
            "this runs inside torchrun, which restarts its ranks itself: run torchrun inside tb-supervisor run, or "
            "give it --max-restarts=0"
        )
    return None

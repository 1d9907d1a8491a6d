"""``tb-supervisor exporter``: serves the metrics of every run below some logdirs, from their events files."""

from __future__ import annotations

import logging
import re
import sys
import threading
from typing import TYPE_CHECKING, Any

import click

from supervisor_core.base.errors import OptionsError
from supervisor_core.cli import WrongInput, paths, seconds_option
from supervisor_core.cli.logdirs import GivenRuns, given_runs
from supervisor_core.cli.render import finding_options, limits_of
from supervisor_core.cli.serving import configure_log, found_or_awaited, on_stop_signal, wait_for, watches_of

if TYPE_CHECKING:
    from supervisor_core.base.shard import RunShard
    from supervisor_core.metrics.exporter import Exporter
    from supervisor_core.metrics.web import Web

DEFAULT_ADDRESS = "127.0.0.1:10988"
_LOG = logging.getLogger("supervisor_core")

_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")
_ASK_SECS = 0.1
"""How often it is asked, on a terminal, whether the first look is over."""


def _shard(context: click.Context, parameter: click.Parameter, given: str | None) -> RunShard | None:
    from supervisor_core.base.shard import RunShard

    try:
        return None if given is None else RunShard.parse(given)
    except ValueError as error:
        raise WrongInput(f"The shard is {given!r}: {error}.") from error


@click.command(
    short_help="Serve the metrics of all runs to Prometheus.",
    epilog="\b\nExamples:\n"
    "  tb-supervisor exporter /runs\n"
    "  tb-supervisor exporter /runs '/teams/*/runs' --web.listen-address 0.0.0.0:10988",
)
@given_runs
@click.option(
    "--web.listen-address",
    "address",
    default=DEFAULT_ADDRESS,
    metavar="HOST:PORT",
    help="Where to listen. Without a host: this machine only.",
)
@click.option(
    "--web.config.file",
    "config_file",
    metavar="FILE",
    shell_complete=paths,
    help="TLS and passwords, in exporter-toolkit's format.",
)
@click.option(
    "--web.telemetry-path",
    "telemetry_path",
    default="/metrics",
    metavar="PATH",
    help="Where the metrics are served.",
)
@click.option(
    "--web.allowed-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Refuse requests by another host name, except localhost and IP addresses. Repeatable. Default: any name is "
    "accepted, or none where it listens on this machine only.",
)
@click.option(
    "--shard",
    envvar="SUPERVISOR_SHARD",
    show_envvar=True,
    metavar="I/N",
    callback=_shard,
    help="Serve part I, from 0 on, of the runs in N equal parts. I may be a pod's name that ends in it.",
)
@click.option(
    "--max-runs",
    type=click.IntRange(1),
    default=20_000,
    metavar="N",
    help="Serve at most N runs of a logdir, as many of each owner as of another; those written last first.",
)
@seconds_option("--refresh-interval", "How often the logdirs are read.", default="15s", least=0.1, most=86_400.0)
@seconds_option("--forget-after", "How long a lost run counts as active after its last event.", default="7d")
@finding_options
def exporter(
    runs: GivenRuns,
    address: str,
    config_file: str | None,
    telemetry_path: str,
    hosts: tuple[str, ...],
    shard: RunShard | None,
    max_runs: int,
    refresh_interval_secs: float,
    forget_after_secs: float,
    **limits: Any,
) -> None:
    """Serve the metrics of every run in and below each LOGDIR, from their events files, until SIGTERM or SIGINT.

    LOGDIR is a directory, an events file (it stands for its directory), or a pattern; there may be several. Waits for
    a directory that does not exist yet; a pattern stands for what it matches at the start.

    Exit status: 0 after SIGTERM or SIGINT; 1 if it cannot listen on the address; 2 if an argument is wrong: an
    address, an expression, a web configuration, or a logdir that is a file.
    """
    from supervisor_core.metrics.exporter import Exporter
    from supervisor_core.metrics.held_file import HeldFile

    configure_log()
    watches = watches_of(runs, runs.existing(found_or_awaited), shard, max_runs)
    logdirs = [*(watch.logdir for watch in watches), "" if shard is None else str(shard)]
    kept = None if runs.cache is None else HeldFile(runs.cache, logdirs)
    stop = threading.Event()
    with on_stop_signal(stop.set):
        serving = Exporter(
            watches,
            interval_secs=refresh_interval_secs,
            forget_after_secs=forget_after_secs,
            shard=shard,
            on_page=[] if kept is None else [kept.update],
            thresholds=limits_of(limits),
            held_before={} if kept is None else kept.read(),
        )
        web = _web(serving, address, telemetry_path, config_file, hosts)
        with web:
            _LOG.info("Serving %s", web.url)
            _start(serving, stop)
            wait_for(stop)
        serving.stop()


def _start(serving: Exporter, stop: threading.Event) -> None:
    """Start looking; on a terminal show, until all logdirs were looked at, how many runs are read."""
    if not sys.stderr.isatty():
        serving.start()
        return
    from supervisor_core.cli.text import runs_bar  # which imports rich

    with runs_bar("first look") as on_progress:
        serving.start(on_progress)
        while not serving.has_looked and not stop.wait(_ASK_SECS):
            pass


def _web(serving: Exporter, address: str, telemetry_path: str, config_file: str | None, hosts: tuple[str, ...]) -> Web:
    from supervisor_core.metrics.web import Web
    from supervisor_core.metrics.web_config import WebAccess

    if not telemetry_path.startswith("/") or telemetry_path.startswith("/-/") or not telemetry_path.isprintable():
        raise WrongInput(f"The telemetry path is {telemetry_path!r}; expected one like /metrics, and not below /-/.")
    if strange := [name for name in hosts if not _HOST_NAME.fullmatch(name)]:
        raise WrongInput(f"--web.allowed-host is {strange[0]!r}; expected a name like metrics.example.org, no port.")
    try:
        return Web(serving, address, telemetry_path=telemetry_path, access=WebAccess(config_file), hosts=hosts)
    except OptionsError as error:
        raise WrongInput(str(error)) from error
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise click.ClickException(
            f"Cannot listen on {address}: {reason}. Give another address with --web.listen-address."
        ) from error

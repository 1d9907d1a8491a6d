"""``tb-supervisor exporter``: serves the metrics of every run below some logdirs, from their events files."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from supervisor_core.cli import WrongInput, paths, seconds_option
from supervisor_core.cli.logdirs import GivenLogdir, NoSuchLogdir, cache, existing, filters, find_logdir, logdirs
from supervisor_core.cli.output_file import checked_target
from supervisor_core.errors import EventsError, OptionsError
from supervisor_core.log import printable, printable_lines
from supervisor_core.storage.local import local_path
from supervisor_core.systems import IS_WINDOWS

if TYPE_CHECKING:
    from supervisor_core.metrics.exporter import Exporter
    from supervisor_core.metrics.output_files import OutputFile
    from supervisor_core.metrics.web import Web
    from supervisor_core.run.logdir_watch import LogdirWatch
    from supervisor_core.shard import RunShard

DEFAULT_ADDRESS = "127.0.0.1:10988"
_LOG = logging.getLogger("supervisor_core")

_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")
_ASK_SECS = 0.1
"""How often it is asked, on a terminal, whether the first look is over."""
_CHECK_SECS = 5.0
"""How long a logdir may take to say whether it is one, before the exporter starts without that."""


def _shard(context: click.Context, parameter: click.Parameter, given: str | None) -> RunShard | None:
    from supervisor_core.shard import RunShard

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
@logdirs()
@filters
@cache
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
@seconds_option("--refresh-interval", "How often the logdirs are read.", default="15s", least=0.1, most=86_400.0)
@seconds_option("--forget-after", "How long a lost run counts as active after its last event.", default="7d")
@click.option(
    "--textfile",
    metavar="DIR",
    shell_complete=paths,
    help="Write the metrics into DIR/supervisor.prom, too, after each refresh, for node_exporter.",
)
@click.option(
    "--file-sd",
    metavar="FILE",
    shell_complete=paths,
    help="Write the addresses of this machine's live trainings into FILE, for Prometheus.",
)
@click.option("--detail", is_flag=True, help="Serve everything of every run, ended ones too: many more series.")
def exporter(
    logdirs: tuple[str, ...],
    include: str | None,
    exclude: str | None,
    cache: str | None,
    address: str,
    config_file: str | None,
    telemetry_path: str,
    hosts: tuple[str, ...],
    shard: RunShard | None,
    refresh_interval_secs: float,
    forget_after_secs: float,
    textfile: str | None,
    file_sd: str | None,
    detail: bool,
) -> None:
    """Serve the metrics of every run in and below each LOGDIR, from their events files, until SIGTERM or SIGINT.

    LOGDIR is a directory, an events file (it stands for its directory), or a pattern; there may be several. Waits for
    a directory that does not exist yet; a pattern stands for what it matches at the start.

    Exit status: 0 after SIGTERM or SIGINT; 1 if it cannot listen on the address; 2 if an argument is wrong: an
    address, an expression, a web configuration, a logdir that is a file, or a place where no file can be written.
    """
    from supervisor_core.metrics.exporter import Exporter
    from supervisor_core.run.logdir_watch import LogdirWatch

    configure_log()
    written = _outputs(textfile, file_sd)
    watches: list[LogdirWatch] = []
    for logdir in existing(logdirs, found_or_awaited):
        try:  # no metric needs more ticks
            watch = LogdirWatch(
                logdir.path, logdir.include(include), exclude, shard=shard, kept_ticks=1, all_saves=False, cache=cache
            )
            watches.append(watch)
        except EventsError as error:
            raise WrongInput(str(error)) from error
    stop = threading.Event()
    with on_stop_signal(stop.set):
        serving = Exporter(
            watches,
            interval_secs=refresh_interval_secs,
            forget_after_secs=forget_after_secs,
            shard=shard,
            detail=detail,
            on_page=[each.update for each in written],
        )
        web = _web(serving, address, telemetry_path, config_file, hosts)
        with web:
            _LOG.info("Serving %s", web.url)
            _start(serving, stop)
            while not stop.wait(1.0 if IS_WINDOWS else None):  # there Ctrl-C is handled between two waits
                pass
            _LOG.info("Stopping")
        serving.stop()
        if textfile is not None:
            written[0].remove()


def _outputs(textfile: str | None, file_sd: str | None) -> list[OutputFile]:
    """Return the files to write, the page first."""
    from supervisor_core.metrics.output_files import PAGE_NAME, OutputFile, page, targets

    found = []
    if textfile is not None:
        if not os.path.isdir(textfile):
            raise WrongInput(f"--textfile is {textfile}; expected the directory that node_exporter reads.")
        found.append(OutputFile(checked_target(os.path.join(textfile, PAGE_NAME)), page))
    if file_sd is not None:
        found.append(OutputFile(checked_target(file_sd), targets))
    return found


def on_stop_signal(call: Callable[[], None]) -> AbstractContextManager[object]:
    """Return the block in which a signal that ends the process calls this instead, in a thread."""
    if IS_WINDOWS:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGBREAK):  # type: ignore[attr-defined]
            signal.signal(signum, lambda *_: call())
        return nullcontext()
    from supervisor_core.engine.signal_watch import SignalWatch

    return SignalWatch(lambda signum: call())


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


def found_or_awaited(path: str) -> GivenLogdir:
    """Return the directory of a path, as `find_logdir` does; one that is not there, or does not answer, is awaited."""
    local = local_path(path)
    if local is None:
        return GivenLogdir(path=path)
    from supervisor_core.engine.blocking_call import BlockingCall

    check = BlockingCall(lambda: find_logdir(path), name="logdir-check")
    awaited = GivenLogdir(path=os.path.abspath(local))
    if not check.wait(_CHECK_SECS):  # a dead mount: the other logdirs are to be served all the same
        _LOG.warning("%s does not answer; waiting for it", path)
        return awaited
    try:
        found = check.result()
    except NoSuchLogdir as error:
        _LOG.warning("%s Waiting for it", error.message)
        return awaited
    return replace(found, path=os.path.abspath(local_path(found.path) or found.path))


def _web(serving: Exporter, address: str, telemetry_path: str, config_file: str | None, hosts: tuple[str, ...]) -> Web:
    from supervisor_core.metrics.access import WebAccess
    from supervisor_core.metrics.web import Web

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


class _PlainFormatter(logging.Formatter):
    """Writes names and errors, which are others' texts, on one line and without what a terminal obeys."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        return printable_lines(super().formatException(ei))


class _ErrorStream(logging.StreamHandler):  # type: ignore[type-arg]  # Python 3.10 takes none
    """Writes to what standard error is at the moment: a progress bar stays below the lines."""

    def emit(self, record: logging.LogRecord) -> None:
        self.setStream(sys.stderr)
        super().emit(record)


def configure_log() -> None:
    """Log to standard error: this project from information on, everything else from warnings on.

    Clients of object stores log each request.
    """
    handler = _ErrorStream()
    handler.setFormatter(_PlainFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler])
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("supervisor_core").setLevel(logging.INFO)

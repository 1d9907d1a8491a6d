"""``tb-supervisor exporter``: serves the metrics of every run below some logdirs, from their events files."""

from __future__ import annotations

import logging
import os
import re
import threading
from typing import TYPE_CHECKING, Any

import click

from supervisor_core.cli import WrongInput, paths, seconds_option
from supervisor_core.cli.logdirs import expanded, logdirs
from supervisor_core.errors import EventsError, OptionsError
from supervisor_core.log import printable, printable_lines
from supervisor_core.storage.local import local_path

if TYPE_CHECKING:
    from supervisor_core.metrics.exporter import Exporter
    from supervisor_core.metrics.web import Web
    from supervisor_core.run.logdir_watch import LogdirWatch

DEFAULT_ADDRESS = "127.0.0.1:10988"
_LOG = logging.getLogger("supervisor_core")

_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")
_CHECK_SECS = 5.0
"""How long a logdir may take to say whether it is one, before the exporter starts without that."""


@click.command(
    short_help="Serve the metrics of all runs to Prometheus.",
    epilog="\b\nExamples:\n"
    "  tb-supervisor exporter /runs\n"
    "  tb-supervisor exporter /runs '/teams/*/runs' --web.listen-address 0.0.0.0:10988",
)
@logdirs("Serve the runs in and below DIR: the same as LOGDIR. Repeatable.")
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
@seconds_option("--refresh-interval", "How often the logdirs are read.", default="15s", least=0.1, most=86_400.0)
@seconds_option("--forget-after", "How long a lost run counts as active after its last event.", default="7d")
@click.option("--include", metavar="REGEX", help="Serve only runs whose name matches.")
@click.option("--exclude", metavar="REGEX", help="Leave out runs whose name matches.")
def exporter(
    logdirs: tuple[str, ...],
    address: str,
    config_file: str | None,
    telemetry_path: str,
    hosts: tuple[str, ...],
    refresh_interval_secs: float,
    forget_after_secs: float,
    include: str | None,
    exclude: str | None,
) -> None:
    """Serve the metrics of every run in and below each LOGDIR, from their events files, until SIGTERM or SIGINT.

    Waits for a logdir that does not exist yet. A pattern such as '/teams/*/runs' stands for what it matches at the
    start.

    Exit status: 0 after SIGTERM or SIGINT; 1 if it cannot listen on the address; 2 if an argument is wrong: an
    address, an expression, a web configuration, or a logdir that is a file.
    """
    from supervisor_core.engine.signal_watch import SignalWatch
    from supervisor_core.metrics.exporter import Exporter
    from supervisor_core.run.logdir_watch import LogdirWatch

    configure_log()
    watches: list[LogdirWatch] = []
    for logdir in dict.fromkeys(_checked_logdir(path) for given in logdirs for path in expanded(given)):
        try:
            watches.append(LogdirWatch(logdir, include, exclude, kept_ticks=1))  # no metric needs more
        except (EventsError, ValueError) as error:
            raise WrongInput(str(error)) from error
    stop = threading.Event()
    with SignalWatch(lambda signum: stop.set()):
        serving = Exporter(watches, interval_secs=refresh_interval_secs, forget_after_secs=forget_after_secs)
        web = _web(serving, address, telemetry_path, config_file, hosts)
        with web:
            _LOG.info("Serving %s", web.url)
            serving.start()
            stop.wait()
            _LOG.info("Stopping")
        serving.stop()


def _checked_logdir(logdir: str) -> str:
    local = local_path(logdir)
    if local is None:
        return logdir
    from supervisor_core.engine.blocking_call import BlockingCall

    check = BlockingCall(lambda: (os.path.exists(local), os.path.isdir(local)), name="exporter-check")
    if not check.wait(_CHECK_SECS):  # a dead mount: the other logdirs are to be served all the same
        _LOG.warning("%s does not answer; waiting for it", logdir)
        return os.path.abspath(local)
    exists, is_directory = check.result()
    if exists and not is_directory:
        raise WrongInput(f"{logdir} is a file; give the directory that it is in.")
    if not exists:
        _LOG.warning("%s does not exist yet; waiting for it", logdir)
    return os.path.abspath(local)


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
        raise click.ClickException(
            f"Cannot listen on {address}: {getattr(error, 'strerror', None) or error}."
        ) from error


class _PlainFormatter(logging.Formatter):
    """Writes names and errors, which are others' texts, on one line and without what a terminal obeys."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        return printable_lines(super().formatException(ei))


def configure_log() -> None:
    """Log to standard error: this project from information on, everything else from warnings on.

    Clients of object stores log each request.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_PlainFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler])
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("supervisor_core").setLevel(logging.INFO)

"""What a session takes from its environment: the run's name, versions, where its metrics are served and pushed, the
place of its progress page, and whether its checkpoints' directory can be written."""

from __future__ import annotations

import logging
import os
import platform
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor_core.base.address import parse_address
from supervisor_core.base.clock import Clock, boot_secs
from supervisor_core.base.errors import SaveFailedError
from supervisor_core.base.install import DISTRIBUTION
from supervisor_core.base.log import error_text
from supervisor_core.base.options import Options
from supervisor_core.checkpoint.guard import is_same
from supervisor_core.engine.deadline import Deadline
from supervisor_core.engine.placement import labels_of_session
from supervisor_core.engine.recorder import MOST_BEAT_SECS
from supervisor_core.events.record_fields import shared
from supervisor_core.events.telemetry import DeathRecord, SessionRecord
from supervisor_core.process.identity import started_ticks, this_machine
from supervisor_core.process.page_writer import ProgressPage
from supervisor_core.process.progress_page import PageReading, pages_in, remove_oldest
from supervisor_core.process.runtime_directory import VARIABLE, private_directories, private_directory
from supervisor_core.run.model.liveness_record import LivenessRecord
from supervisor_core.run.status import RunStatus
from supervisor_core.run.watch.live import death_of
from supervisor_core.storage.directory import may_pass, probe, why_unwritable
from supervisor_core.storage.local import absolute, local_path, refuse_link

if TYPE_CHECKING:
    from supervisor_core.metrics.push import MetricsPusher
    from supervisor_core.metrics.server import MetricsServer

_LOG = logging.getLogger("supervisor_core")

LOGDIR_VARIABLE = "SUPERVISOR_LOGDIR"
"""Environment variable: the directory that contains all runs, as the exporter's ``--logdir``."""

_RECORDED = (DISTRIBUTION, "tensorflow", "tensorboard", "numpy", "jax", "jaxlib", "flax", "optax", "grain")


def versions() -> dict[str, str]:
    """Return the versions for a run's records: package -> version."""
    found = {"python": platform.python_version()}
    for package in _RECORDED:
        if package == DISTRIBUTION or package in sys.modules:
            try:
                found[package] = version(package)
            except PackageNotFoundError:  # run from a bare checkout, or a package without metadata
                continue
    return found


def new_record(
    session: str,
    *,
    facade: str,
    options: Options,
    logdir: str | None,
    checkpoint_interval_secs: float | None,
    started_at: float,
) -> SessionRecord:
    """Return the record of a session that begins in this process, without what is known only once it is ready.

    Args:
        facade: the public class or function that the program called.
        options: for the run's name, the labels, the interval of the heartbeats.
        logdir: the run's directory; None if nothing is written.
        checkpoint_interval_secs: configured seconds between checkpoints.
        started_at: the wall time.
    """
    here = this_machine()
    return SessionRecord(
        **shared(SessionRecord, here),
        session=session,
        attempt=1,
        pid=os.getpid(),
        pid_namespace=here.pids,
        process_started_ticks=started_ticks(os.getpid()),
        uid=os.geteuid(),
        facade=facade,
        started_at=started_at,
        run=run_name(options.run_name, logdir)
        if options.run_name or _metrics_targets(options) != (None, None)
        else None,
        logdir=absolute(logdir) if logdir else None,
        checkpoint_interval_secs=checkpoint_interval_secs,
        heartbeat_secs=options.heartbeat_secs,
        recorded_beat_secs=max(MOST_BEAT_SECS, options.heartbeat_secs) if options.heartbeat_secs else 0.0,
        versions=versions(),
        labels=labels_of_session(options),
    )


def run_name(given: str | None, logdir: str | None) -> str:
    """Return what a process that serves metrics calls its run: the given name, or one from the logdir.

    That is its path below ``SUPERVISOR_LOGDIR``, as in an exporter of that directory; otherwise the last two parts of
    its absolute path, ``.`` if there are none. Readers of the logdir follow it, see `RunLocation`.

    Example:
        >>> run_name(None, "/data/exp1/train")
        'exp1/train'
    """
    if given:
        return given
    if not logdir:
        return "."
    path, root = _absolute(logdir), os.environ.get(LOGDIR_VARIABLE)
    if root:
        above = _absolute(root).rstrip("/") + "/"
        if path.startswith(above):
            return path.removeprefix(above)
    _, _, rest = path.rpartition("://")
    parts = [part for part in rest.split("/") if part]
    return "/".join(parts[-2:]) or "."


def _absolute(path: str) -> str:
    return path.rstrip("/") if "://" in path else os.path.abspath(path)


ADDRESS_VARIABLE = "SUPERVISOR_METRICS_ADDRESS"
"""Environment variable: the address, unless `Options.metrics_address` has one."""

LINGER_SCRAPES = 2
"""Number of scrapes after the stop before the endpoint closes."""


PUSH_VARIABLE = "SUPERVISOR_OTLP_ENDPOINT"
"""Environment variable: the URL of an OTLP receiver, to which metrics are pushed."""

LAST_PUSH_SECS = 5.0
"""How long the end of a session waits for the last push at most."""


def _metrics_targets(options: Options) -> tuple[str | None, str | None]:
    """Return the address at which this process serves its metrics, and the receiver to which it pushes them."""
    address = options.metrics_address or os.environ.get(ADDRESS_VARIABLE)
    return address or None, os.environ.get(PUSH_VARIABLE) or None


class MetricsEndpoint:
    """How this process's metrics leave it: a server if an address is configured, pushes if a receiver is.

    Args:
        source: returns the present status of every run of the process.
        ready: whether training is in progress, for ``/-/ready``.
        session: the session's id: what it pushes has an instance of its own, or a dead session's last values would be
            taken for those of the next.

    Raises:
        OptionsError: if the address, or the receiver's, is malformed.
    """

    def __init__(
        self,
        options: Options,
        source: Callable[[], Iterable[RunStatus]],
        ready: Callable[[], bool],
        session: str,
    ) -> None:
        self._server: MetricsServer | None = None
        self._pusher: MetricsPusher | None = None
        address, receiver = _metrics_targets(options)
        if address:
            parse_address(address, ADDRESS_VARIABLE)  # Options has checked its own
        if not address and not receiver:
            return
        # Imported only if metrics are served or pushed, so that other programs do not pay for HTTP.
        from supervisor_core.metrics.collector import PROCESS, RunCollector

        if receiver:
            from supervisor_core.metrics.push import MetricsPusher

            self._pusher = MetricsPusher(
                (RunCollector(source), PROCESS),
                receiver,
                instance=f"{socket.gethostname()}:{session}",
                named=PUSH_VARIABLE,
            )
            self._pusher.start()
        if address:
            from supervisor_core.metrics.server import MetricsServer

            self._server = MetricsServer(RunCollector(source), address, ready=ready, process=PROCESS)
            self._server.start()

    @property
    def url(self) -> str | None:
        """The URL of the metrics; None if none are served."""
        return None if self._server is None else self._server.url

    @property
    def address(self) -> str | None:
        """``host:port`` of the metrics; None if none are served."""
        return None if self._server is None else self._server.address

    def close(self, linger_secs: float, push_secs: float = LAST_PUSH_SECS) -> None:
        """Push a last time; wait for two more scrapes if there has been one, then free the port.

        Args:
            linger_secs: how long to wait for scrapes at most, in seconds.
            push_secs: how long to wait for the last push at most.
        """
        server, self._server = self._server, None
        pusher, self._pusher = self._pusher, None
        deadline = Deadline.after(push_secs)
        if pusher is not None:
            pusher.finish()
        if server is not None:
            if server.scrapes and linger_secs > 0:
                server.wait_for_scrapes(LINGER_SCRAPES, linger_secs)
            server.close()
        if pusher is not None:
            pusher.wait(deadline.remaining())


def page_directory() -> Path | None:
    """Return the directory for this session's progress page; None where there is none. Warns then, and where it is not
    the one that was asked for."""
    try:
        return private_directory(lambda error: _LOG.warning(_ELSEWHERE, VARIABLE, error_text(error)))
    except OSError as error:
        _LOG.warning(_NO_PAGE, error_text(error))
        return None


def new_page(
    directory: Path, record: SessionRecord, started_boot_secs: float, logdir: str | None, *, is_chief: bool
) -> ProgressPage:
    """Return a progress page that other processes can read, see ``docs/progress-page.md``.

    Where it cannot be created, as where the memory is full: one without a file, and a warning.
    """
    try:
        return ProgressPage.create(
            directory,
            session_id=record.session,
            attempt=record.attempt if is_chief else 0,
            started_at=record.started_at or 0.0,
            started_boot_secs=started_boot_secs,
            logdir=absolute(logdir) if logdir else None,
        )
    except OSError as error:
        _LOG.warning(_NO_PAGE, error_text(error))
        return ProgressPage()


def dead_before(directory: Path, logdir: str) -> list[PageReading]:
    """Return what killed chiefs of a logdir have left in memory; of other runs only what is too much is removed."""
    pages = pages_in((directory, *private_directories()))  # earlier sessions may have had another one
    dead = [page for page in pages if page.is_dead]
    ours = [page for page in dead if page.attempt and page.is_here and is_same(page.logdir or "", absolute(logdir))]
    remove_oldest(page for page in dead if page not in ours)
    return ours


def deaths(
    pages: Iterable[PageReading], chief: LivenessRecord | None, clock: Clock
) -> Iterator[tuple[DeathRecord, PageReading | None]]:
    """Yield what is known of killed sessions of a run, and the page of each.

    Args:
        pages: those of killed chiefs.
        chief: what the session before says in its liveness file; None if there was none.
    """
    seen = set() if chief is None or chief.ended is None else {chief.session}
    for page in pages:
        seen.add(page.session)
        death = death_of(page, clock.wall(), boot_secs(clock))
        beat = chief.beat if chief is not None and chief.session == page.session else None
        yield replace(death, beat=beat), page
    if chief is not None and chief.session not in seen and chief.beat is not None:
        elapsed_secs = chief.beat.elapsed_secs
        if elapsed_secs is not None and chief.beat_at is not None:
            elapsed_secs += max(0.0, chief.written_at - chief.beat_at)
        yield DeathRecord(**shared(DeathRecord, chief), elapsed_secs=elapsed_secs), None


def refuse_unwritable(directory: str, options: Options, *, is_own: bool = False) -> None:
    """Do nothing, but where no checkpoint could be saved in a local directory: asked before the first step.

    What may pass by itself, as a full disk, is logged only: saves are retried.

    Args:
        directory: where checkpoints go; made by the first save.
        options: `Options.unwritable_checkpoints` says what to do.
        is_own: whether this project has named the directory: then saves refuse a link in its place, too.

    Raises:
        SaveFailedError: if files cannot be made there; says whose the directory is, and who this process is.
    """
    local = local_path(directory)
    if local is None:
        return
    try:
        if is_own:
            refuse_link(local)
        probe(local)
    except OSError as error:
        text = f"{local} cannot be written: {why_unwritable(local, error)}"
        if may_pass(error):
            _LOG.warning("%s Saves are tried again until that passes.", text)
        elif options.unwritable_checkpoints == "continue":
            _LOG.warning("%s Training goes on without checkpoints.", text)
        else:
            raise SaveFailedError(f'{text} Options(unwritable_checkpoints="continue") trains without.') from error


_ELSEWHERE = "%s is not used for the progress page: %s"
_NO_PAGE = "This session has no progress page; training goes on, but no other process sees when it hangs: %s"

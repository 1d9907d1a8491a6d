"""What the commands that run until a signal have in common: their log, the end, logdirs that are awaited."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from supervisor_core.base.errors import EventsError
from supervisor_core.base.log import printable, printable_lines
from supervisor_core.base.systems import IS_WINDOWS
from supervisor_core.cli import WrongInput
from supervisor_core.cli.logdirs import GivenLogdir, GivenRuns, NoSuchLogdir, find_logdir
from supervisor_core.storage.local import local_path

if TYPE_CHECKING:
    from supervisor_core.base.shard import RunShard
    from supervisor_core.run.watch.logdir_watch import LogdirWatch

_LOG = logging.getLogger("supervisor_core")

_CHECK_SECS = 5.0
"""How long a logdir may take to say whether it is one, before the command starts without that."""


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


def configure_log(name: str | None = None) -> None:
    """Log to standard error: this project from information on, everything else from warnings on.

    Clients of object stores log each request.

    Args:
        name: what stands before each line instead of its time and level.
    """
    handler = _ErrorStream()
    handler.setFormatter(_PlainFormatter(f"{name or '%(asctime)s %(levelname)s'} %(message)s"))
    logging.basicConfig(handlers=[handler])
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("supervisor_core").setLevel(logging.INFO)


def on_stop_signal(call: Callable[[], None]) -> AbstractContextManager[object]:
    """Return the block in which a signal that ends the process calls this instead, in a thread."""
    if IS_WINDOWS:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGBREAK):  # type: ignore[attr-defined]
            signal.signal(signum, lambda *_: call())
        return nullcontext()
    from supervisor_core.engine.signal_watch import SignalWatch

    return SignalWatch(lambda signum: call())


def wait_for(stop: threading.Event) -> None:
    """Wait for the end, and say in the log that it has come."""
    while not stop.wait(1.0 if IS_WINDOWS else None):  # there Ctrl-C is handled between two waits
        pass
    _LOG.info("Stopping")


def found_or_awaited(path: str) -> GivenLogdir:
    """Return the directory of a path, as `find_logdir` does; one that is not there, or does not answer, is awaited."""
    local = local_path(path)
    if local is None:
        return GivenLogdir(path=path)
    from supervisor_core.engine.blocking_call import BlockingCall

    check = BlockingCall(lambda: find_logdir(path), name="logdir-check")
    awaited = GivenLogdir(path=os.path.abspath(local))
    if not check.wait(_CHECK_SECS):  # a dead mount: the others are to be looked at all the same
        _LOG.warning("%s does not answer; waiting for it", path)
        return awaited
    try:
        found = check.result()
    except NoSuchLogdir as error:
        _LOG.warning("%s Waiting for it", error.message)
        return awaited
    return replace(found, path=os.path.abspath(local_path(found.path) or found.path))


def watches_of(
    runs: GivenRuns, logdirs: Sequence[GivenLogdir], shard: RunShard | None = None, max_runs: int | None = None
) -> list[LogdirWatch]:
    """Return what looks at logdirs again and again, for metrics and findings, which need no old ticks and saves.

    Args:
        runs: those of the command.
        logdirs: its logdirs, see `found_or_awaited`.
        shard: the part of the runs.
        max_runs: how many of each logdir are read; None: all.

    Raises:
        WrongInput: if an expression is none, or the cache cannot be used.
    """
    from supervisor_core.run.watch.logdir_watch import LogdirWatch

    try:
        return [
            LogdirWatch(
                each.path,
                each.include(runs.include),
                runs.exclude,
                shard=shard,
                max_runs=max_runs,
                kept_ticks=1,
                all_saves=False,
                cache=runs.cache,
            )
            for each in logdirs
        ]
    except EventsError as error:
        raise WrongInput(str(error)) from error

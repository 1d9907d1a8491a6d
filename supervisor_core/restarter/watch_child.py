"""`WatchChild`: the process that sends the messages of ``tb-supervisor run``, as its restarter sees it.

It is `supervisor_core.restarter.watching`, in a session of its own: it outlives the restarter's ``kill -9``, and says
so. Over its standard input it gets what it is to watch and where it is to send messages, which so stand in no list of
processes; then the line ``end``, or the end of the input if the restarter was killed. What it writes to
standard error are lines for the restarter's log. A training never waits for it, and ends no worse without it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from supervisor_core.base.log import error_text
from supervisor_core.notify.secret import without_secrets
from supervisor_core.notify.settings import GATHER_SECS, NotifySettings
from supervisor_core.notify.watcher import INTERVAL_SECS
from supervisor_core.process.runtime_directory import VARIABLE as RUNTIME_DIRECTORY_VARIABLE
from supervisor_core.restarter.launch import RestarterOptions, say
from supervisor_core.restarter.processes import descendants
from supervisor_core.run.model.program_launch import ProgramLaunch
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.storage.local import local_path

END = b"end"
"""Says that the restarter ends in order; a line, with its last launch if it could not record how that ended."""
_MOST_LINE = 1 << 16
_ASK_SECS = 0.05
"""How often it is asked at the end whether it runs."""

# Isolated, so that no file in the working directory is taken for a module; then with this process's own path.
_MAIN = (
    "import json, sys; sys.path[:] = json.loads(sys.stdin.buffer.readline()); "
    "from supervisor_core.restarter.watching import main; main()"
)


@dataclass(frozen=True, kw_only=True)
class WatchOrder:
    """What the process does."""

    logdir: str
    """An absolute path, or an address."""
    began_at: float
    """Wall time: of what happened before it nothing is sent. The restarter's start."""
    settings: NotifySettings
    interval_secs: float = INTERVAL_SECS
    gather_secs: float = GATHER_SECS
    thresholds: Thresholds = field(default_factory=Thresholds)

    def encode(self) -> str:
        """Return it as one line. It holds the URLs."""
        return json.dumps({**vars(self), "settings": self.settings.encode(), "thresholds": asdict(self.thresholds)})

    @classmethod
    def decode(cls, line: bytes) -> WatchOrder:
        """Return what `encode` has written."""
        values = json.loads(line)
        settings, thresholds = NotifySettings.decode(values.pop("settings")), Thresholds(**values.pop("thresholds"))
        return cls(settings=settings, thresholds=thresholds, **values)


def start_watch(options: RestarterOptions, pages_in: Path | None) -> WatchChild | None:
    """Start the process of a restarter; None where no messages are wanted.

    Args:
        options: what the command line says.
        pages_in: the directory for progress pages.
    """
    if options.notify is None:
        return None
    local = local_path(options.logdir)
    logdir = options.logdir if local is None else os.path.abspath(local)
    say(f"messages: {options.notify.text}")
    order = WatchOrder(logdir=logdir, began_at=time.time(), settings=options.notify)
    pages = {} if pages_in is None else {RUNTIME_DIRECTORY_VARIABLE: str(pages_in)}
    return WatchChild(order.encode(), logdir, {**without_secrets(), **pages})


class WatchChild:
    """The process. Raises nothing: what goes wrong with it is one line of the log.

    Args:
        order: what it is to do, see `supervisor_core.restarter.watching.WatchOrder`.
        logdir: shown in lists of processes.
    """

    def __init__(self, order: str, logdir: str, environment: Mapping[str, str]) -> None:
        self._is_ending = False
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = process = subprocess.Popen(
                [sys.executable, "-I", "-c", _MAIN, "watches", logdir],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=dict(environment),
                start_new_session=True,
            )
        except OSError as error:
            say(f"warning: no messages are sent, their process cannot be started: {error_text(error)}")
            return
        self._send(f"{json.dumps(sys.path)}\n{order}\n".encode())
        assert process.stderr is not None
        threading.Thread(target=self._show, args=(process.stderr,), name="watch-lines", daemon=True).start()

    def processes(self) -> Collection[int]:
        """Return it and what it has started, as the ids of processes: they belong to no launch."""
        if self._process is None or self.has_ended:
            return ()
        return {self._process.pid, *(each.pid for each in descendants(self._process.pid))}

    @property
    def has_ended(self) -> bool:
        """Whether it does not run."""
        return self._process is None or self._process.poll() is not None

    def end(self, wait: Callable[[float], bool], secs: float, unrecorded: ProgramLaunch | None = None) -> None:
        """Have it look for the last time, send what is left, and end; wait for that. It goes on alone after that.

        Args:
            wait: waits for some seconds; returns True to wait no more.
            secs: how long it is waited for at most.
            unrecorded: the last launch, if its end could not be recorded.
        """
        self._is_ending = True
        if self._process is None:
            return
        last = b"" if unrecorded is None else json.dumps(asdict(unrecorded)).encode()
        self._send(END + b" " + last + b"\n")
        with suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        until = time.monotonic() + secs
        while not self.has_ended and time.monotonic() < until and not wait(_ASK_SECS):
            pass
        if not self.has_ended:
            say(f"process {self._process.pid} still sends messages; it ends by itself")

    def _send(self, line: bytes) -> None:
        with suppress(OSError):  # it has ended, which the end of its lines says
            assert self._process is not None and self._process.stdin is not None
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _show(self, lines: IO[bytes]) -> None:
        with suppress(OSError, ValueError):
            while line := lines.readline(_MOST_LINE):
                say(line.decode("utf-8", "replace").rstrip("\n"))
        if not self._is_ending:
            say("warning: the process that sends messages has ended; no more are sent")

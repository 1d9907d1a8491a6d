"""The process that sends the messages of ``tb-supervisor run``; `WatchOrder` says what it is to do.

    the restarter lives          look, and send; its log has the lines
    it has said ``end``          look for the last time, send what is left, end. It says how its last launch ended
                                 where that is not in the logdir: on a full disk no record is
    it was killed                go on until what that has led to was sent, the run was started again, or nothing has
                                 changed for an hour
    SIGTERM after one of these   what is not sent within seconds is not sent: a service may hang

`supervisor_core.restarter.watch_child` is the restarter's side.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from dataclasses import replace
from typing import BinaryIO

from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.engine.signal_watch import SignalWatch
from supervisor_core.events.record_fields import decode
from supervisor_core.notify.sender import STOPPED_SECS, Sender, changes_for
from supervisor_core.notify.watcher import LogdirLooks, Looked, Watcher
from supervisor_core.restarter.watch_child import END, WatchOrder
from supervisor_core.run.fold.end import with_end
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.model.program_launch import ProgramLaunch
from supervisor_core.run.model.run import LIVE
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.watch.logdir_watch import LogdirWatch

LAST_LOOK_SECS = 8.0
"""How long the last look may take."""
SENDS_SECS = 3600.0
"""How long what is left may take to be sent: as long as a message is tried again."""
QUIET_SECS = 3600.0
"""After how long without a change the process ends, whose restarter was killed, while a run is not over."""
_now = time.monotonic

_LOG = logging.getLogger("supervisor_core")


class Lifeline:
    """What the restarter says, read by a thread."""

    def __init__(self, said: BinaryIO) -> None:
        self._said = said
        self.over = threading.Event()
        """Set when the restarter ends in order."""
        self.unrecorded: ProgramLaunch | None = None
        """The last launch, if its end could not be recorded."""
        self.killed_at: float | None = None
        """Monotonic time at which it was seen that it was killed; None as long as it lives."""
        self.hurried = threading.Event()
        """Set when a signal ends the process, too."""
        self.thread = threading.Thread(target=self._read, name="watch-lifeline", daemon=True)
        self.thread.start()

    def terminated(self, signum: int) -> None:
        """Act on SIGTERM. Schedulers send it to all processes of a job: the restarter says itself when it ends."""
        if self.over.is_set() or self.killed_at is not None:
            self.over.set()
            self.hurried.set()

    def _read(self) -> None:
        line = self._said.readline()
        word, _, launch = line.strip().partition(b" ")
        if word == END and line.endswith(b"\n"):  # else it was killed as it wrote
            self.unrecorded = decode(ProgramLaunch, launch.decode()) if launch else None
            self.over.set()
        else:
            self.killed_at = _now()


class _Orphan:
    """Says when a process ends whose restarter was killed: once what that has led to was sent, or nothing changes. A
    run that somebody has started again is not its own any more."""

    def __init__(self, order: WatchOrder, lifeline: Lifeline) -> None:
        self._lifeline = lifeline
        limits = order.thresholds
        self._sent_secs = 2 * (limits.dead_hold_secs + 2 * order.interval_secs)
        self._marks: object = None
        self._changed_at = 0.0
        self._sessions: dict[str, str] = {}
        """The newest ones before the restarter was killed."""
        self._again_at: float | None = None
        """When others were seen."""

    def is_over(self, looked: Looked | None) -> bool:
        """Say so after a look."""
        now = _now()
        runs = {} if looked is None else looked.runs
        marks = {name: (watched.run.state, watched.records) for name, watched in runs.items()}
        if looked is not None and marks != self._marks:
            self._marks, self._changed_at = marks, now
        sessions = {name: watched.run.sessions[-1].id for name, watched in runs.items() if watched.run.sessions}
        if self._lifeline.killed_at is None:
            self._sessions |= sessions
            return False
        if self._again_at is None and any(self._sessions.get(name) != session for name, session in sessions.items()):
            self._again_at = now
        if self._again_at is not None and now - self._again_at >= self._sent_secs:
            return True
        is_live = looked is None or any(watched.run.state in LIVE for watched in runs.values())
        quiet_secs = now - max(self._changed_at, self._lifeline.killed_at)
        return quiet_secs >= (QUIET_SECS if is_live else self._sent_secs)


def main() -> None:
    """Do what standard input says."""
    for signum in (signal.SIGINT, signal.SIGHUP):  # meant for the training
        signal.signal(signum, signal.SIG_IGN)
    _log_to_restarter()
    order = WatchOrder.decode(sys.stdin.buffer.readline())
    lifeline = Lifeline(sys.stdin.buffer)
    with SignalWatch(lambda signum: None, others={signal.SIGTERM: lifeline.terminated}, ends=False):
        watch(order, lifeline)


def watch(order: WatchOrder, lifeline: Lifeline) -> None:
    """Look and send until the restarter ends, or what its death has led to is sent; then send what is left."""
    sender = _sender(order, lifeline)
    if sender is None:
        return
    looks = LogdirLooks([LogdirWatch(order.logdir, kept_ticks=1, all_saves=False)], _name)
    changes = changes_for(order.settings, order.thresholds, order.began_at)
    watcher = Watcher(
        lambda: with_last_launch(looks.look(), order.logdir, lifeline.unrecorded),
        changes,
        sender.put,
        seen=sender.seen,
        interval_secs=order.interval_secs,
    )

    def look() -> None:
        try:
            watcher.run(lifeline.over, _Orphan(order, lifeline).is_over)
            watcher.look(is_last=True)
        finally:
            lifeline.over.set()

    thread = threading.Thread(target=look, name="watch", daemon=True)
    thread.start()
    lifeline.over.wait()
    thread.join(LAST_LOOK_SECS)
    threading.Thread(target=_hurry, args=(lifeline, sender), name="watch-hurry", daemon=True).start()
    sender.hand_over()
    sender.close(SENDS_SECS)


def _sender(order: WatchOrder, lifeline: Lifeline) -> Sender | None:
    """Return what sends. While another one watches the logdir, as that of a restarter that was killed does for some
    minutes, its end is waited for; None if the restarter ends before: the other one says what has happened."""
    is_said = False
    while True:
        try:
            return Sender(order.settings, [order.logdir], gather_secs=order.gather_secs)
        except LogdirInUseError as error:
            if not is_said:
                _LOG.warning("%s. Messages are sent from here once it has ended", error)
            is_said = True
        if lifeline.over.wait(order.interval_secs) or lifeline.killed_at is not None:
            return None


def with_last_launch(looked: Looked, logdir: str, launch: ProgramLaunch | None) -> Looked:
    """Return the runs of a look, with how the last launch ended if that could not be recorded.

    Args:
        looked: what the look has found; perhaps nothing, where nothing at all could be written.
        logdir: the training's.
        launch: None if all is recorded.
    """
    if launch is None:
        return looked
    restarters = {name: {item.restarter for item in each.run.launches} for name, each in looked.runs.items()}
    name = next((name for name, found in restarters.items() if launch.restarter in found), _name(logdir, "."))
    known = looked.runs.get(name)
    if known is None:
        known = WatchedRun(run=RunFold(name).run(looked.at), directory=logdir, files=())
    return replace(looked, runs={**looked.runs, name: replace(known, run=with_end(known.run, launch))})


def _hurry(lifeline: Lifeline, sender: Sender) -> None:
    lifeline.hurried.wait()
    sender.begin_closing(STOPPED_SECS)


def _name(logdir: str, run: str) -> str:
    """Return a run's name: below the directory around the logdir, whose last part is the training's name."""
    name = logdir.rstrip("/").rpartition("/")[2] or logdir
    return name if run == "." else f"{name}/{run}"


class _LineFormatter(logging.Formatter):
    """Makes lines for the restarter's log, which adds time and level to each."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return f"warning: {text}" if record.levelno >= logging.WARNING else text


def _log_to_restarter() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_LineFormatter("%(message)s"))
    logging.raiseExceptions = False  # once the restarter is gone there is no reader
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("supervisor_core").setLevel(logging.INFO)

"""`RunningLaunch`: one launch, from the program's start until all of its processes have ended.

One loop waits for the keeper's reports, for signals, and for the next second, in which it looks for hangs.
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Generic, Literal, TypeVar

from supervisor_core.base.clock import SYSTEM_CLOCK, boot_secs
from supervisor_core.base.log import error_text
from supervisor_core.base.options import HANG_TIMEOUT_SECS
from supervisor_core.engine.timeouts import HANG_TIMEOUT_VARIABLE, STOP_TIMEOUT_VARIABLE
from supervisor_core.events.telemetry import StallRecord
from supervisor_core.notify.secret import without_secrets
from supervisor_core.process.identity import is_running
from supervisor_core.process.outside import TRACER_VARIABLE
from supervisor_core.process.progress_page import PageReading
from supervisor_core.process.runtime_directory import VARIABLE as RUNTIME_DIRECTORY_VARIABLE
from supervisor_core.process.runtime_directory import private_directory
from supervisor_core.restarter.child import Child, LeftBehind, reap_others
from supervisor_core.restarter.failure import is_sigterm, signal_name
from supervisor_core.restarter.hang import Hang, HangWatch, pages_here
from supervisor_core.restarter.hang_stacks import HangAlarm, KeptStacks, hang_stacks
from supervisor_core.restarter.keeper import LINGER_SECS
from supervisor_core.restarter.launch import Death, LaunchFacts, RestarterOptions, say
from supervisor_core.restarter.logdir_view import LogdirThread, LogdirView, RunPosition
from supervisor_core.restarter.policy import ChildEnd
from supervisor_core.restarter.processes import become_subreaper, descendants
from supervisor_core.run.fold.end import SEEN_EVERY_SECS
from supervisor_core.run.judge.wordings import WORDINGS
from supervisor_core.run.model.words import counted
from supervisor_core.run.watch.live import death_of

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
TICK_SECS = 1.0
CONFIRM_SECS = 10.0
"""Time between the two looks at the stacks of a program that hangs, or twice its hang timeout where that is less:
progress in it ends the alarm."""
HURRY_SECS, AGAIN_SECS = 5.0, 0.5
"""What a program has after a second stop signal. Two within the second time are one: some senders reach every process
of a job."""
BLOCKED_SECS = 5.0
"""A session whose monitor, which ticks once a second, has not run for this long cannot act on a signal."""
SPARE_SECS = 3.0
"""How long after the stop timeout a program is killed: a session has ended itself by then. Half of the stop timeout
where that is less."""
FOLLOW_SECS = 10.0
"""How often the events files are read while the program runs: at least four times in the time in which they must
grow."""
ALONE_SECS = 10.0
"""Seconds a program has to exit after its peers on another node did."""
READ_SECS = 10.0
"""How long the restart waits for the logdir to say how far the run is."""
WRITE_SECS = 1.0
"""How long is waited for a file to be written into the logdir."""

ANSWER_TICKS = 10
"""For how many seconds the logdir may say whether there was a training."""
MOST_NAMED = 5
"""How many processes a line names."""

_T = TypeVar("_T")


class ReceivedSignals:
    """Keeps the signals of this process, in their order, once `install` was called."""

    def __init__(self) -> None:
        self.stop_signal: int | None = None
        """The first that stops the training; None before it."""
        self.stop_came_at: float | None = None
        """Monotonic time at which that came."""
        self._received: list[int] = []
        self._wakeup: socket.socket
        self._waker: socket.socket

    def install(self) -> None:
        """Install the handlers; a signal that is ignored, as SIGHUP under ``nohup``, stays so."""
        self._wakeup, self._waker = socket.socketpair()
        self._wakeup.setblocking(False)
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for signum in (*STOPPING, *PASSED_ON, signal.SIGWINCH):
            if signal.getsignal(signum) != signal.SIG_IGN:
                signal.signal(signum, self._handle)

    def fileno(self) -> int:
        """Return the descriptor that is readable when a signal came."""
        return self._wakeup.fileno()

    def take(self) -> list[int]:
        """Return those that came since the last call."""
        with suppress(BlockingIOError):
            self._wakeup.recv(512)
        received, self._received = self._received, []
        return received

    def wait_for_stop(self, secs: float) -> bool:
        """Wait for some seconds; return at once, True, when one comes that stops the training."""
        until = time.monotonic() + secs
        while True:
            stops = [signum for signum in self.take() if signum in STOPPING]
            if stops:
                self.stop_signal = self.stop_signal or stops[0]
                return True
            left_secs = until - time.monotonic()
            if left_secs <= 0:
                return False
            select.select([self], [], [], left_secs)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.stop_came_at is None and signum in STOPPING:
            self.stop_came_at = time.monotonic()
        self._received.append(signum)


@dataclass(eq=False)
class Node:
    """What the restarter of a node has."""

    options: RestarterOptions
    """What the command line says."""
    view: LogdirView
    """The logdir, which all nodes share."""
    logdir: LogdirThread = field(default_factory=LogdirThread)
    """Reads and writes it."""
    signals: ReceivedSignals = field(default_factory=ReceivedSignals)
    """Those of this process."""
    pages_in: Path | None = None
    """Where the program's progress pages are; `prepare` finds it."""

    def prepare(self, lock_suffix: str = ".lock") -> str | None:
        """Become the parent of orphans, install the handlers of signals, find the directory for progress pages, and
        lock out other restarters; return who has locked the logdir, or None."""
        become_subreaper()
        self.signals.install()

        def warn(what: str, error: OSError) -> None:
            say(f"warning: {what}: {error_text(error)}")

        try:
            self.pages_in = private_directory(
                partial(warn, f"{RUNTIME_DIRECTORY_VARIABLE} is not used for progress pages")
            )
        except OSError as error:
            warn("no directory for progress pages: a hang of the program is not seen", error)
        return self.logdir.do(lambda: self.view.take(lock_suffix), READ_SECS)


class Latest(Generic[_T]):
    """The result of the last read of a logdir. `get` requests the next read, and never waits for it.

    Args:
        every_secs: time between two reads, at least.
    """

    def __init__(self, thread: LogdirThread, read: Callable[[], _T], every_secs: float = 0.0) -> None:
        self._thread, self._read, self._every_secs = thread, read, every_secs
        self._value: _T | None = None
        self._due_at = -math.inf
        self._is_asked = False

    def get(self) -> _T | None:
        """Return the newest result; None before the first."""
        now = time.monotonic()
        if not self._is_asked and now >= self._due_at:
            self._due_at, self._is_asked = now + self._every_secs, True
            self._thread.do(self._renew, 0.0)
        return self._value

    def _renew(self) -> None:
        try:
            self._value = self._read()
        finally:
            self._is_asked = False


@dataclass(eq=False)
class RunningLaunch:
    """See the module's docstring."""

    node: Node
    facts: LaunchFacts
    """The launch; `run` fills in what it finds."""
    before: RunPosition | None = None
    """How far the run is before it; None where unknown."""
    record: Callable[[float | None, StallRecord | None], object] = lambda timeout_secs, stall: None
    """Records that the launch runs: how long its events files may stay as they are, and what is seen of its hang."""
    patience: float = 1.0
    """See `HangWatch.patience`."""
    ended_elsewhere: Callable[[], str | None] = lambda: None
    """Returns where the program of this launch has ended, in a job of several nodes; None while it runs on all."""
    why_observe: str = "--hang-action observe"
    """Why a hang is only reported, where that is so."""
    stacks_of: Callable[[Hang], tuple[str | None, str | None]] = hang_stacks

    def __post_init__(self) -> None:
        self._options, self._view, self._logdir = self.node.options, self.node.view, self.node.logdir
        self._alarm = HangAlarm()
        self._recorded_at = -math.inf
        self._stops = 0
        self._stopped_at = 0.0
        self._kill_at: float | None = None
        self._given_secs = 0.0
        self._job = BackgroundJob(self.facts.started_at, self.before, self._view, self._logdir)
        self._is_ending_rest = False
        """Whether all that is left is being ended, and nothing else is to be done about it."""
        self._is_loss_said = self._is_nothing_said = False
        self._alone_since: float | None = None
        self.was_ended_elsewhere = False
        """Whether the program was stopped because it had ended on another node."""

    def run(self, begun: Callable[[], object], spared: Callable[[], Collection[int]] = frozenset) -> None:
        """Start the program; return when all of it has ended.

        Args:
            begun: called when it has started.
            spared: see `Child`.

        Raises:
            FileNotFoundError: without a Python interpreter.
        """
        facts = self.facts
        try:
            child = Child(self._options.command, self._environment(), spared)
        except FileNotFoundError:
            raise
        except OSError as error:  # no more processes, no memory: counted, and tried again
            facts.ended_at = time.time()
            facts.end = ChildEnd(exit_code=1, stderr=f"The keeper could not be started: {error_text(error)}")
            return
        watch: HangWatch | None = None
        follow_secs = min(FOLLOW_SECS, (self._options.hang_timeout_secs or math.inf) / 4)
        events = Latest(self._logdir, self._view.follow, follow_secs)
        poll = select.poll()
        poll.register(child, select.POLLIN)
        poll.register(self.node.signals, select.POLLIN)
        end: ChildEnd | None = None
        ticked_at = time.monotonic()
        while end is None:
            with suppress(InterruptedError):
                poll.poll(self._most_wait_secs() * 1000)
            end = child.poll()
            if child.leader is not None and watch is None:
                facts.pid = child.leader
                watch = HangWatch(
                    child.leader,
                    self._options.hang_timeout_secs,
                    self.patience,
                    records_before=None if self.before is None else self.before.records,
                    root=child.keeper_pid,
                    pages=partial(pages_here, *([] if self.node.pages_in is None else [self.node.pages_in])),
                )
                begun()
            self._pass_signals_on(child)
            if watch is None or end is not None:
                continue
            passed_secs = time.monotonic() - ticked_at
            if is_tick := passed_secs >= TICK_SECS:
                ticked_at += passed_secs
                reap_others(child)
                hang = watch.tick(passed_secs, events.get())
                self._record_that_it_runs(watch)
                self._check_hang(child, hang, watch)
                self._check_pages(watch)
                self._check_sight(watch)
                self._check_others(child)
            if child.left is not None:
                self._judge_left(child, child.left, watch, is_tick=is_tick)
        facts.ended_at, facts.end = time.time(), end if watch is None else self._as_watched(child, end, watch)
        facts.hang, facts.kept_stacks = self._alarm.acted, self._alarm.stacks

    def _environment(self) -> dict[str, str]:
        options, pages_in = self._options, self.node.pages_in
        return {
            **without_secrets(),  # without the URLs of services: the program sends no messages
            **({} if pages_in is None else {RUNTIME_DIRECTORY_VARIABLE: str(pages_in)}),
            **({} if options.hang_timeout_secs is None else {HANG_TIMEOUT_VARIABLE: f"{options.hang_timeout_secs:g}"}),
            STOP_TIMEOUT_VARIABLE: f"{options.stop_timeout_secs:g}",
            TRACER_VARIABLE: str(os.getpid()),
        }

    def _as_watched(self, child: Child, end: ChildEnd, watch: HangWatch) -> ChildEnd:
        """Note what the pages show of the sessions; return the end of the job, which may be what was left behind."""
        facts = self.facts
        watch.read()  # a killed process leaves its page, with the step that it had reached
        pages = watch.readings.values()
        facts.step = watch.step
        # A chief has an attempt: no record has another rank's session.
        facts.session = max(pages, key=lambda page: (page.attempt > 0, page.started_at)).session if pages else None
        facts.has_stepped = watch.steps > 0
        now, boot_now = time.time(), boot_secs(SYSTEM_CLOCK)
        facts.deaths = tuple(
            Death(page, death_of(page, now, boot_now, alive_at_boot=watch.alive_at_boot.get(page.session, 0.0)))
            for page in pages
            if page.attempt and page.logdir and page.is_dead
        )
        if child.left is None or end.exit_code != 0:
            return end
        job = ChildEnd.of_status(child.left.job_status({page.pid for page in pages}))
        return replace(end, exit_code=job.exit_code, signal=job.signal, core=job.core)

    def _most_wait_secs(self) -> float:
        if self._kill_at is None:
            return TICK_SECS
        return max(0.0, min(TICK_SECS, self._kill_at - time.monotonic()))

    # Hangs.

    def _check_hang(self, child: Child, hang: Hang | None, watch: HangWatch) -> None:
        """Take the stacks of a program that hangs, twice; if it still hangs then, end it."""
        alarm, attempt = self._alarm, self.facts.attempt
        is_ending = self._kill_at is not None or self._is_ending_rest
        if is_ending or self.node.signals.stop_signal is not None or alarm.acted is not None:
            return
        if hang is None:
            if (ended := alarm.ends()) is not None:
                say(f"launch {attempt} {WORDINGS['stalled'].again}")
                self.record(None, ended)
            return
        now = time.monotonic()
        if alarm.seen_at is None:
            alarm.seen_at = now
            hang = self._take_stacks(hang)
            say(f"launch {attempt} may hang: {hang.text}")
            self.record(None, alarm.begins(hang))
        elif hang.secs >= (limit_secs := self._act_after_secs(hang)) and not alarm.is_confirmed:
            if now - alarm.seen_at < min(CONFIRM_SECS, 2 * hang.hang_timeout_secs):
                return
            alarm.is_confirmed = True
            hang = self._take_stacks(hang)
            self.record(None, seen := alarm.lasts(hang))
            hang = replace(hang, activity=hang.activity or seen.activity)
            shown = "" if alarm.stacks is None else f"; stacks: {alarm.stacks.text}"
            if self._options.hang_action == "observe":
                say(f"launch {attempt} hangs: {hang.text}; not stopped ({self.why_observe}){shown}")
                return
            limit = f"stopping it after {limit_secs:g} s"
            longer = "" if hang.phase is None else 'phase("evaluating"), or '
            advice = f"what takes longer needs {longer}a longer hang timeout"
            say(f"launch {attempt} hangs: {hang.text}; {limit} ({advice}){shown}")
            alarm.acted = hang
            page = watch.readings.get(hang.session or "")
            if page is not None and page.ticks and time.monotonic() - page.tick_at > BLOCKED_SECS:
                self._kill(child, f"Native code blocks Python in process {page.pid}: no stop works; sending SIGKILL.")
            else:
                self._stop_in_time(child, signal.SIGTERM)

    def _check_pages(self, watch: HangWatch) -> None:
        """Say once that the pages are gone: a system's own directory in memory may go with the user's last login."""
        if (page := watch.lost_page) is not None and not self._is_loss_said:
            self._is_loss_said = True
            say(
                f"{page.path.parent} was removed, with the progress page of process {page.pid}: a hang is not seen any "
                f"more. Set {RUNTIME_DIRECTORY_VARIABLE} to a directory that stays"
            )

    def _check_sight(self, watch: HangWatch) -> None:
        """Say once that there is nothing by which a hang could be seen."""
        if watch.sees_nothing and not self._is_nothing_said:
            self._is_nothing_said = True
            given = self._options.hang_timeout_secs is not None
            what = "error: --hang-timeout has nothing to watch" if given else "warning: a hang is not seen"
            say(
                f"{what}: launch {self.facts.attempt} has no progress page, and there are no events files in "
                f"{self._view.logdir}. Give --logdir the directory that the program writes to"
            )

    def _check_others(self, child: Child) -> None:
        """End a program that has ended on another node, and has had its time to end by itself."""
        if self._kill_at is not None or self._is_ending_rest or (what := self.ended_elsewhere()) is None:
            return
        now = time.monotonic()
        if self._alone_since is None:
            self._alone_since = now
            say(f"{what}: launch {self.facts.attempt} has {ALONE_SECS:g} s to end here, too")
        elif now - self._alone_since >= ALONE_SECS:
            self.was_ended_elsewhere = True
            say(f"{what}: stopping launch {self.facts.attempt} here")
            self._stop_in_time(child, signal.SIGTERM)

    def _record_that_it_runs(self, watch: HangWatch) -> None:
        """Record now and then that a program without a progress page runs: nothing else says so."""
        timeout_secs, now = watch.timeout_secs, time.monotonic()
        if timeout_secs is not None and now - self._recorded_at >= min(SEEN_EVERY_SECS, timeout_secs / 2):
            self._recorded_at = now
            self.record(timeout_secs, None)

    def _take_stacks(self, hang: Hang) -> Hang:
        """Take the stacks of a program that hangs, and copy them into the logdir, if that answers; return the hang with
        the place where it is."""
        path, problem = self.stacks_of(hang)
        if path is None:
            if problem is not None and not self._alarm.is_confirmed:
                say(f"launch {self.facts.attempt}: its stacks cannot be read: {problem}")
            return hang
        self._alarm.stacks = kept = KeptStacks(path)
        self._logdir.do(lambda: kept.copy_to(self.facts.directory), WRITE_SECS)
        return (
            hang
            if hang.location or kept.location is None
            else replace(hang, location=f"{kept.thread} at {kept.location}")
        )

    def _act_after_secs(self, hang: Hang) -> float:
        """Return after how long without progress a program that hangs is ended."""
        if hang.act_after_secs is not None:
            return hang.act_after_secs
        return self._options.hang_timeout_secs or HANG_TIMEOUT_SECS["training"]  # a page of an older version

    # Signals.

    def _pass_signals_on(self, child: Child) -> None:
        for signum in self.node.signals.take():
            if signum == signal.SIGWINCH:
                child.resize()
            elif signum in PASSED_ON:
                child.send_signal(signum)
            else:
                self._stop_signalled(child, signum)
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill(child, f"Program did not exit in {self._given_secs:g} s; sending SIGKILL.")

    def _stop_signalled(self, child: Child, signum: int) -> None:
        """Pass a stop signal on to the program; a second one leaves it less time, a third none."""
        now, name = time.monotonic(), signal_name(signum)
        is_same = now - self._stopped_at < AGAIN_SECS
        if self.node.signals.stop_signal is None:
            self.node.signals.stop_signal = signum
            secs, kill_secs = self._options.stop_timeout_secs, kill_after_secs(self._options)
            say(f"{name}: stopping the program; it has {secs:g} s to exit")
        elif is_same:
            return
        elif self._stops > 1:
            self._kill(child, f"{name}, for the third time; sending SIGKILL.")
            return
        else:
            secs = kill_secs = HURRY_SECS
            say(f"{name} again: the program has {secs:g} s to exit")
        self._stops += 1
        if is_same:  # the program has it already
            self._kill_at, self._given_secs = now + kill_secs, kill_secs
        else:
            # The terminal, or the shell, is gone; to the program that is a stop like any other.
            self._stop(child, signal.SIGTERM if signum in (signal.SIGHUP, signal.SIGQUIT) else signum, secs, kill_secs)

    def _stop_in_time(self, child: Child, signum: int, *, came_from_others: bool = False) -> None:
        secs = self._options.stop_timeout_secs
        self._stop(child, signum, secs, kill_after_secs(self._options), came_from_others=came_from_others)

    def _stop(
        self, child: Child, signum: int, secs: float, kill_secs: float, *, came_from_others: bool = False
    ) -> None:
        self._stopped_at = time.monotonic()
        self._kill_at, self._given_secs = self._stopped_at + kill_secs, kill_secs
        child.stop(signum, secs, came_from_others=came_from_others)

    def _kill(self, child: Child, why: str | None = None) -> None:
        """Kill all of a launch: nothing else is done about it from now on."""
        self._kill_at, self._is_ending_rest = None, True
        if why is not None:
            say(why)
        child.kill()

    # What a program leaves behind.

    def _judge_left(self, child: Child, left: LeftBehind, watch: HangWatch, *, is_tick: bool) -> None:
        """Decide whether to wait for the processes that the program has left running, or to end them."""
        if self._kill_at is not None or self._is_ending_rest:
            return
        program = f"Process {self.facts.pid}"
        if is_sigterm(ChildEnd.of_status(left.status)):  # of a shell perhaps, and not of the training within it
            secs = self._options.stop_timeout_secs
            names = _names_of_left(child.keeper_pid)
            say(f"{program} was ended by SIGTERM from outside and left {names}; {secs:g} s to exit")
            self._stop_in_time(child, signal.SIGTERM, came_from_others=True)
        elif left.status:
            self._kill(child)
        elif is_tick and (verdict := self._job.judge(left, watch.readings.values())) is not None:
            if verdict == "failed":
                self._kill(child, f"launch {self.facts.attempt}: the training in the background failed")
                return
            said = f"{program} ended with status 0 and left {_names_of_left(child.keeper_pid)}"
            if verdict == "goes on":
                say(f"{said}; launch {self.facts.attempt} goes on until all have ended")
            else:
                say(f"{said}; sending SIGTERM, and SIGKILL after {LINGER_SECS:g} s")
                self._is_ending_rest = True
                child.end_rest()


def kill_after_secs(options: RestarterOptions) -> float:
    """Return how long after a stop signal what still runs is killed."""
    return options.stop_timeout_secs + min(SPARE_SECS, options.stop_timeout_secs / 2)


@dataclass(eq=False)
class BackgroundJob:
    """Says whether processes that a program with status 0 has left running are the job, or what is left of it.

    After a training they are helpers, which end with it. Where no training has been seen (``start.sh`` has started one
    in the background, which still imports its libraries), or one runs in them, they are the job, and it goes on.
    """

    started_at: float
    """When the launch was started, wall time."""
    before: RunPosition | None
    """How far the run was then; None where unknown."""
    view: LogdirView
    thread: LogdirThread
    """Reads the logdir."""

    def __post_init__(self) -> None:
        self._ticks = 0
        self._is_watched = False
        self._asked_at = -1
        """How many processes had ended when the logdir was last asked."""
        self._recorded: set[int] | None = None
        """The process of its newest session, if that is of this launch; None before the logdir has answered."""

    def judge(
        self, left: LeftBehind, sessions: Collection[PageReading]
    ) -> Literal["goes on", "is done", "failed"] | None:
        """Return a new verdict, asked for once a second; None where there is none.

        Args:
            sessions: those that the launch had so far, by their pages.
        """
        if not sessions and self._asked_at < len(left.statuses):  # a short one may have had no page that was seen
            self._asked_at = len(left.statuses)
            self.thread.do(self._read_session, 0.0)
        recorded = self._recorded or set()
        trainings = {page.pid for page in sessions} | recorded
        is_training = any(page.is_running for page in sessions) or any(map(is_running, recorded))
        if trainings and not is_training and left.job_status(trainings):
            return "failed"
        self._ticks += 1
        if self._is_watched or self._ticks == 1:  # what ends by itself right after the program is not worth a word
            return None
        if trainings and not is_training:
            return "is done"
        if is_training or self._recorded is not None or self._ticks > ANSWER_TICKS:
            self._is_watched = True
            return "goes on"
        return None

    def _read_session(self) -> None:
        session = self.view.read_position().session_since(self.started_at, self.before)
        self._recorded = set() if session is None or session.pid is None else {session.pid}


def _names_of_left(keeper: int) -> str:
    """Return the processes that a program has left running, for people: ``2 processes: 13 python a.py, 14 tee log``.

    Args:
        keeper: the launch's keeper, whose children they are.
    """
    found = [each for each in descendants(keeper) if each.parent == keeper]
    named = ", ".join(f"{each.pid} {each.command}" for each in found[:MOST_NAMED])
    more = f", and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"{counted(len(found), 'process')}: {named}{more}"

"""`Progress`: a session's step, speed and use of time.

The training thread reports every step: with `run_ended`, or where a step begins when the last one ends with
`step_ended`, which only notes it; all other threads read. The global step itself is known only from reading the
variable, which costs a call: `step_read` takes such readings, and between two of them the steps counted here
extrapolate it, if the last readings agreed with the count.

`PauseWitness`: why no Python code of this process ran for a while, found out afterwards.

    interpreter_blocked   native code held the interpreter lock: the process ran, and nothing in Python could
    machine_suspended     the monotonic clock stood still, and the one that counts suspended time did not
    stopped               this process did not run: SIGSTOP, a frozen container or virtual machine

Counters of the system show the difference. A thread that waits for the interpreter lock wakes every 5 ms
(`sys.getswitchinterval`) to ask for it, and the system counts that as a voluntary switch; in a process that is stopped
no thread wakes.

How far a session is, and how fast: `Speed`, from the steps that it counts and the readings of its global step.

`GlobalStep` extrapolates the global step between two readings of it by the steps that are counted here. `StepRate` is
steps per second over a window, correct for steps of a millisecond and of an hour.
"""

from __future__ import annotations

import math
import re
import resource
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from operator import sub
from typing import Literal

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock, boot_secs, main_thread_secs
from supervisor_core.base.options import Options
from supervisor_core.engine.timeouts import LEAST_PAUSE_SECS, HangTimeouts
from supervisor_core.process.page_writer import ProgressPage
from supervisor_core.process.progress_page import LAST_PROGRESS, STEPS
from supervisor_core.run.model.distribution import STEP_BOUNDS, Distribution, Histogram
from supervisor_core.run.model.run import BUCKET_OF_PHASE, SILENT

PauseCause = Literal["stopped", "machine_suspended", "interpreter_blocked"]

WAITING_SHARE = 0.1
"""A thread that waits for the interpreter lock wakes for at least this share of its 5 ms intervals."""

_SWITCHES = re.compile(rb"^voluntary_ctxt_switches:\s*([0-9]+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Pause:
    """A time in which no Python code ran."""

    until: float
    """Monotonic time of its end."""
    secs: float
    cause: PauseCause | None
    """None if the system does not say."""
    timeout_secs: float | None = None
    """The hang timeout at its begin; None if the phase could not hang."""

    @property
    def is_hang(self) -> bool:
        """Whether it was longer than that hang timeout."""
        return self.timeout_secs is not None and self.secs > self.timeout_secs

    @property
    def is_silence(self) -> bool:
        """Whether the process did not run; otherwise native code of it did."""
        return self.cause != "interpreter_blocked"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Counters at one moment; None where the system has none."""

    ran_secs: float
    """CPU seconds of the main thread."""
    switches: int | None
    """Voluntary switches of the thread that samples."""


def cause_of(secs: float, before: Evidence, after: Evidence, interval_secs: float) -> PauseCause | None:
    """Return why no Python code ran for a number of seconds.

    Args:
        secs: the length of the pause.
        before: the evidence when Python code ran last.
        interval_secs: after what time a thread that waits for the interpreter lock wakes.
    """
    if after.ran_secs - before.ran_secs > secs / 2:
        return "interpreter_blocked"
    if before.switches is None or after.switches is None:
        return None
    is_waiting = after.switches - before.switches > WAITING_SHARE * secs / interval_secs
    return "interpreter_blocked" if is_waiting else "stopped"


class PauseWitness:
    """Keeps the evidence of one thread that samples once a second. The caller locks.

    Args:
        clock: the clock; of an injected one there is no evidence.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._thread: int | None = None
        self._before = Evidence(ran_secs=0.0, switches=None)

    def sample(self) -> Evidence:
        """Take the evidence, and return it; called by the thread that samples."""
        if self._clock is SYSTEM_CLOCK:
            self._thread = threading.get_native_id()
        self._before = self._evidence()
        return self._before

    def cause(self, secs: float) -> PauseCause | None:
        """Return why no Python code ran for a number of seconds since the last sample; from any thread."""
        before, self._before = self._before, self._evidence()
        return cause_of(secs, before, self._before, sys.getswitchinterval())

    def _evidence(self) -> Evidence:
        switches = self._switches() if self._clock is SYSTEM_CLOCK else None
        return Evidence(ran_secs=main_thread_secs(self._clock), switches=switches)

    def _switches(self) -> int | None:
        if self._thread == threading.get_native_id():
            return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw if sys.platform == "linux" else None
        with suppress(OSError), open(f"/proc/self/task/{self._thread}/status", "rb") as file:
            found = _SWITCHES.search(file.read())
            return None if found is None else int(found[1])
        return None


STEPS_TO_JUDGE = 10
"""Number of steps after which the increment of the global step per step is determined."""


class GlobalStep:
    """The global step of a session, known from readings. Not thread-safe.

    Args:
        now: monotonic seconds.
    """

    def __init__(self, now: float) -> None:
        self.stride = 1
        """By how much a step changes it; 0 where the readings do not agree with the count of steps."""
        self.moved_at = now
        """Monotonic time of the reading that was the first to have the last value."""
        self._first: tuple[int, int] | None = None
        """A reading, and the steps counted then."""
        self._value: int | None = None
        self._steps = 0
        """Those counted at the last reading."""

    @property
    def before(self) -> int | None:
        """What it was before the first step of this session; None before the first reading."""
        return None if self._value is None else self._value - self.stride * self._steps

    def at(self, steps: int) -> int | None:
        """Return an estimate of it after a number of steps of this session; None before the first reading."""
        return None if self._value is None else self._value + self.stride * (steps - self._steps)

    def read(self, value: int, earliest: int, latest: int, now: float) -> None:
        """Take a reading.

        Args:
            earliest: steps counted just before it was read.
            latest: steps counted now.
            now: monotonic seconds.
        """
        if self._first is None:
            self._first = (value, earliest)
        first_value, first_count = self._first
        ahead = (first_value - first_count) - (value - earliest)
        if self.stride == 1 and ahead > 0:  # the first reading included steps that were not counted yet
            first_value, first_count = self._first = (value, earliest)
        moved = value - first_value
        if earliest - first_count >= STEPS_TO_JUDGE:
            stride = round(moved / (earliest - first_count))
            # A step is counted just after it has ended, so either side may miss one or two.
            fits = stride * (earliest - first_count) - 2 <= moved <= stride * (latest - first_count) + 2
            self.stride = stride if fits else 0
        if value != self._value:
            self.moved_at = now
        self._value = value
        counted = first_count + moved // self.stride if self.stride else latest
        self._steps = min(max(counted, earliest), latest)

    def rewound(self, value: int, steps: int) -> None:
        """The model is at another step now: earlier readings are void."""
        self._first, self.stride = (value, steps), 1
        self._value, self._steps = value, steps


WINDOW_SECS = 30.0
"""The rate covers at least this time, if there is as much."""
WINDOW_STEPS = 10
"""And at least this many steps."""
OVERDUE_STEPS = 10
"""The rate is 0 once this many steps (or readings) are overdue and `WINDOW_SECS` have passed."""


class StepRate:
    """Training steps per second, correct for steps of a millisecond and of an hour. Not thread-safe.

    Measures from the end of one step to the end of another, never to a time between two.

    Args:
        now: monotonic seconds.
        count: steps counted until then.
    """

    __slots__ = ("_ends",)

    def __init__(self, now: float, count: int = 0) -> None:
        self._ends: deque[tuple[float, int]] = deque([(now, count)])

    def restart(self, now: float, count: int) -> None:
        """Drop all readings before this one."""
        self._ends = deque([(now, count)])

    def add(self, at: float, count: int) -> None:
        """Take a reading: the count and the end of its last step. A reading without a new step changes nothing."""
        last_at, last = self._ends[-1]
        if count < last:
            self.restart(at, count)
        if count <= last:
            return
        self._ends.append((max(at, last_at), count))
        while len(self._ends) > 2:
            next_at, next_count = self._ends[1]
            if at - next_at < WINDOW_SECS or count - next_count < WINDOW_STEPS:
                break
            self._ends.popleft()

    def exclude(self, secs: float) -> None:
        """Exclude the last ``secs`` seconds, which had no training."""
        self._ends = deque((at + secs, count) for at, count in self._ends)

    def value(self, now: float) -> float | None:
        """Return steps per second; None before a step has ended. While a step takes longer than those before it, the
        rate decreases."""
        (first_at, first), (last_at, last) = self._ends[0], self._ends[-1]
        secs, steps = last_at - first_at, last - first
        if steps <= 0 or secs <= 0:
            return None
        rate, waiting = steps / secs, now - last_at
        usual_secs = secs / (len(self._ends) - 1)  # between two readings that moved
        if waiting <= usual_secs:
            return rate
        if waiting > max(WINDOW_SECS, OVERDUE_STEPS * usual_secs):
            return 0.0
        return (steps + rate * usual_secs) / (now - first_at)


_NOT_TRAINING = ("restoring", "compiling", "checkpointing", "evaluating")
"""Phases without training: their time does not count for the steps per second."""


class Speed:
    """The global step and the steps per second of one session. Not thread-safe.

    Its methods take ``steps``, the number of steps counted until now, and ``ended_at``, the end of the last one.

    Args:
        now: monotonic seconds.
    """

    def __init__(self, now: float) -> None:
        self.global_step = GlobalStep(now)
        self._rate = StepRate(now)
        self._is_of_all = False
        """Whether the rate is of the global step: it does not change by one per step, or other processes change it."""
        self._paused_at: float | None = None

    def rewound(self, step: int, steps: int, now: float) -> None:
        """The model is at another step now."""
        self.global_step.rewound(step, steps)
        self._rate.restart(now, self._newest(now, steps)[1])

    def sample(self, ended_at: float, steps: int) -> None:
        """Take a reading for the rate."""
        if self._paused_at is not None:
            return
        at, count, is_of_all = self._newest(ended_at, steps)
        if is_of_all != self._is_of_all:
            self._is_of_all = is_of_all
            self._rate.restart(at, count)
        self._rate.add(at, count)

    def steps_per_second(self, now: float, ended_at: float, steps: int) -> float | None:
        """Return the rate; None before a step has ended."""
        self.sample(ended_at, steps)
        return self._rate.value(now if self._paused_at is None else self._paused_at)

    def enter(self, phase: str, now: float, ended_at: float, steps: int) -> None:
        """Exclude the phase that ends now, or the one that starts, from the rate."""
        if self._paused_at is not None:
            self._rate.exclude(now - self._paused_at)
            self._paused_at = None
        if phase in _NOT_TRAINING:
            self.sample(ended_at, steps)
            self._paused_at = now
        elif phase == "training" and not steps:
            self._rate.restart(now, self._newest(ended_at, steps)[1])

    def _newest(self, ended_at: float, steps: int) -> tuple[float, int, bool]:
        """Return the end of the last step, the count, and whether that is of the global step."""
        step = self.global_step.at(steps)
        if step is None or (self.global_step.stride == 1 and steps):
            return ended_at, steps, False
        return ended_at if self.global_step.stride and steps else self.global_step.moved_at, step, True


_BEFORE_TRAINING = ("starting", "restoring", "compiling")
"""Phases after which the first steps take longer than the others."""

SILENT_SECS = 5.0
"""The monitor samples once a second. If it did not for longer than this, and no step ended either, the process did not
run: it was stopped, or its machine was frozen or suspended."""

BUCKETS = (
    "productive",
    "program_startup",
    "checkpoint_restore",
    "unproductive_checkpoint_save",
    "stall",
    SILENT,
    "other",
)
"""Goodput buckets that one process can distinguish, with the names of ml-goodput-measurement where they agree."""

_MOST_PAUSES = 10
"""The number of pauses to keep until they are taken."""

COUNT_SECS = 0.1
"""The training thread counts the steps that `step_ended` has noted once in this time, if no reader has."""


@dataclass(frozen=True, kw_only=True)
class ProgressSnapshot:
    """Progress at one moment; ``_at`` fields are wall time, ``_secs`` durations."""

    phase: str
    steps: int
    global_step: int | None
    steps_per_second: float | None
    last_step_at: float | None
    last_progress_at: float
    progress_age_secs: float
    progress_timeout_secs: float | None
    """The hang timeout in effect; None if the phase cannot hang."""
    own_timeout_secs: float | None
    """The same as if no other process could keep this one waiting."""
    is_held: bool
    """Whether training waits for a save, or may have to."""
    act_after_secs: float | None
    """After how many seconds without progress the watchdog acts; see `HangTimeouts.act_after`."""
    step_secs: Distribution
    activity_secs: Mapping[str, float]
    """Seconds by bucket; their sum is the time up to the last progress, or up to now while stalled."""


class Progress:
    """Counts steps, keeps the phase, and assigns every second of the session to one bucket. Thread-safe.

    A second is assigned once its bucket is known, and never moved, since a counter must not decrease: seconds since the
    last progress are undecided, and become a stall when they exceed the hang timeout. Time in which the process did
    not run (`SILENT_SECS`) is assigned to the silent bucket; no age or stall includes it.

    Everything is also kept in a `ProgressPage`, which other processes can read once it is published (`publish`).

    Args:
        hang_timeouts: pauses are reported to them. Default: those of the default options.
        own_end_secs: for how long nothing outside has to end a session that hangs; see `watchdog.longest_end`.
    """

    def __init__(
        self, clock: Clock = SYSTEM_CLOCK, hang_timeouts: HangTimeouts | None = None, *, own_end_secs: float = 0.0
    ) -> None:
        self._clock = clock
        self._hang_timeouts = hang_timeouts or HangTimeouts(Options())
        self._own_end_secs = own_end_secs
        self._lock = threading.Lock()
        now = clock.monotonic()
        self.phase = "starting"
        """What the session is doing, one of `options.PHASES`."""
        self.page = ProgressPage()
        """The progress page; plain memory of this process until `publish`."""
        self.page.times[LAST_PROGRESS] = now
        self._holds = 0
        """Number of saves that training waits for, or may have to."""
        self._starts = 0
        """Number of times that a model was lost, with all that was under way then."""
        self.is_in_cluster = False
        """Whether other processes may keep training waiting."""
        self._others_secs: float | None = None
        """How long none of the processes may make progress; None while another one may keep this one waiting."""
        self._steps = 0
        self._update_hang_timeout()
        self._sampled_at = math.inf
        """Monotonic time of the last sample; infinite without regular samples."""
        self._witness = PauseWitness(clock)
        self._pauses: deque[Pause] = deque(maxlen=_MOST_PAUSES)
        self._asleep_secs = 0.0
        """Difference of the clock that includes suspended time to the monotonic one."""
        self._booked_until = now
        self._booked = dict.fromkeys(BUCKETS, 0.0)
        self._blocked_secs = 0.0
        self.runs = 0
        """Calls of ``run`` that the program has finished in this session, steps or not."""
        self.changes = 0
        """Those of them that may have changed the state in a checkpoint; at once, without those of `step_ended`."""
        self._ends: list[float] = []
        """The ends of the steps that are noted and not counted."""
        self._count_at = -math.inf
        self._began = now
        """The end of the last step that was counted of these, or what `begins` has set."""
        self._last_step: float | None = None
        self._last_progress = now
        self._step_secs = Histogram(STEP_BOUNDS)
        self._longest = self._longest_before = 0.0
        self._speed = Speed(now)

    def publish(self, page: ProgressPage) -> None:
        """Keep the progress in this page from now on."""
        with self._lock:
            page.take_over(self.page)
            self.page = page

    @property
    def steps(self) -> int:
        """Steps done by this session."""
        if self._ends:
            with self._counted():
                return self._steps
        return self._steps

    @property
    def step_estimate(self) -> int:
        """An estimate of the global step without reading it; the steps done here if it was never read.

        Exact if only this process changes it, by the same amount with each step."""
        with self._lock:  # as `_counted`, without its cost: a monitored session asks after each step
            if self._ends:
                self._count_ends()
            step = self._speed.global_step.at(self._steps)
            return self._steps if step is None else step

    def run_ended(self, is_step: bool, started: float, ended: float, changes: bool = True) -> None:
        """Record that the training thread has finished a call. The hot path: called for every step.

        Args:
            is_step: whether the call changes the global step.
            started: its start in monotonic seconds.
            ended: its end in monotonic seconds.
            changes: whether it may have changed the state in a checkpoint.
        """
        with self._lock:
            if ended - self._last_progress > self._check_after_secs:
                self._gap(ended)
            self._last_progress = ended
            page = self.page
            page.times[LAST_PROGRESS] = ended
            self.runs += 1
            self.changes += changes
            if is_step:
                page.counts[STEPS] = self._steps = self._steps + 1
                self._last_step = ended
                secs = ended - started
                self._step_secs.add(secs)
                if secs > self._longest:
                    self._longest = secs

    def step_ended(self, ended: float) -> None:
        """Record that the training thread has finished a step, which began when the one before had ended, or at
        `begins`. The hot path, without a lock: the step is on the progress page at once, and counted by the next
        reader, or by the next step after `COUNT_SECS`.
        """
        self._ends.append(ended)
        page = self.page
        page.times[LAST_PROGRESS] = ended
        page.counts[STEPS] += 1
        if ended >= self._count_at:
            self._count_at = ended + COUNT_SECS
            with self._counted():
                pass

    def begins(self, at: float) -> None:
        """Record that the training thread begins a step at this monotonic time, as after a save or an evaluation."""
        with self._counted():
            self._began = at

    def moved(self, ended: float) -> None:
        """Record that the training thread has made progress that is no step; a step begins then."""
        with self._counted():
            self._progress_at(ended)
            self._began = ended
            self.runs += 1
            self.changes += 1

    def longest_step_secs(self) -> float:
        """Return the duration of the longest recent step: since the last call of this method but one, where calls
        without a step in between do not count. 0 before the first."""
        with self._counted():
            recent = max(self._longest, self._longest_before)
            if self._longest:
                self._longest_before, self._longest = self._longest, 0.0
            return recent

    def enter(self, phase: str) -> str:
        """Change the phase; return the one before."""
        now = self._clock.monotonic()
        with self._counted():
            before = self.phase
            self._progress_at(now)
            self._book(now)
            if phase != before:
                self._speed.enter(phase, now, self._last_end, self._steps)
            if before in _BEFORE_TRAINING:
                self._hang_timeouts.warm_up(self._steps)
            if phase in ("starting", "restoring"):  # a save of the model before it no longer keeps training waiting
                self._holds = 0
                self._starts += 1
            self.phase = phase
            self._update_hang_timeout()
            return before

    @contextmanager
    def held(self) -> Iterator[None]:
        """Allow training the default hang timeout at least while the block runs: it waits for a save, or may have to.
        The end of the block is progress. In a stall neither is so."""
        with self._counted():
            starts, counts = self._starts, self._clock.monotonic() - self._last_progress <= self._timeout_secs
            self._holds += counts
            self._update_hang_timeout()
        try:
            yield
        finally:
            now = self._clock.monotonic()
            with self._counted():
                if counts and starts == self._starts:
                    self._progress_at(now)
                    self._holds -= 1
                    self._update_hang_timeout()

    @contextmanager
    def first_call(self, is_step: bool) -> Iterator[None]:
        """Allow training the default hang timeout at least for a call that was not made before, which may compile.

        Args:
            is_step: whether it is a step: the next one is quicker. Any other call may take as long again.
        """
        began = self._clock.monotonic()
        with self.held():
            yield
        if not is_step:
            with self._counted():
                self._hang_timeouts.paused(self.phase, self._clock.monotonic() - began, steps=self._steps)
                self._update_hang_timeout()

    def join_cluster(self) -> None:
        """Record that other processes may keep training waiting, as one that evaluates for all: from now on the learned
        hang timeout of training is not below the default, but for what `others` says."""
        with self._counted():
            self.is_in_cluster = True
            self._update_hang_timeout()

    def others(self, secs: float | None) -> None:
        """Record whether another process may keep this one waiting.

        Args:
            secs: how long none of the processes may make progress, where none of the others does; None where one of
                them makes progress, or does something else for which it still has time, and where that is not known.
        """
        with self._counted():
            if secs != self._others_secs:
                self._others_secs = secs
                self._update_hang_timeout()

    def blocked(self, secs: float) -> None:
        """Record that a save has blocked training: this many of the seconds to be assigned are not productive."""
        with self._lock:
            self._blocked_secs += secs

    def step_read(self, step: int, since: int | None = None) -> None:
        """Take a reading of the global step variable.

        Args:
            since: `steps` just before it was read. Default: no step has ended since then.
        """
        with self._counted():
            earliest = self._steps if since is None else since
            self._speed.global_step.read(step, earliest, self._steps, self._clock.monotonic())
            self._publish_step()

    def rewound(self, step: int) -> None:
        """Record that the model is now at another step: earlier readings are void."""
        with self._counted():
            self._speed.rewound(step, self._steps, self._clock.monotonic())
            self._publish_step()

    def sample(self) -> None:
        """Take a sample for the rate; called about once a second, until `unwatched`."""
        now, boot = self._clock.monotonic(), boot_secs(self._clock)
        asleep = boot - now
        with self._counted():
            self._notice_silence(now)
            slept = asleep - self._asleep_secs
            if self._sampled_at < math.inf and slept > SILENT_SECS:
                self._booked[SILENT] += slept  # in which the monotonic clock stood still
                self._pauses.append(Pause(until=now, secs=slept, cause="machine_suspended"))
            self._asleep_secs, self._sampled_at = asleep, now
            self.page.tick(at=now, boot_secs=boot, main_thread_secs=self._witness.sample().ran_secs)
            self._speed.sample(self._last_end, self._steps)
            self._update_hang_timeout()

    def watched(self) -> None:
        """Record that `sample` is about to be called: a process that hangs before shows on its page that it does."""
        clock = self._clock
        with self._lock:
            self.page.tick(at=clock.monotonic(), boot_secs=boot_secs(clock), main_thread_secs=main_thread_secs(clock))

    def unwatched(self) -> None:
        """Record that `sample` is no longer called, so that its absence is no silence."""
        with self._lock:
            self._sampled_at = math.inf

    def take_pauses(self) -> tuple[Pause, ...]:
        """Return the pauses since the last call."""
        with self._lock:
            found = tuple(self._pauses)
            self._pauses.clear()
            return found

    def snapshot(self) -> ProgressSnapshot:
        """Return the present progress."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        with self._counted():
            self._notice_silence(now)
            self._book(now)
            rate = self._speed.steps_per_second(now, self._last_end, self._steps)
            return ProgressSnapshot(
                phase=self.phase,
                steps=self._steps,
                global_step=self._speed.global_step.at(self._steps),
                steps_per_second=rate,
                last_step_at=None if self._last_step is None else wall - (now - self._last_step),
                last_progress_at=wall - (now - self._last_progress),
                progress_age_secs=max(0.0, now - self._last_progress),
                progress_timeout_secs=_or_none(self._timeout_secs),
                own_timeout_secs=self._own_timeout_secs(),
                is_held=self._holds > 0,
                act_after_secs=self._hang_timeouts.act_after(self.phase, steps=self._steps),
                step_secs=self._step_secs.snapshot(),
                activity_secs=dict(self._booked),
            )

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Hold the lock, with every step counted that `step_ended` has noted."""
        with self._lock:
            if self._ends:
                self._count_ends()
            yield

    def _count_ends(self) -> None:
        """Count the steps that `step_ended` has noted, each as `run_ended` would have counted it then."""
        count = len(self._ends)  # the training thread may append meanwhile
        ends = self._ends[:count]
        del self._ends[:count]
        secs = list(map(sub, ends, chain((self._began,), ends)))
        longest, pause = self._step_secs.add_all(secs), ends[0] - self._last_progress
        if max(pause, longest) > self._check_after_secs:
            self._count_pauses(ends)
        else:
            self._steps += len(ends)
        self._last_progress = self._last_step = self._began = ends[-1]
        self.runs += len(ends)
        self._longest = max(self._longest, longest)

    def _count_pauses(self, ends: list[float]) -> None:
        """Count steps of which one may have ended after a pause; learn from it."""
        for ended in ends:
            if ended - self._last_progress > self._check_after_secs:
                self._gap(ended)
            self._last_progress = ended
            self._steps += 1
        self.page.times[LAST_PROGRESS] = self._last_progress

    def _publish_step(self) -> None:
        before = self._speed.global_step.before
        if before is not None:
            self.page.step_is(before, self._speed.global_step.stride)

    @property
    def _last_end(self) -> float:
        return self._last_progress if self._last_step is None else self._last_step

    def _progress_at(self, now: float) -> None:
        if now - self._last_progress > self._check_after_secs:
            self._gap(now)
        self._last_progress = max(self._last_progress, now)
        self.page.times[LAST_PROGRESS] = self._last_progress

    def _gap(self, now: float) -> None:
        """Assign a long time without progress: silence, or a stall that ends. Learn from it."""
        self._notice_silence(now)
        if now - self._last_progress > self._timeout_secs:
            self._book(now)
        if not self._holds:
            self._hang_timeouts.paused(self.phase, now - self._last_progress, steps=self._steps)
            self._update_hang_timeout()

    def _update_hang_timeout(self) -> None:
        secs = self._own_timeout_secs()
        if self.is_in_cluster and self.phase == "training" and secs is not None:
            if self._others_secs is None:
                secs = self._hang_timeouts.secs(self.phase, steps=self._steps, is_held=True)
            elif not self._holds:
                secs = min(secs, self._others_secs)
        self._timeout_secs = math.inf if secs is None else secs
        self._check_after_secs = min(self._timeout_secs, LEAST_PAUSE_SECS)
        act_after_secs = self._hang_timeouts.act_after(self.phase, steps=self._steps)
        if act_after_secs is not None:
            act_after_secs += self._own_end_secs
        self.page.update(phase=self.phase, hang_timeout_secs=secs, act_after_secs=act_after_secs)

    def _own_timeout_secs(self) -> float | None:
        return self._hang_timeouts.secs(self.phase, steps=self._steps, is_held=self._holds > 0)

    def _notice_silence(self, now: float) -> None:
        """Assign the time since the process last ran to the silent bucket, if it is too long, and exclude it from the
        undecided time."""
        silent = now - max(self._sampled_at, self._last_progress)
        if silent <= SILENT_SECS:
            return
        self._sampled_at = now
        pause = Pause(
            until=now, secs=silent, cause=self._witness.cause(silent), timeout_secs=_or_none(self._timeout_secs)
        )
        self._pauses.append(pause)
        if not pause.is_silence:
            return
        self._booked[SILENT] += silent
        self._booked_until += silent
        self._last_progress += silent
        self.page.times[LAST_PROGRESS] = self._last_progress

    def _book(self, now: float) -> None:
        """Assign the decided time: up to the last progress, and what has become a stall since."""
        decided = max(self._booked_until, self._last_progress)
        bucket, secs = BUCKET_OF_PHASE.get(self.phase, "other"), decided - self._booked_until
        if bucket == "productive":
            blocked_secs = min(self._blocked_secs, secs)
            self._blocked_secs -= blocked_secs
            self._booked["unproductive_checkpoint_save"] += blocked_secs
            secs -= blocked_secs
        self._booked[bucket] += secs
        self._booked_until = decided
        if now - self._last_progress > self._timeout_secs:
            self._booked["stall"] += now - decided
            self._booked_until = now


def _or_none(secs: float) -> float | None:
    return None if secs == math.inf else secs

"""`Progress`: a session's step, speed and use of time.

The training thread reports every step: with `run_ended`, or where a step begins when the last one ends with
`step_ended`, which only notes it; all other threads read. The global step itself is known only from reading the
variable, which costs a call: `step_read` takes such readings, and between two of them the steps counted here
extrapolate it, if the last readings agreed with the count.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from operator import sub

from supervisor_core.clock import SYSTEM_CLOCK, Clock, boot_secs, main_thread_secs
from supervisor_core.engine.hang_timeouts import LEAST_PAUSE_SECS, HangTimeouts
from supervisor_core.engine.pauses import Pause, PauseWitness
from supervisor_core.engine.step_rate import Speed
from supervisor_core.options import Options
from supervisor_core.process.page_writer import ProgressPage
from supervisor_core.process.progress_page import LAST_PROGRESS, STEPS
from supervisor_core.run.distribution import STEP_BOUNDS, Distribution, Histogram
from supervisor_core.run.model import BUCKET_OF_PHASE, SILENT

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
        clock: replaced in tests.
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
        self._is_in_cluster = False
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
    def is_in_cluster(self) -> bool:
        """Whether other processes may keep training waiting."""
        return self._is_in_cluster

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
            self._is_in_cluster = True
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
            step: its value.
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
        if self._is_in_cluster and self.phase == "training" and secs is not None:
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

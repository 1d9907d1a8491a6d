"""`STORIES`: what happens to a training, and which messages must come of it, in the order in which they may."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.faults.small_disk import fill_up
from supervisor_core.run.model.thresholds import Thresholds, duration

if TYPE_CHECKING:
    from benchmarks.faults.message_stage import Case, Way

LATE_SECS = 60.0
"""How much later than what the alert waits a message may come."""
HANG_SECS = 30.0
_LIMITS = Thresholds()
DOWN, HOLD = _LIMITS.dead_hold_secs, _LIMITS.hold_secs
SILENCE_SECS = 600.0
"""After how long at least a run without telemetry is silent."""

Act = Callable[["Case"], None]


@dataclass(frozen=True)
class Due:
    """One message."""

    what: str
    """What the event says, and of which kind: ``begins lost``."""
    after: float = 0.0
    """For how long the alert of that kind waits, from the fact on."""
    late: float = LATE_SECS
    """How much later it may come."""


@dataclass(frozen=True)
class Script:
    """What happens in one way of watching."""

    first: tuple[Due, ...]
    """What comes of the fact."""
    happen: Act | None = None
    """Makes the fact; None: the program does it itself."""
    go: Act | None = None
    """Makes it well again, together with the file ``go``."""
    then: tuple[Due, ...] = ()
    """What comes of that."""
    last: tuple[Due, ...] | None = (Due("happened completed"),)
    """What comes of the file ``end``; None: there is nothing that could end."""
    again: bool = False
    """Whether the program is started again each time when it ends, until the file ``go``."""
    options: tuple[str, ...] = ()
    """Of ``tb-supervisor run``."""
    before: Act | None = None
    """What else is started."""


@dataclass(frozen=True)
class Story:
    """One trouble, in the ways in which it is watched."""

    trouble: str
    """Of `benchmarks.faults.troubled`."""
    text: str
    scripts: Mapping[Way, Script]
    copies: int = 1
    """To how many trainings it happens at the same moment."""
    disk_megabytes: int = 0
    """Of the disk that the run is on; 0: that of all."""

    @property
    def survived(self) -> str:
        """What it means that a trial was survived."""
        ways: dict[str, list[str]] = {}
        for way, script in self.scripts.items():
            said = [*script.first, *script.then, *(script.last or ())]
            texts = [f"`{due.what}`{f' after {duration(due.after)}' if due.after else ''}" for due in said]
            ways.setdefault(", ".join(dict.fromkeys(texts)), []).append(way)
        return "; ".join(f"{' and '.join(each)}: {text}" for text, each in ways.items())


def _kill(case: Case) -> None:
    case.signal(signal.SIGKILL)


def _terminate(case: Case) -> None:
    case.signal(signal.SIGTERM)


def _continue(case: Case) -> None:
    os.kill(case.program, signal.SIGCONT)


def _start(case: Case) -> None:
    case.start()


def _fill(case: Case) -> None:
    fill_up(case.logdir.parent / "filler")


def _free(case: Case) -> None:
    (case.logdir.parent / "filler").unlink()


def _move(case: Case) -> None:
    case.logdir.rename(case.control / "moved")


def _move_back(case: Case) -> None:
    (case.control / "moved").rename(case.logdir)


def _unreadable(case: Case) -> Path:
    return case.logdir / f"events.out.tfevents.{int(case.facts[0]):010d}.loop"


def _link(case: Case) -> None:
    case.facts.append(time.time())
    _unreadable(case).symlink_to(_unreadable(case).name)


def _unlink(case: Case) -> None:
    _unreadable(case).unlink()


def _start_worker(case: Case) -> None:
    case.start_other("worker", "worker:1")


def _kill_worker(case: Case) -> None:
    case.others[0].kill()


def _start_workers(case: Case) -> None:
    case.start_other("worker", "worker:1")
    case.start_other("slow-worker", "worker:2")


def both(script: Script) -> Mapping[Way, Script]:
    """Return the same for both ways."""
    return {"watch": script, "run": script}


_COMPLETED, _RESTARTED = Due("happened completed"), Due("happened restarted")
_INEXACT = Due("happened resumed_not_exactly")
_HANGS = Script((Due("begins stalled", HANG_SECS + _LIMITS.stall_hold_secs),), then=(Due("is_over stalled"),))
_LOOPS = Script(
    (*[_RESTARTED] * 3, Due("begins restart_loop"), Due("begins checkpoint_interval_far", HOLD, 2 * LATE_SECS)),
    last=(_COMPLETED, Due("is_over restart_loop"), Due("is_over checkpoint_interval_far")),
    again=True,
)
_DAMAGED = Script((_RESTARTED, Due("begins checkpoint_damaged")), then=(Due("is_over checkpoint_damaged"),), again=True)
_WAITS = _LIMITS.save_hold_secs

STORIES = (
    Story(
        "silent",
        "a program that records no state writes nothing more",
        {"watch": Script((Due("begins silent", SILENCE_SECS + _LIMITS.stall_hold_secs),), last=None)},
    ),
    Story(
        "loops",
        "`kill -9` three times, started again each time; its checkpoint interval is an hour",
        both(_LOOPS),
    ),
    Story(
        "service",
        'a service of `Supervisor` raises (`service_errors="continue"`)',
        both(Script((Due("begins thread_down", HOLD),), last=(_COMPLETED, Due("is_over thread_down")))),
    ),
    Story(
        "straggles",
        "a worker needs three times as long for a step as the others",
        both(
            Script(
                (Due("begins straggler", HOLD, 2 * LATE_SECS),),
                before=_start_workers,
                happen=lambda case: None,
                last=(_COMPLETED, Due("is_over straggler")),
            )
        ),
    ),
    Story(
        "low-disk",
        "its disk has room for less than three more checkpoints",
        both(
            Script(
                (Due("begins disk_low", HOLD),), happen=lambda case: None, last=(_COMPLETED, Due("is_over disk_low"))
            )
        ),
        disk_megabytes=20,
    ),
    Story(
        "unreadable",
        "an events file cannot be read (a loop of links), then it can",
        both(Script((Due("begins read_error", HOLD),), happen=_link, go=_unlink, then=(Due("is_over read_error"),))),
    ),
    Story(
        "recovers",
        "`MonitoredTrainingSession` loses its parameter server three times",
        both(Script((Due("begins recovery_loop"),), last=(_COMPLETED, Due("is_over recovery_loop")))),
    ),
    Story(
        "full-disk",
        "its disk is full, then it has room",
        both(
            Script(
                (Due("begins saves_failing", _WAITS), Due("begins events_failing", _WAITS)),
                happen=_fill,
                go=_free,
                then=(Due("is_over saves_failing"), Due("is_over events_failing")),
            )
        ),
        disk_megabytes=24,
    ),
    Story(
        "loses-a-worker",
        "`kill -9` of a worker, then it is started again",
        both(
            Script(
                (Due("begins worker_lost", _LIMITS.worker_hold_secs),),
                before=_start_worker,
                happen=_kill_worker,
                go=_start_worker,
                then=(Due("is_over worker_lost"),),
            )
        ),
    ),
    Story(
        "hangs",
        f"a hang (hang timeout {duration(HANG_SECS)}), then it goes on, or its restarter kills it",
        {"watch": _HANGS, "run": Script((Due("happened restarted", HANG_SECS),))},
    ),
    Story(
        "observed",
        "the same with `--hang-action observe`",
        {"run": Script(_HANGS.first, then=_HANGS.then, options=("--hang-action", "observe"))},
    ),
    Story(
        "killed",
        "`kill -9`; somebody starts it again, or its restarter does; its data has no position",
        {
            "watch": Script((Due("begins lost", DOWN),), go=_start, then=(Due("is_over lost"), _INEXACT)),
            "run": Script((_RESTARTED, _INEXACT)),
        },
    ),
    Story(
        "killed-restarter",
        "`kill -9` of the restarter",
        {"run": Script((Due("begins lost", DOWN),), happen=_kill, last=None)},
    ),
    Story(
        "together",
        "`kill -9` of five at the same moment",
        {"watch": Script((Due("begins lost", DOWN),), happen=_kill, last=None)},
        copies=5,
    ),
    Story(
        "suspended",
        "SIGSTOP, then SIGCONT",
        {"watch": Script((Due("begins lost", DOWN),), go=_continue, then=(Due("is_over lost"),))},
    ),
    Story(
        "fails",
        "an exception, in each launch",
        {
            "watch": Script((Due("begins failed", DOWN),), last=None),
            "run": Script((_RESTARTED, _RESTARTED, Due("begins failed")), last=None),
        },
    ),
    Story(
        "not-starting",
        "an exception before the first event, in each launch",
        {
            "run": Script(
                (_RESTARTED, _RESTARTED, Due("begins not_starting"), Due("begins failed"), Due("is_over not_starting")),
                last=None,
            )
        },
    ),
    Story(
        "gone",
        "its directory is moved away for a while",
        both(
            Script(
                (Due("begins unreachable", _LIMITS.stall_hold_secs),),
                happen=_move,
                go=_move_back,
                then=(Due("is_over unreachable"),),
            )
        ),
    ),
    Story(
        "diverges",
        "the loss is NaN, then finite",
        both(Script((Due("begins loss_not_finite"),), then=(Due("is_over loss_not_finite"),))),
    ),
    Story("says", "the program calls `notify`", both(Script((Due("happened notice"),)))),
    Story("damaged", "the newest checkpoint is damaged when it dies, then it saves again", both(_DAMAGED)),
    Story(
        "nothing-to-do",
        "it is done, and started again",
        {
            "watch": Script(
                (_COMPLETED,),
                go=_start,
                then=(_RESTARTED, _COMPLETED, Due("happened completed_without_step")),
                last=None,
            )
        },
    ),
    Story(
        "preempted",
        "SIGTERM to the program, or to its restarter",
        {
            "watch": Script((Due("happened stopped", DOWN),), happen=_terminate, last=None),
            "run": Script((Due("happened stopped"),), happen=_terminate, last=None),
        },
    ),
)
"""Those that wait longest first."""

"""The processes of a training in several, for ``tb-supervisor stacks``: which rank each is, and which are at one place.

Those of other machines are known by what they have written into their heartbeat files.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from supervisor_core.events.place import Place, place_of
from supervisor_core.process.identity import this_machine
from supervisor_core.process.stacks import MAIN_THREAD, Stacks
from supervisor_core.run.judge.cluster import name_of_chief
from supervisor_core.run.judge.culprit import Rank, Unresponsive
from supervisor_core.run.model.words import duration
from supervisor_core.run.watch.liveness import (
    LIVENESS_DIRECTORY,
    MAX_TASKS,
    LivenessRecord,
    files_of_others,
    has_ended_well,
    is_gone,
    read_record,
)
from supervisor_core.storage.local import filesystem_for

READ_SECS = 5.0
"""How long a logdir may take to answer: it may be what hangs."""
SLACK_SECS = 60.0
"""By how much clocks of machines may differ. A heartbeat from before the training began is of an earlier one."""


@dataclass(frozen=True, kw_only=True)
class SeenRank:
    """One process of a training in several."""

    name: str
    pid: int
    host: str | None
    """None: this machine."""
    phase: str | None
    step: int | None
    source: str | None
    """``py-spy``, ``memory``, ``record``: its heartbeat file; None: there are no stacks."""
    main: tuple[str, ...]
    """Frames of its main thread, outermost first; empty where they are not known."""
    place: Place | None = None
    """Where it is by its own account."""
    is_late: bool
    unresponsive: Unresponsive | None = None
    silent_secs: float | None = None
    """Of one on another machine, or that is unresponsive: since it has written last."""
    said: str = ""
    """How it is, for people; of one on another machine."""


def task_records(logdir: str) -> tuple[LivenessRecord, ...]:
    """Return what the processes other than the chief have written; without those that cannot be read, and nothing
    where the logdir does not answer in time.

    Args:
        logdir: the run's directory.
    """
    found: list[LivenessRecord] = []

    def read() -> None:
        with suppress(OSError, ImportError, ValueError):
            filesystem, directory = filesystem_for(os.path.join(logdir, LIVENESS_DIRECTORY))
            names = files_of_others(filesystem.list_names(directory))
            for name in names[:MAX_TASKS]:
                with suppress(OSError, ValueError):
                    found.append(read_record(filesystem, os.path.join(directory, name)))

    thread = threading.Thread(target=read, name="read heartbeat files", daemon=True)
    thread.start()
    thread.join(READ_SECS)
    return tuple(found)


def names_of(sessions: Iterable[str], records: Sequence[LivenessRecord]) -> Mapping[str, str]:
    """Return the name of each session's process: the one that keeps no heartbeat file is the chief, or rank 0.

    Args:
        sessions: their ids.
        records: the heartbeat files of the run.
    """
    tasks = {record.session: record.task for record in records}
    chief = name_of_chief(record.task for record in records)
    given = list(sessions)
    is_known = sum(session not in tasks for session in given) == 1
    return {session: tasks.get(session) or (chief if is_known else f"session {session}") for session in given}


def others_of(
    records: Iterable[LivenessRecord], here: Mapping[str, str], began_at: float, now: float
) -> list[SeenRank]:
    """Return the processes of a training that are not among those seen here: on another machine, or ended.

    Args:
        records: the heartbeat files of the run.
        here: the sessions of those that are seen here, with their names.
        began_at: when the training began.
        now: the present wall time.
    """
    machine, named = this_machine(), set(here.values())
    found = []
    for record in records:
        if record.task in named or record.written_at < began_at - SLACK_SECS or has_ended_well(record):
            continue
        if record.phase == "serving":  # no process waits for a parameter server
            continue
        unresponsive: Unresponsive | None = "failed" if record.ended is not None else None
        if is_gone(record, machine):
            unresponsive = "silent"
        silent_secs = max(0.0, now - record.written_at)
        what = "has failed" if unresponsive == "failed" else "is gone" if unresponsive else f"phase {record.phase}"
        found.append(
            SeenRank(
                name=record.task,
                pid=record.pid,
                host=None if record.machine == machine else record.host,
                phase=record.phase,
                step=record.step,
                source=None if record.place is None or unresponsive else "record",
                main=() if record.place is None or unresponsive else record.place.frames,
                place=record.place,
                is_late=record.stalled or record.place is not None,
                unresponsive=unresponsive,
                silent_secs=silent_secs,
                said=f"{what}, written {duration(silent_secs)} ago, by its clock",
            )
        )
    return found


def main_of(stacks: Stacks) -> tuple[str, ...]:
    """Return the frames of the main thread."""
    return tuple(stacks.get(MAIN_THREAD, ()))


def as_ranks(seen: Sequence[SeenRank]) -> list[Rank]:
    """Return what `verdict_of` takes. py-spy and Python itself give functions different
    names: with frames of both, two stacks are at one place if the program's line and the operation are the same.

    Args:
        seen: the processes.
    """
    is_one_kind = len({each.source for each in seen if each.main}) < 2
    return [
        Rank(
            name=each.name,
            place=_place(each, by_frames=is_one_kind),
            phase=each.phase,
            step=each.step,
            unresponsive=each.unresponsive,
            silent_secs=each.silent_secs if each.unresponsive == "silent" else None,
            is_late=each.is_late,
        )
        for each in seen
    ]


def _place(seen: SeenRank, *, by_frames: bool) -> Place | None:
    if not seen.main:
        return None
    if by_frames and seen.source == "record":
        return seen.place
    place = place_of(seen.main)
    return place if by_frames else replace(place, digest=f"{place.location} {place.waits_in}")

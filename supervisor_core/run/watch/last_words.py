"""What the memory of a machine has of a session that could not write it: the stall that no record shows, and the death.

Both are from the session's progress page and its file of stacks. The page of a process that is over stays until the
next session of the run, or the restarter, has recorded the death (`DeathRecord`); until then, readers on that machine
read it. When a process died is not in its page: only its last sign of life is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from supervisor_core.events.telemetry import DeathRecord, OpenStall
from supervisor_core.process.progress_page import PageReading
from supervisor_core.process.stacks import MAIN_THREAD, user_line
from supervisor_core.process.stacks_file import SUFFIX, StacksLook, read_stacks

BLOCKED_SECS = 5.0
"""The monitor of a session ticks once a second: without a tick for longer than this its process runs no Python."""


TimedLook = tuple[StacksLook, float]
"""Stacks, and the wall time at which they were taken."""


def newest_look(page: PageReading) -> TimedLook | None:
    """Return the newest stacks of a process in memory: its own, by its timer, or from outside. None without any."""
    path = page.path.with_suffix(SUFFIX)
    reading = read_stacks(path)
    if reading is None or reading.session != page.session or not reading.looks:
        return None
    look = reading.looks[-1]
    try:
        return look, os.stat(path).st_mtime if look.at is None else look.at
    except OSError:
        return None


def stall_of(
    page: PageReading,
    at: float,
    at_boot: float,
    look_of: Callable[[PageReading], TimedLook | None] = newest_look,
    *,
    is_over: bool = False,
) -> OpenStall | None:
    """Return the stall that a session is in by its page; None if it is in none, or has not ticked yet.

    Args:
        page: the session's.
        at: wall time of the present, or of the last sign of life of a process that is over.
        at_boot: the same by `supervisor_core.base.clock.boot_secs`.
        look_of: returns the newest stacks of a process.
        is_over: whether the process is over. Then it hung, too, where its timer has fired since the last tick: how much
            longer it would have been blocked is not known.
    """
    if not page.ticks or page.ended:
        return None
    age, tick_age = at_boot - page.progress_boot_secs, at_boot - page.tick_boot_secs
    found = look_of(page)
    was_cut_off = is_over and found is not None and found[0].by_timer and found[1] > at - tick_age
    is_blocked = was_cut_off or tick_age > BLOCKED_SECS
    if found is not None and found[1] < at - (tick_age if is_blocked else age) - 1.0:  # of an earlier hang
        found = None
    if not was_cut_off and (page.hang_timeout_secs is None or age <= page.hang_timeout_secs):
        return None
    thread, _, location = page.location.partition(" at ")
    stall = OpenStall(
        phase=page.phase,
        since=at - age,
        step=page.step,
        secs=age,
        timeout_secs=page.hang_timeout_secs,
        thread=thread or None,
        location=location or None,
        activity=page.activity,
        stacks={} if found is None else found[0].stacks,
        blocked_since=at - tick_age if is_blocked else None,
    )
    line = None if found is None or not is_blocked else user_line(found[0].stacks.get(MAIN_THREAD, ()))
    return stall if line is None else replace(stall, thread=MAIN_THREAD, location=line, activity=None)


def death_of(page: PageReading, now: float, boot_now: float, *, alive_at_boot: float = 0.0) -> DeathRecord:
    """Return what is known of a session whose process is over.

    Args:
        page: the session's.
        now: the present wall time.
        boot_now: the same by `supervisor_core.base.clock.boot_secs`.
        alive_at_boot: when its process was last seen to run, by that clock; 0.0 where nobody looked.
    """
    seen = max(page.started_boot_secs, alive_at_boot)
    if page.ticks:
        seen = max(seen, page.tick_boot_secs, page.progress_boot_secs)
        look = newest_look(page)
        if look is not None:
            seen = max(seen, look[1] - (now - boot_now))
    seen = min(seen, boot_now)
    return DeathRecord(
        session=page.session,
        step=page.step,
        step_exact=page.step is not None and page.is_step_exact,
        elapsed_secs=max(0.0, seen - page.started_boot_secs),
        stall=stall_of(page, seen + (now - boot_now), seen, is_over=True),
    )

"""What a lease says: who holds it, why it is refused, and what the session reads that has lost it."""

from __future__ import annotations

import time

from supervisor_core.checkpoint.lease_record import LeaseRecord


def holder(record: LeaseRecord | None, *, age_secs: float, is_this_process: bool) -> str:
    """Return who holds a lease, since when, how far it has come, and how long ago it renewed it, in seconds."""
    if record is None or record.ended is not None:
        return "a process that has not yet said who it is"
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(record.started_at))
    step = "" if record.last_step is None else f", at step {record.last_step:,}"
    who = "this very process" if is_this_process else f"process {record.pid} on {record.host}"
    return f"{who} (session {record.session}) since {since}{step}, renewed {max(0.0, age_secs):.0f} s ago"


def ahead(path: str, secs: float, timeout_secs: float) -> str:
    """Return what is logged before a lease is watched that was renewed ``secs`` seconds in the future."""
    return (
        f"{path} was last renewed {secs:.0f} s in the future, so a clock was set back: waiting up to "
        f"{timeout_secs:g} s for a renewal, to see whether its holder is alive"
    )


def in_use(logdir: str, by: str, *, is_this_process: bool, free_in_secs: float | None, path: str) -> str:
    """Return why a second chief is refused.

    Args:
        logdir: the run's directory.
        by: who holds it, see `holder`.
        is_this_process: whether that is this process, in another session.
        free_in_secs: when it counts as dead unless it renews; None where it is certain that it lives.
        path: the lease file.
    """
    remedy = "close that session" if is_this_process else "stop that one"
    text = f"The logdir {logdir} is in use by {by}. Two chiefs would delete each other's checkpoints: {remedy}, or use "
    text += "another logdir"
    if free_in_secs is not None:
        text += f"; if it is dead, try again in {max(1.0, free_in_secs):.0f} s, or delete {path}"
    return text + ". Options(exclusive_logdir=False) starts anyway."


def taken_over(logdir: str, successor: str, timeout_secs: float) -> str:
    """Return what a chief reads that another one has taken the logdir over from."""
    return (
        f"The logdir {logdir} was taken over by {successor}: this process had not renewed its lease for longer than "
        f"lease_timeout_secs ({timeout_secs:g} s), as when it is suspended or cut off from the storage. It publishes "
        "nothing any more and stops; the run goes on from the other chief's newest checkpoint."
    )


def gave_way(logdir: str, successor: str) -> str:
    """Return what a session reads that writes no checkpoints, once one that does has come."""
    return (
        f"The logdir {logdir} now belongs to {successor}, which writes checkpoints there: this process writes no "
        "telemetry any more."
    )


def no_locks(logdir: str, reason: str | None, path: str, timeout_secs: float) -> str:
    """Return the warning for a file system that does not lock."""
    return (
        f"{logdir} has no file locks ({reason}): only renewals of {path} keep a second chief out, and a dead one is "
        f"replaced after {timeout_secs:g} s"
    )

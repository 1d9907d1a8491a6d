"""`outlived`: what the session that follows found out about one that left no word.

A killed session's events end with its last heartbeat or summary, up to ten seconds before its death. The logdir's lease
was renewed up to a second before it, and the next session tells of it: how far the dead one had come, and when.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from supervisor_core.run.model import BUCKET_OF_PHASE, PRODUCTIVE, STALL
from supervisor_core.run.session_facts import LATE_SECS, SessionFacts

RENEWAL_SECS, REMOTE_RENEWAL_SECS = 1.0, 15.0
"""How often a lease is renewed: in a local logdir, and in an object store."""


def outlived(told: SessionFacts, following: SessionFacts) -> SessionFacts:
    """Return what is known of a session, with what the one that follows it in the lease tells of it."""
    session, seen_at = told.session, following.previous_seen_at
    if session.inferred or session.outcome != "running" or following.session.attempt != session.attempt + 1:
        return told
    if seen_at is None or session.started_at is None or session.ended_at is None:
        return told
    if following.previous_elapsed_secs is not None:  # by a clock that nobody sets, so that it fits the session's own
        seen_at = latest = session.started_at + following.previous_elapsed_secs
    else:
        latest = following.session.started_at if following.session.started_at is not None else seen_at
    ended_at = max(session.ended_at, min(seen_at, latest))
    unheard_secs = told.unheard_secs
    unseen_secs = told.unseen_secs
    renewal_secs = REMOTE_RENEWAL_SECS if any("://" in path for path in session.files) else RENEWAL_SECS
    if ended_at - seen_at < renewal_secs:  # had it lived on, the lease would have been renewed once more
        unheard_secs = min(unheard_secs, renewal_secs / 2)
        unseen_secs = max(0.0, seen_at + renewal_secs - ended_at) + LATE_SECS
    activity = dict(session.activity_secs)
    bucket = STALL if told.is_stalled else BUCKET_OF_PHASE.get(session.phase or "", "other")
    activity[bucket] = activity.get(bucket, 0.0) + ended_at - session.ended_at
    steps = [session.last_step]
    if not told.recoveries or seen_at >= told.recoveries[-1].at:  # else it is of what the recovery took back
        steps.append(following.previous_step)
    last_step = max((step for step in steps if step is not None), default=None)
    return replace(
        told,
        session=replace(session, ended_at=ended_at, last_step=last_step, activity_secs=activity),
        paces=(
            *told.paces[:-1],
            told.paces[-1].extended(session.first_step, last_step, activity.get("productive", 0.0)),
        ),
        unheard_secs=unheard_secs,
        unseen_secs=unseen_secs,
        most_steps_per_sec=_most(told.most_steps_per_sec, session.first_step, last_step, activity),
    )


def _most(told: float | None, first_step: int | None, last_step: int | None, secs: Mapping[str, float]) -> float | None:
    productive = secs.get(PRODUCTIVE, 0.0)
    if first_step is None or last_step is None or productive <= 0:
        return told
    return max(told or 0.0, (last_step - first_step) / productive) or None

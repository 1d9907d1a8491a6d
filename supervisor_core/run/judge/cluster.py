"""The workers of a training as `verdict_of` takes them, and how long none of them may make progress."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from supervisor_core.events.place import WorkerStatus
from supervisor_core.process.stacks import location
from supervisor_core.run.judge.culprit import Rank, Unresponsive
from supervisor_core.run.model.words import duration

SILENT_SECS = 35.0
"""A process that has written nothing for longer is silent: its heartbeats are at most 10 s apart."""
_APART = ("serving", "stopped")
"""Phases of processes for which no other process waits: parameter servers, and what has ended."""


def shared_timeout(workers: Sequence[WorkerStatus], now: float, *, own_secs: float | None) -> float | None:
    """Return how long none of the processes of a training may make progress: the least hang timeout of those that
    train. None where one of the workers may keep the others waiting: it makes progress, is in another phase or in a
    save and still has time, or says nothing of this.

    Args:
        workers: the processes other than the chief.
        now: the present wall time, by the clock of their ``last_seen_at``.
        own_secs: the chief's hang timeout, where it trains.
    """
    alive = [worker for worker in workers if _takes_part(worker) and _unresponsive(worker, now) is None]
    trains = [worker.hang_timeout_secs for worker in alive if worker.phase == "training" and not worker.held]
    least = min((secs for secs in (own_secs, *trains) if secs is not None), default=None)
    return least if all(_is_late(worker, now, least) for worker in alive) else None


def ranks_of(workers: Sequence[WorkerStatus], now: float, *, least_secs: float | None) -> list[Rank] | None:
    """Return the workers as `verdict_of` takes them; None where one of them makes progress: then no worker waits for
    the chief, and the chief does not wait for that worker.

    Args:
        workers: the processes other than the chief.
        now: the present wall time, by the clock of their ``last_seen_at``.
        least_secs: see `shared_timeout`.
    """
    found = []
    for worker in workers:
        if not _takes_part(worker):
            continue
        unresponsive = _unresponsive(worker, now)
        if unresponsive is None and worker.place is None and worker.progress_age_secs is not None:
            return None
        rank = Rank(
            name=worker.name,
            place=None if unresponsive else worker.place,
            phase=worker.phase,
            step=worker.step,
            unresponsive=unresponsive,
            silent_secs=_silent_secs(worker, now) if unresponsive == "silent" else None,
            is_late=_is_late(worker, now, least_secs),
        )
        found.append(rank)
    return found


def name_of_chief(others: Iterable[str]) -> str:
    """Return the chief's name beside processes of these names: ``rank:0`` among ranks, or ``chief``."""
    return "rank:0" if any(name.startswith("rank:") for name in others) else "chief"


def place_text(worker: WorkerStatus) -> str | None:
    """Return where a worker is that makes no progress, for people; None of any other, and where that is not known.

    Example:
        >>> place = Place(digest="a", location="/home/me/train.py:25 train", waits_in="backward")
        >>> place_text(WorkerStatus(name="rank:1", state="running", progress_age_secs=12.0, place=place))
        'no progress for 12 s, at train.py:25 in train (backward)'
    """
    place = worker.place
    if place is None or place.location is None or worker.progress_age_secs is None:
        return None
    waits = "" if place.waits_in is None else f" ({place.waits_in})"
    return f"no progress for {duration(worker.progress_age_secs)}, at {location(place.location)}{waits}"


def _takes_part(worker: WorkerStatus) -> bool:
    return worker.state != "stopped" and worker.phase not in _APART


def _silent_secs(worker: WorkerStatus, now: float) -> float:
    return 0.0 if worker.last_seen_at is None else max(0.0, now - worker.last_seen_at)


def _unresponsive(worker: WorkerStatus, now: float) -> Unresponsive | None:
    if worker.state == "failed":
        return "failed"
    return "silent" if worker.state == "lost" or _silent_secs(worker, now) > SILENT_SECS else None


def _is_late(worker: WorkerStatus, now: float, least_secs: float | None) -> bool:
    """Return whether a worker that is alive has made no progress for longer than it may."""
    age = worker.progress_age_secs
    if age is not None and worker.place is not None:  # progress would have been written at once
        age += _silent_secs(worker, now)
    limit = least_secs if worker.phase == "training" and not worker.held else worker.hang_timeout_secs
    return age is not None and limit is not None and age > limit

"""`WorkerFold`: one other process of the cluster, heartbeat by heartbeat of one chief; and over the run's chiefs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, get_args

from supervisor_core.run.bounds import keep_newest
from supervisor_core.run.fields import number, text, whole
from supervisor_core.run.model import WorkerHistory, WorkerSpan
from supervisor_core.run.status import WorkerState

_STATES = frozenset(get_args(WorkerState))
_DIGITS = re.compile(r"([0-9]+)")


@dataclass(frozen=True, slots=True)
class WorkerTold:
    """What one chief, or several one after the other, told of a worker."""

    history: WorkerHistory
    starts: frozenset[float]
    """When its processes had begun."""


class _Told(NamedTuple):
    """What a heartbeat tells of a worker, but for its state; small, since a run has very many."""

    last_seen_at: float | None = None
    phase: str | None = None
    waiting_for: str | None = None
    step: int | None = None
    steps: int | None = None
    host: str | None = None
    pid: int | None = None
    error: str | None = None


_NOTHING = _Told()


class WorkerFold:
    """Gathers what the heartbeats of one session tell of one worker; finished spans are only ever added to.

    Args:
        name: the worker's.
        kept_spans: how many of its newest spans are kept; None: all.
    """

    __slots__ = ("_error", "_kept", "_last", "_since", "_spans", "_started_at", "_starts", "_state", "_until", "name")

    def __init__(self, name: str, kept_spans: int | None = None) -> None:
        self.name = name
        self._kept = kept_spans
        self._spans: list[WorkerSpan] = []
        self._starts: set[float] = set()
        self._last = _NOTHING
        self._state: WorkerState | None = None
        self._since = self._until = 0.0
        self._started_at: float | None = None
        self._error: str | None = None

    def beat(self, at: float, told: Mapping[str, Any]) -> None:
        """Take in what the heartbeat of wall time ``at`` tells of the worker."""
        state: Any = told.get("state")
        if text(state) not in _STATES:
            return
        at = max(at, self._until)
        self._enter(state, number(told.get("started_at")), at)
        self._until = at
        self._last = _told(told)
        self._error = self._last.error or self._error

    def absorb(self, later: WorkerFold) -> None:
        """Go on with what a later file of the same session told."""
        for span in later._spans if later._state is None else [*later._spans, later._span(later._until)]:
            self._enter(span.state, span.started_at, max(span.since, self._until))
            self._until = max(self._until, span.until)
            self._error = span.error or self._error
        self._starts |= later._starts
        self._last = self._last if later._state is None else later._last

    def told(self, session: str, told_at: float | None, until: float) -> WorkerTold | None:
        """Return all that the session told; None before anything was.

        Args:
            session: the session's id.
            told_at: when it told of its workers last: where that does not name this one, nothing is known of it.
            until: when the session ended, or was last seen.
        """
        if self._state is None:
            return None
        is_in_last = told_at is None or self._until >= told_at
        history = WorkerHistory(
            name=self.name,
            state=self._state,
            spans=(*self._spans, self._span(max(until, self._until) if is_in_last else self._until)),
            starts=max(1, len(self._starts)),
            session=session,
            **self._last._asdict(),
        )
        return WorkerTold(history, frozenset(self._starts))

    def _enter(self, state: WorkerState, started_at: float | None, at: float) -> None:
        """Begin another span, unless state and process are those of the present one."""
        is_same = started_at is None or self._started_at is None or started_at == self._started_at
        if state != self._state or not is_same:
            if self._state is not None:
                self._spans.append(self._span(at))
                keep_newest(self._spans, self._kept)
            self._state, self._since, self._error = state, at, None
        if started_at is not None:
            self._started_at = started_at
            self._starts.add(started_at)

    def _span(self, until: float) -> WorkerSpan:
        assert self._state is not None
        return WorkerSpan(
            state=self._state, since=self._since, until=until, started_at=self._started_at, error=self._error
        )


def followed(told: Sequence[WorkerTold], kept_spans: int | None) -> WorkerHistory:
    """Return what is known of a worker of which several chiefs have told, one after the other.

    Args:
        told: what each told, at least one.
        kept_spans: how many of its newest spans are kept; None: all.
    """
    if len(told) == 1:
        return told[0].history
    newest = told if kept_spans is None else told[-max(1, kept_spans) :]  # each has at least one
    spans = [span for each in newest for span in each.history.spans]
    if any(after.since < before.since for before, after in pairwise(spans)):  # the chiefs' clocks disagree
        spans.sort(key=lambda span: span.since)
    if kept_spans is not None:
        del spans[: -max(1, kept_spans)]
    starts = set[float]().union(*(each.starts for each in told))
    return replace(told[-1].history, spans=tuple(spans), starts=max(1, len(starts)))


def by_name(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return what sorts names as people count: ``worker:2`` before ``worker:10``."""
    parts = _DIGITS.split(name)
    digits = [part.lstrip("0") if index % 2 else part for index, part in enumerate(parts)]
    return [(len(part) if index % 2 else 0, part) for index, part in enumerate(digits)], name


def _told(told: Mapping[str, Any]) -> _Told:
    return _Told(
        last_seen_at=number(told.get("last_seen_at")),
        phase=text(told.get("phase")),
        waiting_for=text(told.get("waiting_for")),
        step=whole(told.get("step")),
        steps=whole(told.get("steps")),
        host=text(told.get("host")),
        pid=whole(told.get("pid")),
        error=text(told.get("error")),
    )

"""`Compared`: what one run is beside others; `differing`: what sets them apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from supervisor_core.events.hparams import HParam
from supervisor_core.run.model.run import PRODUCTIVE, Run, RunState, Session

RECORDED = ("facade", "world_size", "device_kind", "device_count", "checkpoint_interval_secs")
"""What a session records of its configuration: fields of its record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One run beside others. `supervisor_core.run.judge.run_json.as_json` makes plain values of it."""

    run: str
    state: RunState
    step: int | None
    """Its present step."""
    steps_per_sec: float | None
    goodput: float | None
    """Share of `duration_secs` that went into kept steps; None where unknown."""
    restarts: int
    lost_secs: float | None
    """The rest of `duration_secs`: downtime, recomputed steps, stalls, starting, saving; None where unknown."""
    started_at: float | None
    duration_secs: float | None
    """From its first start until now, its end, or when it was last seen; None where unknown."""
    host: str | None
    """On which its newest session runs."""
    labels: Mapping[str, str] = field(default_factory=dict)
    hparams: Mapping[str, HParam] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the newest session that recorded any: package -> version."""
    recorded: Mapping[str, HParam] = field(default_factory=dict)
    """`RECORDED`, as far as it is known."""


def compared(run: Run, name: str | None = None) -> Compared:
    """Return what a run is beside others.

    Args:
        run: the run.
        name: what it is called there. Default: its own name.

    Example:
        >>> from supervisor_core.run.fold.run_fold import RunFold
        >>> compared(RunFold("mnist").run(now=1.7e9)).restarts
        0
    """
    goodput, sessions = run.goodput, run.sessions
    started_at = sessions[0].started_at if sessions else None
    productive = goodput.secs.get(PRODUCTIVE, 0.0)
    return Compared(
        run=run.name if name is None else name,
        state=run.state,
        step=run.step,
        steps_per_sec=run.steps_per_sec,
        goodput=goodput.ratio,
        restarts=len(run.restarts),
        lost_secs=None if goodput.ratio is None else max(0.0, goodput.wall_secs - productive),
        started_at=started_at,
        duration_secs=None if started_at is None else goodput.wall_secs,
        host=next((session.host for session in reversed(sessions) if session.host), None),
        labels=run.labels,
        hparams=run.hparams,
        versions=run.versions,
        recorded=_recorded(sessions),
    )


def _recorded(sessions: Sequence[Session]) -> dict[str, HParam]:
    newest = next((session for session in reversed(sessions) if session.facade), None)
    if newest is None:
        return {}
    found = {name: getattr(newest, name) for name in RECORDED}
    return {name: value for name, value in found.items() if value is not None}


def differing(runs: Sequence[Compared]) -> list[str]:
    """Return the columns in which runs differ, in their order: a field, or a key of one, as in ``versions.torch``. What
    only some of the runs have differs.

    Example:
        >>> from supervisor_core.run.fold.run_fold import RunFold
        >>> one = compared(RunFold("a").run(now=1.7e9))
        >>> differing([one, compared(RunFold("b").run(now=1.7e9))])
        []
    """
    columns: dict[str, list[Any]] = {}
    for each in runs:
        for column, value in _columns(each):
            columns.setdefault(column, []).append(_comparable(value))
    return [
        column
        for column, values in columns.items()
        if len(values) < len(runs) or any(value != values[0] for value in values)
    ]


def _columns(each: Compared) -> Iterator[tuple[str, Any]]:
    for item in fields(each):
        value = getattr(each, item.name)
        if isinstance(value, Mapping):
            yield from ((f"{item.name}.{key}", value[key]) for key in sorted(value))
        elif item.name != "run":
            yield item.name.removesuffix("_at"), value


def _comparable(value: Any) -> Any:
    """Return a value that equals another where both are shown alike: NaN is NaN, and True is not 1."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN", None
    return type(value) is bool, value

"""`FileTotals`: what the files of a run tell together, whoever wrote them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from supervisor_core.run.file_fold import FileFold
from supervisor_core.run.model import NonFinite
from supervisor_core.run.rates import latest

_N = TypeVar("_N", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTotals:
    """Sums over files; the fields are those of `Run` with the same names."""

    first_step: int | None
    last_step: int | None
    max_step: int | None
    last_event_at: float | None
    session_logs: Mapping[str, int]
    scalar_tags: int
    nonfinite_tags: tuple[NonFinite, ...]
    rates: tuple[float, ...]


def totals(files: Iterable[FileFold], earlier: Collection[str] = ()) -> FileTotals:
    """Sum up files.

    Args:
        files: in their order.
        earlier: the paths of those that only earlier sessions wrote: their wall clock may have been set since.
    """
    files = tuple(files)
    tags: set[str] = set()
    logs: Counter[str] = Counter(START=0, CHECKPOINT=0, STOP=0)
    first: int | None = None
    last: int | None = None
    highest: int | None = None
    heard_at: float | None = None
    nonfinite: dict[str, NonFinite] = {}
    for file in files:
        tags |= file.tags
        logs.update(file.session_logs)
        for tag, found in file.nonfinite.items():
            nonfinite[tag] = nonfinite[tag].joined(found) if tag in nonfinite else found
        first = file.first_step if first is None else first
        last = last if file.last_step is None else file.last_step
        highest = _largest(highest, file.max_step)
        if file.path not in earlier:
            heard_at = _largest(heard_at, file.last_at)
    return FileTotals(
        first_step=first,
        last_step=last,
        max_step=highest,
        last_event_at=heard_at,
        session_logs=dict(logs),
        scalar_tags=len(tags),
        nonfinite_tags=tuple(nonfinite[tag] for tag in sorted(nonfinite)),
        rates=latest([file.rates for file in files]),
    )


def _largest(first: _N | None, second: _N | None) -> _N | None:
    return second if first is None or (second is not None and second > first) else first

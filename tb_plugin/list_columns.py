"""The columns that the list of runs may have besides its own: what ``fields`` and ``columns`` answer.

A column is known by its key: ``duration``, ``started``, ``host``; or a kind and a name: ``tag:loss`` is the newest kept
value of that tag, ``hparam:lr`` a hyperparameter, ``label:team`` a label, ``version:torch`` the version of a package,
``recorded:world_size`` what a session recorded.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from supervisor_core.events.hparams import HParam
from supervisor_core.run.judge.comparison import Compared, compared
from supervisor_core.run.judge.run_json import plain
from tb_plugin.run_data import RunView, View

MOST_COLUMNS = 50
"""That one request may name."""
MOST_FIELDS = 2_000
"""That are listed: of each kind those that most runs have."""

_WHOLE: Mapping[str, Callable[[Compared], HParam | None]] = {
    "duration": lambda each: each.duration_secs,
    "started": lambda each: each.started_at,
    "host": lambda each: each.host,
}
"""Columns without a name of their own."""
_NAMED: Mapping[str, Callable[[Compared], Mapping[str, HParam]]] = {
    "hparam": lambda each: each.hparams,
    "label": lambda each: each.labels,
    "version": lambda each: each.versions,
    "recorded": lambda each: each.recorded,
}
_TAG = "tag"


MOST_KEY_CHARS = 5_000
"""Of a key: no tag is longer."""
EXPECTED = f"one of {', '.join(_WHOLE)}, or a name after one of {', '.join(f'{kind}:' for kind in (_TAG, *_NAMED))}"
"""What a key must be, for an error."""


def is_column(key: str) -> bool:
    """Return whether there may be a column of this key."""
    kind, _, name = key.partition(":")
    is_named = bool(name) and (kind == _TAG or kind in _NAMED)
    return key in _WHOLE or (is_named and len(key) <= MOST_KEY_CHARS)


def list_fields(view: View) -> dict[str, Any]:
    """Return the columns that at least one run has, those that most runs have first; and how many are left out."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in ("", _TAG, *_NAMED)}
    for shown in view.runs.values():
        each = shown.once(_compared)
        counts[""].update(key for key, value in _WHOLE.items() if value(each) is not None)
        counts[_TAG].update(shown.run.tag_values.tags)
        for kind, values in _NAMED.items():
            counts[kind].update(values(each).keys())
    found, left_out = [], 0
    for kind, names in counts.items():
        known = [(name, runs) for name, runs in names.items() if not kind or is_column(f"{kind}:{name}")]
        ordered = sorted(known, key=lambda item: (-item[1], item[0]))
        left_out += max(0, len(ordered) - MOST_FIELDS)
        found += [{"key": f"{kind}:{name}" if kind else name, "runs": runs} for name, runs in ordered[:MOST_FIELDS]]
    return {"v": 1, "generation": view.generation, "fields": plain(found), "left_out": left_out}


def list_columns(view: View, keys: Sequence[str], since: int | None) -> dict[str, Any]:
    """Return the values of columns, by run: of all runs that have one; or, of those that changed after a generation, if
    the view goes back that far, all, None where they have none now."""
    full = since is None or since < view.oldest or since > view.generation
    base = 0 if full or since is None else since
    runs = [run for run in view.runs.values() if run.generation > base]
    columns: dict[str, dict[str, HParam | None]] = {key: {} for key in keys}
    getters = [(columns[key], _getter(key)) for key in keys]
    for run in runs:
        each = run.once(_compared)
        for column, value_of in getters:
            column[run.name] = value_of(run, each)
    if full:
        columns = {
            key: {run: value for run, value in column.items() if value is not None} for key, column in columns.items()
        }
    return {"v": 1, "at": view.at, "generation": view.generation, "full": full, "columns": columns}


def _getter(key: str) -> Callable[[RunView, Compared], HParam | None]:
    kind, _, name = key.partition(":")
    if key in _WHOLE:
        return lambda run, each: _WHOLE[key](each)
    if kind == _TAG:
        return lambda run, each: _newest(run, name)
    return lambda run, each: _NAMED[kind](each).get(name)


def _compared(shown: RunView) -> Compared:
    return compared(shown.run)


def _newest(run: RunView, tag: str) -> float | str | None:
    last = run.run.tag_values.of(tag)
    return None if last is None else _shown(last.value)


def _shown(value: float) -> float | str:
    """Return a value as JSON can hold it: one that is not finite as a text, since it is known."""
    return value if math.isfinite(value) else str(value)

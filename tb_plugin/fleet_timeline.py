"""All runs over the same time: what each did as columns, and what happened as sentences.

Times are by the reader's clock. What a run did is computed once, and again after the run has changed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from supervisor_core.run.fold.session_fold import natural_order
from supervisor_core.run.judge.history import ENDS, LANE_KINDS, TROUBLE, history, lane_items, present
from supervisor_core.run.judge.run_json import plain
from supervisor_core.run.judge.together import Happened, Sentence, Stay, sentences_of, stays_of
from tb_plugin.http import HOST, LABEL, PREFIX
from tb_plugin.run_data import RunView, View

MOST_ITEMS = 200_000
"""How many are sent, about; more are thinned."""
MOST_SENTENCES = 300
"""How many are sent."""
_MOST_RUNS_OF_SENTENCE = 200
_FINEST = 4_096
"""Columns of a stretch into which items are joined, where they are too many."""

_MOST_LABELS = 20
_IS_TROUBLE = np.array([kind in TROUBLE for kind in LANE_KINDS])

Floats = NDArray[np.float64]


def timeline_columns(
    view: View, since: float, until: float, by: str = PREFIX
) -> tuple[Mapping[str, Floats], Mapping[str, Any]]:
    """Return what the runs did in a stretch of time: what ``timeline`` answers as columns, and what it says of them.

    Args:
        view: the runs.
        since: begin of the stretch; may be infinite, as its end.
        until: its end.
        by: what groups the runs: ``prefix``, of their names, ``host``, or ``label:<name>``.
    """
    shown = _shown(view)
    lanes = [run.once(_lane) for run in shown]
    items = np.concatenate([np.empty((0, 3)), *lanes])
    run = np.repeat(np.arange(len(lanes)), [len(lane) for lane in lanes])
    begins, ends = items[:, 1], np.minimum(items[:, 2], max(view.at, 0.0))
    ends = np.maximum(begins, ends)
    inside = np.flatnonzero((ends >= since) & (begins <= until))
    run, kind, begins, ends = run[inside], items[inside, 0], begins[inside], ends[inside]
    low = float(begins.min()) if len(begins) and math.isinf(since) else since
    high = view.at if math.isinf(until) else until
    run, kind, begins, ends, thinned = _thinned(run, kind, begins, ends, low, high)
    present, run = np.unique(run, return_inverse=True)
    trouble = _IS_TROUBLE[kind.astype(np.int64)]
    counts = np.bincount(run[trouble], minlength=len(present))
    lasted = np.minimum(ends, high) - np.maximum(begins, low)
    lost_secs = np.bincount(run[trouble], lasted[trouble], minlength=len(present))
    there = [shown[index] for index in present]
    hosts = [_host(item, low) for item in there]
    needs_you = np.array([item.standing == "needs_you" for item in there], np.bool_)
    urgency = [(not need, -secs) for need, secs in zip(needs_you, lost_secs, strict=True)]
    header = {
        "at": view.at,
        "from": low if math.isfinite(low) else None,
        "to": high,
        "kinds": list(LANE_KINDS),
        "trouble": [index for index, name in enumerate(LANE_KINDS) if name in TROUBLE],
        "thinned": thinned,
        "all_runs": len(shown),
        "runs": [item.name for item in there],
        "host": hosts,
        "incidents": counts.tolist(),
        "needs_you": [index for index, need in enumerate(needs_you) if need],
        "ahead": [[index, item.run.clock_skew_secs] for index, item in enumerate(there) if item.run.clock_skew_secs],
        "label_names": sorted({name for item in there for name in item.run.labels})[:_MOST_LABELS],
        "groups": _groups(_keys(there, hosts, by), (counts > 0) | needs_you, urgency),
    }
    return {"run": run.astype(np.float64), "kind": kind, "since": begins, "until": ends}, plain(header)


def _keys(shown: Sequence[RunView], hosts: Sequence[str | None], by: str) -> list[str]:
    if by == HOST:
        return [host or "host not known" for host in hosts]
    if by.startswith(LABEL):
        name = by.removeprefix(LABEL)
        return [f"{name}={item.run.labels[name]}" if name in item.run.labels else f"without {name}" for item in shown]
    parts = [item.name.split("/")[:-1] for item in shown]
    least, most = min(parts, default=[]), max(parts, default=[])  # what these share, all share
    pairs = zip(least, most, strict=False)
    shared = next((depth for depth, (one, other) in enumerate(pairs) if one != other), len(least))
    keys = ["/".join(each[: shared + 1]) for each in parts]
    return keys if len(set(keys)) * 2 <= len(keys) else [""] * len(keys)  # each run in a directory of its own


def _groups(keys: Sequence[str], troubled: NDArray[np.bool_], urgency: Sequence[tuple[bool, float]]) -> list[Any]:
    """Return name, runs to look at, the most urgent first, and the others, of each group: as indices. The group that
    lost most time comes first."""
    groups: defaultdict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for index, key in enumerate(keys):
        groups[key][0 if troubled[index] else 1].append(index)
    for first, _ in groups.values():
        first.sort(key=urgency.__getitem__)
    lost = {key: (not found[0], sum(urgency[index][1] for index in found[0])) for key, found in groups.items()}
    return [[key, *groups[key]] for key in sorted(groups, key=lambda key: (lost[key], natural_order(key)))]


def _shown(view: View) -> list[RunView]:
    """Return the runs, without copies of others: what happened to a run happened once."""
    return [run for run in view.runs.values() if run.watched.copy_of is None]


def _lane(shown: RunView) -> Floats:
    past = [item.found for item in shown.once(_happened)]
    rows = [(LANE_KINDS.index(kind), since, until) for kind, since, until in lane_items(shown.run, past)]
    return np.array(rows, np.float64).reshape(-1, 3)


def _thinned(
    run: NDArray[np.int64], kind: Floats, begins: Floats, ends: Floats, low: float, high: float
) -> tuple[NDArray[np.int64], Floats, Floats, Floats, bool]:
    """Return fewer items where they are too many: of one run and kind those that begin in the same column are one."""
    columns, thinned = _FINEST, len(run) > MOST_ITEMS
    while len(run) > MOST_ITEMS and columns >= 64:
        column = np.clip((begins - low) / max(high - low, 1e-9) * columns, -1, columns).astype(np.int64)
        key = (run * len(LANE_KINDS) + kind.astype(np.int64)) * (columns + 2) + column + 1
        order = np.argsort(key, kind="stable")
        starts = np.flatnonzero(np.diff(key[order], prepend=-1))
        run, kind = run[order][starts], kind[order][starts]
        begins, ends = np.minimum.reduceat(begins[order], starts), np.maximum.reduceat(ends[order], starts)
        columns //= 4
    return run, kind, begins, ends, thinned


def _host(shown: RunView, since: float) -> str | None:
    """Return the host on which a run went down first after a moment; else that of its newest session."""
    falls = (item for item in shown.once(_happened) if item.found.kind in ENDS and item.at >= since)
    fallen_on = next((item.host for item in falls if item.host is not None), None)
    return fallen_on or next((each.host for each in reversed(shown.run.sessions) if each.host), None)


def happened(view: View, since: float, until: float) -> dict[str, Any]:
    """Return what happened to all runs in a stretch of time, as ``incidents`` answers it."""
    shown = _shown(view)
    stays = [stay for run in shown for stay in run.once(_stays)]
    found = sentences_of((item for run in shown for item in run.once(_happened)), stays, since, until, view.at)
    first = sorted(found, key=lambda item: not item.is_group)[:MOST_SENTENCES]
    return {"v": 1, "at": view.at, "total": len(found), "sentences": plain([_as_json(item) for item in first])}


def _happened(shown: RunView) -> Sequence[Happened]:
    past = history(shown.run)
    return [Happened(shown.name, item) for item in (*past, *present(past, shown.held))]


def _stays(shown: RunView) -> Sequence[Stay]:
    return stays_of(shown.run, shown.name)


def _as_json(item: Sentence) -> dict[str, Any]:
    return {
        "at": item.at,
        "text": item.text,
        "count": len(item.runs),
        "runs": list(item.runs[:_MOST_RUNS_OF_SENTENCE]),
        "together": item.is_group,
        "open": item.is_open,
    }

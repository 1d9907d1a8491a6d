"""What ``compare`` answers: several runs side by side, each with its configuration and its tags in a few numbers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from supervisor_core.run.fold.points import ScalarSummary, scalar_summary
from supervisor_core.run.judge.comparison import Compared, compared, differing
from supervisor_core.run.judge.run_json import as_json, plain
from tb_plugin.run_data import RunView
from tb_plugin.scalar_store import NotRead, RunScalars
from tb_plugin.scalars import segments_of

MOST_RUNS, MOST_TAGS = 50, 20
"""That one request may name."""
_MOST_CHARS = 4_096
"""Of a name that is repeated, as of a path."""


class _Facts:
    """What was found out of one run. Summaries of points that were read after the run was looked at stay the same until
    the run changes: its points may be let go of. Those of points that were read before are made again."""

    def __init__(self, shown: RunView) -> None:
        self.shown = shown
        self.compared = compared(shown.run, shown.name)
        self._tags: list[str] | None = None
        """All its tags; None before its scalars were read."""
        self._summaries: dict[str, ScalarSummary] = {}
        self._made_at = time.monotonic()
        self._is_final = False
        self._lock = threading.Lock()

    def is_final(self, tags: Sequence[str]) -> bool:
        """Return whether nothing more is to be read of these tags."""
        return self._is_final and self._has(tags)

    def _has(self, tags: Sequence[str]) -> bool:
        return self._tags is not None and all(tag in self._summaries or tag not in self._tags for tag in tags)

    def take(self, scalars: RunScalars, tags: Sequence[str]) -> None:
        """Find out what these tags are."""
        segments = self.shown.once(segments_of)
        with self._lock:
            found = dict(self._summaries) if self._is_final else {}
            is_final = self._is_final or scalars.read_at >= self._made_at
            names = scalars.names()
            for tag in tags:
                if tag not in found and (files := scalars.points(tag)):
                    found[tag] = scalar_summary(files, segments)
            self._tags, self._summaries, self._is_final = names, found, is_final

    def values(self, tags: Sequence[str]) -> dict[str, Any]:
        """Return what the answer has of these tags."""
        with self._lock:
            if not self._has(tags):
                return {"tags": None, "values": None}
            return {
                "tags": self._tags,
                "values": {tag: as_json(self._summaries[tag]) for tag in tags if tag in self._summaries},
            }


def comparison(
    runs: dict[str, RunView | str],
    tags: Sequence[str],
    scalars: Callable[[str, float], RunScalars],
    wait_secs: float,
) -> dict[str, Any]:
    """Return runs side by side.

    Args:
        runs: each by the name under which it was asked for; a sentence where there is none.
        tags: whose values are wanted.
        scalars: returns those of a run's directory within some seconds; `NotRead` where they are not there by then.
        wait_secs: how long to wait for all runs together.
    """
    facts = {name: run.once(_Facts) for name, run in runs.items() if isinstance(run, RunView)}
    problems = _read([each for each in facts.values() if not each.is_final(tags)], tags, scalars, wait_secs)
    rows = []
    for name, run in runs.items():
        if isinstance(run, str):
            rows.append({**_UNKNOWN, "run": name[:_MOST_CHARS], "problem": run})
            continue
        known = facts[name]
        unread = problems.get(run.name)
        own = {"run": name, "problem": unread or run.watched.problem}
        reading = unread is None and not known.is_final(tags)
        rows.append({**as_json(known.compared), **own, **known.values(tags), "reading": reading})
    return {"runs": plain(rows), "differing": plain(differing([each.compared for each in facts.values()]))}


def _read(
    unread: Sequence[_Facts], tags: Sequence[str], scalars: Callable[[str, float], RunScalars], wait_secs: float
) -> dict[str, str]:
    """Read the scalars of runs; return why what is new of some cannot be read, by the run's name."""
    for facts in unread[1:]:  # all are asked for at once, and read one after the other
        _asked(facts, scalars, 0.0)
    problems = {}
    deadline = time.monotonic() + wait_secs
    for facts in unread:
        found = _asked(facts, scalars, max(0.0, deadline - time.monotonic()))
        if isinstance(found, RunScalars):
            facts.take(found, tags)
            found = found.problem
        if found is not None:
            problems[facts.shown.name] = found
    return problems


def _asked(facts: _Facts, scalars: Callable[[str, float], RunScalars], wait_secs: float) -> RunScalars | str | None:
    """Return a run's scalars; why they cannot be read; None while they are."""
    try:
        return scalars(facts.shown.directory, wait_secs)
    except NotRead as error:
        return error.problem


_MAPPINGS = ("labels", "hparams", "versions", "recorded")
_UNKNOWN: dict[str, Any] = {
    **dict.fromkeys(name.removesuffix("_at") for name in Compared.__dataclass_fields__),
    **{name: {} for name in _MAPPINGS},
    "tags": None,
    "values": None,
    "reading": False,
}
"""What is known of a run that there is not."""

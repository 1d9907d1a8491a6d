"""`WholeRuns`: the whole histories of a few runs, for who keeps only the newest of all runs."""

from __future__ import annotations

import threading
from dataclasses import replace

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.run.model.checkpoints import save_key
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.watch.logdir_watch import LogdirWatch

_MOST = 4
"""Runs whose histories are held: those that were asked for last."""


class WholeRuns:
    """Reads the events files of one run when it is asked for; thread-safe.

    Args:
        clock: dates each look.

    Example:
        >>> from supervisor_core.run.fold.run_fold import RunFold
        >>> short = WatchedRun(run=RunFold("a").run(now=0.0), directory="/no/such/run", files=())
        >>> WholeRuns().of(short) == short
        True
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._watches: dict[str, LogdirWatch] = {}

    def of(self, short: WatchedRun) -> WatchedRun:
        """Return a run with all its saves, and the whole histories of its threads and workers, as they are now; as it
        is, where its files cannot be read any more."""
        with self._lock:
            watch = self._watches.pop(short.directory, None)
            if watch is None:
                watch = LogdirWatch(short.directory, include=r"^\.$", clock=self._clock)
            self._watches[short.directory] = watch
            if len(self._watches) > _MOST:
                del self._watches[next(iter(self._watches))]
            found = watch.refresh().runs.get(".")
        if found is None or not found.files:
            return short
        seen = {save_key(saved): saved for saved in short.run.checkpoints}  # of which files elsewhere were looked for
        saves = tuple(seen.get(save_key(saved), saved) for saved in found.run.checkpoints)
        whole = found.run
        run = replace(short.run, checkpoints=saves, threads=whole.threads, workers=whole.workers, rates=whole.rates)
        return replace(short, run=run)

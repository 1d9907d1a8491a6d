"""`CheckpointRetention`: which older checkpoints a new one replaces, in step with the saver's own list.

A program may call ``sv.saver.save(...)`` by itself, beside the supervisor's saves. So the saver's list is read before
each decision and brought up to date after it, and both count the same checkpoints against ``max_to_keep``.

Only checkpoints that verify count. Before the first one is deleted in a session, those that are to stay are read back;
damaged ones are set aside, and what was to be deleted is decided again without them.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.errors import DamagedCheckpointError, UnreadableCheckpointError
from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint.names import last_part
from supervisor_core.checkpoint.recovery import Candidate, Skipped, set_damaged_aside
from supervisor_core.checkpoint.retention import Doubt, Retention, Saved, decide
from supervisor_core.checkpoint.state_file import SaveId
from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.storage.local import local_path
from supervisor_core.tf1 import private_symbols as private

_LOG = logging.getLogger("supervisor_core")


class RetentionPlan(NamedTuple):
    """What a save is about to do to the state file, and to the older checkpoints."""

    path: str
    saved_at: float
    retention: Retention
    save_id: SaveId | None
    doubt: Doubt | None


class CheckpointRetention:
    """Records new checkpoints and deletes old ones, by a saver's ``max_to_keep`` and ``keep_checkpoint_every_n_hours``.

    Args:
        saver: a ``tf.compat.v1.train.Saver``.
        read_data: whether to read the data of older checkpoints back before one is deleted (of a local logdir), not
            their indexes alone.
        holds: whether a directory is the session's own, so that a damaged checkpoint there may be moved.
        restored: the checkpoint that the session was restored from, whose checksums matched.
        skipped: the damaged checkpoints that were passed over on the way: they count no more.
        hurry: set while another save waits: older checkpoints are not read back then.
    """

    def __init__(
        self,
        saver: Any,
        store: CheckpointStore,
        *,
        read_data: bool = True,
        holds: Callable[[str], bool] = lambda directory: False,
        restored: str | None = None,
        skipped: Sequence[Skipped] = (),
        hurry: threading.Event | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._saver = saver
        self._store = store
        self._read_data = read_data and local_path(store.logdir) is not None
        self._clock = clock
        self._last_preserved_at: float | None = None
        self._holds = holds
        self._good = set() if restored is None else {_key(restored)}
        self._bad = {_key(item.path) for item in skipped}
        self._skipped = [item for item in skipped if item.is_damaged]
        self._hurry = threading.Event() if hurry is None else hurry

    def set_aside_skipped(self) -> None:
        """Move the damaged checkpoints that the session's start passed over out of the way, once."""
        skipped, self._skipped = self._skipped, []
        self._set_aside(skipped)

    def take_over(self) -> None:
        """Go on with what the earlier sessions had begun to delete when they were killed."""
        named = self._store.named()
        self._store.ledger.take_over(None if named is None else {*named, *map(last_part, self._good)})

    def record(self, plan: RetentionPlan, *, quick: bool = False) -> None:
        """Make a checkpoint the newest one: first in the state file, then delete those that are one too many.

        Args:
            plan: what `announce` has decided; the checkpoint is in its place now, durable and verified.
            quick: do not read the data of older checkpoints back.

        Raises:
            OSError: if the state file cannot be written. A file that cannot be deleted is only logged.
            LogdirInUseError: if another chief has taken the logdir over.
        """
        self._good.add(_key(plan.path))
        self._bad.discard(_key(plan.path))
        self._write_state(plan)
        if plan.retention.delete:
            damaged = self._damaged(plan.retention.kept, quick)
            if damaged:
                self._bad |= {_key(item.path) for item in damaged}
                self._set_aside(damaged)
                plan = self.announce(plan.path, plan.saved_at, plan.doubt, reprieved=plan.retention.delete)
                self._write_state(plan)
        deleted = []
        for saved in plan.retention.delete:
            try:
                self._store.delete(saved.path)
                deleted.append(saved.path)
            except OSError as error:  # the new checkpoint is good all the same
                _LOG.warning("The old checkpoint %s cannot be deleted: %s", saved.path, error)
        self._store.ledger.finish_save([saved.path for saved in plan.retention.kept], deleted)

    def announce(
        self, path: str, saved_at: float, doubt: Doubt | None = None, *, reprieved: Sequence[Saved] = ()
    ) -> RetentionPlan:
        """Decide which older checkpoints to keep and delete, and record that in the ledger; nothing else is done yet.

        Args:
            path: where the new checkpoint is going to be.
            saved_at: wall time.
            doubt: why the new one is in doubt.
            reprieved: older ones than all that are listed, which are decided again.

        Raises:
            OSError: if it cannot be written down.
            LogdirInUseError: if another chief has taken the logdir over.
        """
        saver_def, ledger = self._saver.saver_def, self._store.ledger
        history = self._store.history()
        # The saver's own saves write state files that do not know it.
        last_preserved_at = history.last_preserved_at or self._last_preserved_at
        listed = self._saver_list()
        known = [*reprieved, *self._last_good(), *_merged(history.kept, listed)]
        older = [
            saved._replace(in_doubt=ledger.doubt(saved.path) is not None)
            for saved in known
            if _key(saved.path) not in {_key(path), *self._bad}
        ]
        retention = decide(
            [*older, Saved(path, saved_at, in_doubt=doubt is not None)],
            max_to_keep=saver_def.max_to_keep,
            keep_every_n_hours=saver_def.keep_checkpoint_every_n_hours,
            last_preserved_at=last_preserved_at,
        )
        save_id = ledger.announce(path, saved_at, retention, doubt)
        return RetentionPlan(path, saved_at, retention, save_id, doubt)

    def _last_good(self) -> list[Saved]:
        """The checkpoint that earlier saves have kept though nothing lists it, if it is there."""
        path = self._store.ledger.last_good
        return [
            Saved(item.path, item.saved_at or 0.0, item.deletable)
            for item in (self._store.candidates() if path is not None else ())
            if item.found and path is not None and _key(item.path) == _key(path)
        ]

    def _write_state(self, plan: RetentionPlan) -> None:
        kept, last_preserved_at = plan.retention.keep, plan.retention.last_preserved_at
        self._store.record(plan.path, kept=kept, last_preserved_at=last_preserved_at, save_id=plan.save_id)
        self._last_preserved_at = last_preserved_at
        if self._saver.saver_def.max_to_keep:
            self._saver.set_last_checkpoints_with_time([(saved.path, saved.saved_at) for saved in kept])

    def _damaged(self, kept: Iterable[Saved], quick: bool) -> list[Skipped]:
        """Read checkpoints back that this session has not seen whole yet; return those that are damaged."""
        found = []
        for saved in kept:
            if _key(saved.path) in self._good or not saved.deletable:
                continue
            whole = self._read_data and not quick and not self._hurry.is_set()
            try:
                bundle.verify(saved.path, data=whole, on_progress=lambda done, total: self._give_way())
            except _GaveWayError:
                continue
            except DamagedCheckpointError as error:
                _LOG.warning("The checkpoint %s is damaged: %s", saved.path, error)
                found.append(Skipped(saved.path, str(error), not isinstance(error, UnreadableCheckpointError)))
            else:
                if whole:
                    self._good.add(_key(saved.path))
        return found

    def _give_way(self) -> None:
        if self._hurry.is_set():
            raise _GaveWayError

    def _set_aside(self, damaged: Iterable[Skipped]) -> None:
        """Move checkpoints out of the way, if the logdir is this session's; bound how many there are."""
        damaged = list(damaged)
        if damaged and self._holds(self._store.logdir):
            set_damaged_aside(self._store, damaged, self._clock)

    def _saver_list(self) -> list[Saved]:
        """The saver's list, without what is no longer there."""
        there = {_key(item.path): item for item in self._store.candidates() if item.found}
        home = _key(self._store.logdir) + os.sep
        listed = []
        for path, moment in self._listed(there):
            item = there.get(_key(path))
            if item is None and _key(path).startswith(home):
                continue
            # A saver without times has infinity there, which means never to delete.
            known = math.isfinite(moment)
            saved_at = moment if known else (item.saved_at if item is not None else None) or 0.0
            listed.append(Saved(path, saved_at, known and item is not None and item.deletable))
        return listed

    def _listed(self, there: Mapping[str, Candidate]) -> Sequence[tuple[str, float]]:
        """Paths of the saver's list, and when it saved them; when their files are from, where it does not say that."""
        listed: Sequence[tuple[str, float]] | None = private.LAST_CHECKPOINTS.get(self._saver)
        if listed is not None:
            return listed
        paths = getattr(self._saver, "last_checkpoints", ())
        return [(path, (there[key].saved_at if (key := _key(path)) in there else None) or 0.0) for path in paths]


def _merged(history: Sequence[Saved], listed: Sequence[Saved]) -> list[Saved]:
    """Return the checkpoints of the state file and of a saver's list, oldest first, each once.

    In the state file's order: another saver, or one that was interrupted before it took its list over, may have
    written it since. Those that the saver alone knows come before what follows them in its list. It also knows better
    which of them may be deleted.
    """
    known = {_key(saved.path): saved for saved in listed}
    merged = [known.get(_key(saved.path), saved) for saved in history]
    position = len(merged)
    for saved in reversed(listed):
        if saved in merged:
            position = min(position, merged.index(saved))
        else:
            merged.insert(position, saved)
    return merged


class _GaveWayError(Exception):
    """Another save waits."""


def _key(path: str) -> str:
    """The same for every spelling of a path."""
    return path if "://" in path else os.path.abspath(path)

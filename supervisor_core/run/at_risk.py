"""`at_risk_after`: which steps of a run that came to a bad end are in no checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from supervisor_core.run.model import Checkpoint, Recovery, RunState, Session


class _Saved(NamedTuple):
    step: int
    is_checkpoint: bool
    """Whether there is a checkpoint of that step; else nothing is saved at all."""


class Unsaved(NamedTuple):
    """Steps that are in no checkpoint."""

    after_step: int
    steps: int
    saved_step: int | None
    """The step of the last checkpoint; None where there is none."""


def at_risk_after(
    state: RunState,
    step: int | None,
    sessions: Sequence[Session],
    checkpoints: Sequence[Checkpoint],
    recoveries: Sequence[Recovery],
) -> Unsaved | None:
    """Return the steps of a run that are at risk; None where none are, or it is not known.

    They are at risk in a run that is lost or has failed; in one that ended otherwise, where its last save failed; and
    in one that is alive, where every save failed.
    """
    last = sessions[-1] if sessions else None
    if last is None or last.inferred or step is None:
        return None
    tried = [saved for saved in checkpoints if saved.session == last.id]
    if state in ("running", "stalled"):
        is_at_risk = bool(checkpoints) and not any(saved.ok for saved in checkpoints)
    else:
        is_at_risk = state in ("lost", "failed") or (bool(tried) and not tried[-1].ok)
    if not is_at_risk:
        return None
    saved = _saved(last, checkpoints, tried, recoveries)
    if step <= saved.step:
        return None
    return Unsaved(saved.step, step - saved.step, saved.step if saved.is_checkpoint else None)


def _saved(
    last: Session, checkpoints: Sequence[Checkpoint], tried: Sequence[Checkpoint], recoveries: Sequence[Recovery]
) -> _Saved:
    own = _newest_good(tried)
    for recovery in reversed(recoveries):
        if recovery.session == last.id and recovery.to_step is not None and recovery.restored_checkpoint is not None:
            if own is None or own.at is None or recovery.at > own.at:
                return _Saved(recovery.to_step, True)
            break
    has_begun = last.first_step is not None and not last.adopted  # else what was saved before is what there is
    newest = own if own is not None or has_begun else _newest_good(checkpoints)
    if newest is not None and newest.step is not None:
        return _Saved(newest.step, True)
    if last.restored_step is not None and has_begun:
        return _Saved(last.restored_step, True)
    return _Saved(last.first_step or 0 if has_begun else 0, False)


def _newest_good(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    for saved in reversed(checkpoints):
        if saved.ok and saved.path is not None and saved.step is not None and saved.on_disk is not False:
            return saved
    return None

"""`newest_to_verify`: the checkpoint that `Options.verify_resume` asks for."""

from __future__ import annotations

import logging
from contextlib import suppress

from supervisor_core.checkpoint.manifest import Manifest
from supervisor_core.checkpoint.recovery import CheckpointChoice
from supervisor_core.checkpoint.sealed_store import Decode, SealedStore
from supervisor_core.checkpoint.session_history import SessionHistory
from supervisor_core.errors import NoUsableCheckpointError
from supervisor_core.run.goodput import COMPLETED

_LOG = logging.getLogger("supervisor_core")
_NOTHING = CheckpointChoice(chosen=None, verified=None)


def newest_to_verify(
    store: SealedStore, steps: int, history: SessionHistory | None, decode: Decode
) -> tuple[CheckpointChoice, Manifest | None]:
    """Return the newest checkpoint that is at least `steps` steps before the last one reached. None where no steps
    are asked for, the training was completed, or there is none, which is logged.

    Args:
        store: the checkpoints.
        steps: `Options.verify_resume`.
        history: the earlier sessions; None where they are not known.
        decode: see `SealedStore.newest_usable`.
    """
    if not steps or history is None or history.last_step is None or history.previous_outcome in COMPLETED:
        return _NOTHING, None
    reached = history.last_step
    with suppress(NoUsableCheckpointError):
        found = store.newest_usable(start_over=True, decode=decode, latest_step=reached - steps)
        if found[1] is not None:
            return found
    _LOG.warning(
        "Options.verify_resume: no usable checkpoint is %d steps before step %d, the last one reached: the newest is "
        "restored.", steps, reached,
    )  # fmt: skip
    return _NOTHING, None

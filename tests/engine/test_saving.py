"""The last save of a session, and what is said where it is given up."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor_core.base.clock import SYSTEM_CLOCK
from supervisor_core.base.errors import SaveFailedError
from supervisor_core.base.options import Options
from supervisor_core.engine.checkpoint_stats import CheckpointStats
from supervisor_core.engine.deadline import NEVER, Deadline
from supervisor_core.engine.ending import Ending
from supervisor_core.engine.saving import Checkpoints, loss_text

FULL = OSError(28, "No space left on device")
OVER = Deadline.after(0.0)


@pytest.mark.parametrize(
    ("newest", "step", "text"),
    [
        (None, None, "There is no checkpoint."),
        (None, 7, "There is no checkpoint: all steps up to 7 are lost."),
        (("/run/ckpt", None), 7, "The newest checkpoint is /run/ckpt."),
        (("/run/ckpt-4", 4), None, "The newest checkpoint is /run/ckpt-4 (step 4)."),
        (("/run/ckpt-4", 4), 4, "The newest checkpoint is /run/ckpt-4 (step 4)."),
        (("/run/ckpt-4", 4), 5, "The newest checkpoint is /run/ckpt-4 (step 4). Step 5 is lost."),
        (("/run/ckpt-4", 4), 9, "The newest checkpoint is /run/ckpt-4 (step 4). Steps 5 to 9 are lost."),
    ],
)
def test_what_is_lost_is_said_in_words(newest: Any, step: int | None, text: str) -> None:
    """Path and step of the newest checkpoint, and which steps are not in it."""
    assert loss_text(newest, step) == text


def test_a_session_that_is_being_restored_has_a_checkpoint() -> None:
    """Before anything can be saved the restored one is the newest, whatever is said at a signal then."""
    saves = CheckpointStats()
    saves.restored(path="/run/ckpt-9", step=9, saved_at=1.0, size_bytes=5)
    progress = SimpleNamespace(snapshot=lambda: SimpleNamespace(global_step=9))
    ending = SimpleNamespace(
        _state=SimpleNamespace(recorder=SimpleNamespace(saves=saves, progress=progress), checkpoints=None)
    )
    assert Ending.loss_text.fget(ending) == "The newest checkpoint is /run/ckpt-9 (step 9)."


class Failing(Checkpoints):
    """Its saves raise these errors, one after the other; the next one succeeds."""

    def __init__(self, *errors: Exception, clock: Any = SYSTEM_CLOCK) -> None:
        super().__init__(Options(retry_initial_secs=0.001, retry_max_secs=0.001), clock)
        self.errors = list(errors)

    def _try_last(self, trigger: Any, has_failed: Callable[[], bool], deadline: Deadline) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.newest = "/run/ckpt-9", 9

    def save(self, deadline: Deadline = NEVER, retry_until: Deadline = NEVER) -> tuple[str | None, int | None]:
        """Save the last step."""
        return self.save_last("final", lambda: False, lambda: deadline, retry_until)


def test_a_disk_error_is_tried_again() -> None:
    """As long as there is time: what comes back is the newest checkpoint."""
    assert Failing(FULL, FULL).save() == ("/run/ckpt-9", 9)


@pytest.mark.parametrize(
    ("error", "deadlines", "reason"),
    [
        (SaveFailedError("another save is under way"), (NEVER, NEVER), "another save is under way"),
        (ValueError("shape"), (NEVER, NEVER), "ValueError: shape"),
        (FULL, (OVER, NEVER), f"there is no time to try again; OSError: {FULL}"),
        (FULL, (NEVER, OVER), f"there is no time to try again; OSError: {FULL}"),
    ],
)
def test_what_no_retry_helps_is_given_up(error: Exception, deadlines: tuple[Deadline, Deadline], reason: str) -> None:
    """With the reason, what that costs, and the error as its cause."""
    with pytest.raises(SaveFailedError) as failure:
        Failing(error).save(*deadlines)
    assert str(failure.value) == f"The final checkpoint could not be saved ({reason}). There is no checkpoint."
    assert failure.value.__cause__ is error


def test_a_pause_of_the_process_gives_no_time() -> None:
    """Suspended for longer than the wait for the next attempt, it finds the deadline over, and does not try again."""
    moments = count()
    clock = SimpleNamespace(monotonic=lambda: float(next(moments)))  # a second passes whenever it is looked at
    with pytest.raises(SaveFailedError, match="there is no time to try again"):
        Failing(FULL, clock=clock).save(OVER)

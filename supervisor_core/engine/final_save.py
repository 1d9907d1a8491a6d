"""The last checkpoint of a session: tried again while there is time, given up at the deadline with what that costs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from supervisor_core.clock import Clock
from supervisor_core.engine.coordinator import text_of
from supervisor_core.engine.deadline import Deadline
from supervisor_core.engine.retry import Backoff, is_outside_fault
from supervisor_core.errors import SaveFailedError
from supervisor_core.options import Options

_LOG = logging.getLogger("supervisor_core")
_PAUSE = threading.Event()  # never set

LOOK_AGAIN_SECS = 0.2
"""How often whoever waits for the last save looks whether a signal has brought the deadline forward, in seconds."""

Newest = tuple[str, int | None] | None
"""Path and step of the newest checkpoint; None without one."""


def save_until_saved(
    save: Callable[[], object],
    *,
    deadline: Callable[[], Deadline],
    retry_until: Deadline,
    options: Options,
    clock: Clock,
    passes: Callable[[BaseException], bool] = is_outside_fault,
) -> None:
    """Save; after a disk or network error try again as long as there is time.

    Args:
        save: saves, by the deadline.
        deadline: returns until when it has to be saved; a signal may bring it forward.
        retry_until: until when to try again.
        options: for the waits.
        clock: replaced in tests.
        passes: whether an error may pass by itself.

    Raises:
        SaveFailedError: why it could not be saved, or not in time.
    """
    backoff = Backoff(initial_secs=options.retry_initial_secs, max_secs=options.retry_max_secs)
    failures = 0
    while True:
        try:
            save()
            return
        except Exception as error:
            failures += 1
            text = text_of(error) if isinstance(error, SaveFailedError) else f"{type(error).__name__}: {text_of(error)}"
            if isinstance(error, SaveFailedError) or not passes(error):
                raise SaveFailedError(text) from error
            delay = backoff.next_delay(failures)
            again = Deadline.after(delay, clock)
            if min(deadline().remaining(), retry_until.remaining()) < delay:
                raise SaveFailedError(f"there is no time to try again; {text}") from error
            _LOG.warning("The final checkpoint could not be saved, trying again in %.1f s: %s", delay, text)
            while not again.is_over:
                if min(deadline().remaining(), retry_until.remaining()) < again.remaining():
                    raise SaveFailedError(f"there is no time to try again; {text}") from error
                _PAUSE.wait(again.remaining(LOOK_AGAIN_SECS))


def given_up(reason: str, newest: Newest, step: int | None) -> SaveFailedError:
    """Return the error of a final checkpoint that is given up.

    Args:
        reason: why.
        newest: the newest checkpoint.
        step: the last step.
    """
    return SaveFailedError(f"The final checkpoint could not be saved ({reason}). {loss_text(newest, step)}")


def newest_text(newest: Newest) -> str:
    """Return which checkpoint is the newest: a sentence."""
    if newest is None:
        return "There is no checkpoint."
    path, step = newest
    return f"The newest checkpoint is {path}." if step is None else f"The newest checkpoint is {path} (step {step})."


def loss_text(newest: Newest, step: int | None) -> str:
    """Return which checkpoint is the newest, and what is lost if the process ends now: one sentence or two.

    Args:
        newest: the newest checkpoint.
        step: the last step; None where it is not known.
    """
    if newest is None and step:
        return f"There is no checkpoint: all steps up to {step} are lost."
    if newest is None or newest[1] is None or step is None or step <= newest[1]:
        return newest_text(newest)
    lost = f"Step {step} is lost." if step == newest[1] + 1 else f"Steps {newest[1] + 1} to {step} are lost."
    return f"{newest_text(newest)} {lost}"

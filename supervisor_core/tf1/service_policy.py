"""What happens to the errors of the standard services, and how they notice that the program closed their session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from supervisor_core.errors import SaveFailedError
from supervisor_core.options import Options
from supervisor_core.runtime.policy import Policy
from supervisor_core.runtime.retry import Backoff
from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.services import explain_unfed
from supervisor_core.tf1.tf_errors import is_outside_fault


def service_policy(options: Options, sess: Any, max_failures: int | None = None) -> Policy:
    """Return the policy of a service: faults of the outside world are retried, other errors do as the options say.

    A service ends as planned when the program has closed the session under it.

    Args:
        options: how the run behaves.
        sess: what the service works in.
        max_failures: how many faults in a row are borne.
    """
    return Policy(
        on_error=options.service_errors,
        transient=is_outside_fault,
        over=ended_with(sess),
        backoff=Backoff(initial_secs=options.retry_initial_secs, max_secs=options.retry_max_secs),
        max_failures=max_failures,
        give_up=_too_many_failures,
        explain=explain_unfed,
    )


def reader_policy(sess: Any) -> Policy:
    """Return the policy of a service that only reads: no error of it concerns the run.

    Args:
        sess: what the service reads.
    """
    return Policy(on_error="continue", transient=lambda error: isinstance(error, Exception), over=ended_with(sess))


def ended_with(sess: Any) -> Callable[[BaseException], bool]:
    """Return a function that tells whether an error only says that the program has closed the session.

    Args:
        sess: the session.
    """

    def is_closed(error: BaseException) -> bool:
        return bool(private.CLOSED.get(sess, False)) and isinstance(error, (tf.errors.CancelledError, RuntimeError))

    return is_closed


def check_open(sess: Any) -> None:
    """Raise what TensorFlow raises for a closed session; a tick that runs nothing would not notice it.

    Args:
        sess: the session.

    Raises:
        RuntimeError: if the program has closed it.
    """
    if private.CLOSED.get(sess, False):
        raise RuntimeError("Attempted to use a closed Session.")


def _too_many_failures(name: str, failures: int, error: BaseException) -> BaseException:
    return SaveFailedError(
        f"The service {name!r} failed {failures} times in a row, more than Options.max_save_failures allows. "
        f"The last time: {type(error).__name__}: {error}"
    )

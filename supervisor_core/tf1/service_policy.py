"""`service_policy`: what becomes of the errors of the standard services, as the options have it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from supervisor_core.errors import SaveFailedError
from supervisor_core.options import Options
from supervisor_core.runtime.policy import Policy
from supervisor_core.runtime.retry import Backoff
from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.faults import is_outside_fault
from supervisor_core.tf1.services import explain_unfed


def service_policy(options: Options, sess: Any, max_failures: int | None = None) -> Policy:
    """Return the policy of a service: faults of the outside world are retried, other errors do as the options say.

    A service ends in good order when the program has closed the session under it.

    Args:
        options: how the run behaves.
        sess: what the service works in.
        max_failures: how many faults in a row are borne.
    """

    def is_closed(error: BaseException) -> bool:
        return bool(private.CLOSED.get(sess, False)) and isinstance(error, (tf.errors.CancelledError, RuntimeError))

    return Policy(
        on_error=options.service_errors,
        transient=is_outside_fault,
        over=is_closed,
        backoff=Backoff(initial_secs=options.retry_initial_secs, max_secs=options.retry_max_secs),
        max_failures=max_failures,
        give_up=_too_many_failures,
        explain=explain_unfed,
    )


def _too_many_failures(name: str, failures: int, error: BaseException) -> BaseException:
    return SaveFailedError(
        f"The service {name!r} failed {failures} times in a row, more than Options.max_save_failures allows. "
        f"The last time: {type(error).__name__}: {error}"
    )

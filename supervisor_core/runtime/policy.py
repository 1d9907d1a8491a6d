"""`Policy`: what happens to the errors of a service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from supervisor_core.runtime.retry import Backoff


def never(_error: BaseException) -> bool:
    """Return False: no error counts as a fault of the outside world."""
    return False


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Which errors of a service are retried, which end the service, and which stop the run.

    Example, for a checkpoint service:
        >>> from supervisor_core.runtime.retry import is_outside_fault
        >>> policy = Policy(transient=is_outside_fault, max_failures=10)
        >>> policy.transient(OSError("disk full")), policy.transient(ValueError("not a number"))
        (True, False)
    """

    on_error: Literal["stop", "continue"] = "stop"
    """``"stop"``: an error stops the run. ``"continue"``: it ends the service, and training goes on."""
    transient: Callable[[BaseException], bool] = never
    """Whether an error is the outside world's and may pass: it is retried while training goes on. Default: none is."""
    over: Callable[[BaseException], bool] = never
    """Whether an error only says that there is nothing left to work on: the service ends as planned. Default: none
    does."""
    backoff: Backoff = field(default_factory=Backoff)
    """How long to wait before each retry."""
    max_failures: int | None = None
    """How many transient failures in a row are borne; one more stops the run, whatever ``on_error`` says. Default: no
    bound."""
    give_up: Callable[[str, int, BaseException], BaseException] | None = None
    """Makes the error that then stops the run, from the service's name, the number of failures and the last of them,
    which becomes its cause. Default: a `ServiceError`."""
    explain: Callable[[BaseException], str] | None = None
    """Returns what the user can do about an error, in whole sentences; may be empty."""

"""The two timeouts of a session, as they are in effect: what its options say, and what its environment says.

`tb-supervisor run` hands its own two down by the environment, so that one value counts from end to end:

    hang timeout   how long there may be no progress: the options' for the phases that they name, else the
                   environment's, else learned (`supervisor_core.engine.hang_timeouts`)
    stop timeout   how long a stop may take: the shorter of the options' and the environment's, since whoever has set
                   the environment kills the process then
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from supervisor_core.errors import OptionsError
from supervisor_core.options import HANG_TIMEOUT_SECS, STOP_TIMEOUT_SECS, Options

HANG_TIMEOUT_VARIABLE = "SUPERVISOR_HANG_TIMEOUT_SECS"
"""Environment variable: the hang timeout, as a number in `Options.hang_timeout_secs`, unless the options have one."""
STOP_TIMEOUT_VARIABLE = "SUPERVISOR_STOP_TIMEOUT_SECS"
"""Environment variable: the most that a stop may take, in seconds."""


def stop_timeout(options: Options) -> float:
    """Return how long a stop of a session may take, in seconds.

    Raises:
        OptionsError: if the environment's value cannot be used.
    """
    given, handed_down = options.stop_timeout_secs, _from_environment(STOP_TIMEOUT_VARIABLE)
    if given is None:
        return STOP_TIMEOUT_SECS if handed_down is None else handed_down
    return given if handed_down is None else min(given, handed_down)


def given_hang_timeouts(options: Options) -> Mapping[str, float]:
    """Return the hang timeouts of the phases for which one is given, in seconds: nothing is learned for these.

    Raises:
        OptionsError: if the environment's value cannot be used.
    """
    given, number = options.hang_timeout_secs, _number(options)
    by_phase = given if isinstance(given, Mapping) else {}
    return by_phase if number is None else {"training": number, **by_phase}


def first_hang_timeouts(options: Options) -> dict[str, float]:
    """Return the hang timeout of each phase before any is learned, in seconds. A number is that of training, and the
    least of the other phases.

    Raises:
        OptionsError: if the environment's value cannot be used.
    """
    least = _number(options) or 0.0
    defaults = {phase: max(secs, least) for phase, secs in HANG_TIMEOUT_SECS.items()}
    return defaults | dict(given_hang_timeouts(options))


def _number(options: Options) -> float | None:
    given = options.hang_timeout_secs
    return given if isinstance(given, (int, float)) else _from_environment(HANG_TIMEOUT_VARIABLE)


def _from_environment(variable: str) -> float | None:
    text = os.environ.get(variable)
    if not text:
        return None
    try:
        secs = float(text)
    except ValueError:
        secs = math.nan
    if not (math.isfinite(secs) and secs > 0):
        raise OptionsError(f"{variable} is {text!r} in the environment; expected a number of seconds above 0.")
    return secs

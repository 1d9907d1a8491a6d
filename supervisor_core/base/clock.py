"""Time, injected: everything that waits or measures takes a `Clock`, so that a test can hold the hands."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Two hands: ``wall`` for what is shown to people, ``monotonic`` for every duration and deadline."""

    def wall(self) -> float:
        """Seconds since the Unix epoch; may jump when the machine's clock is set."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""


class SystemClock:
    """The machine's own clocks."""

    def wall(self) -> float:
        """Return ``time.time()``."""
        return time.time()

    def monotonic(self) -> float:
        """Return ``time.monotonic()``."""
        return time.monotonic()


def boot_secs(clock: Clock) -> float:
    """Return seconds since the machine was started, those that it slept through included.

    All processes of a machine count from the same moment, and this clock is never set: it says how long after one
    process another one came. Of an injected clock: its monotonic hand.
    """
    if clock is not SYSTEM_CLOCK or not hasattr(time, "CLOCK_BOOTTIME"):
        return clock.monotonic()
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def main_thread_secs(clock: Clock) -> float:
    """Return the CPU seconds that this process's main thread has used: they show whether it ran while no other thread
    could. 0.0 of an injected clock, and where the system does not say."""
    ident = threading.main_thread().ident
    if clock is not SYSTEM_CLOCK or ident is None or not hasattr(time, "pthread_getcpuclockid"):
        return 0.0
    return time.clock_gettime(time.pthread_getcpuclockid(ident))


def utc_text(at: float) -> str | None:
    """Return a moment to the second, in UTC; None for what is outside the calendar.

    Example:
        >>> utc_text(0.0), utc_text(1e30)
        ('1970-01-01 00:00:00', None)
    """
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))
    except (OverflowError, ValueError, OSError):
        return None


SYSTEM_CLOCK: Clock = SystemClock()
"""What is used where the caller injects nothing."""

"""A `DataLoader`'s workers outlive the trainer's stop signals, which mostly go to a whole group of processes.

A worker that dies first takes the trainer with it: PyTorch raises an error in the middle of its step, and the step is
lost. So a worker goes on until the trainer ends it, has ended itself, or has had the time that it has for its end.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from supervisor_core.torch.draws import note_states

_CHECK_SECS = 0.5
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def outlive_signals(loader: Any, most_secs: float) -> None:
    """Have the workers of a loader go on at SIGTERM, Ctrl-C, SIGHUP and SIGQUIT; call it before they start.

    Args:
        loader: a ``DataLoader``, or one of the same kind; anything else is left as it is.
        most_secs: how long a worker goes on after SIGTERM, at most, in seconds.
    """
    if getattr(loader, "num_workers", 0) and hasattr(loader, "worker_init_fn"):
        given = loader.worker_init_fn
        if not isinstance(given, Outliving):
            loader.worker_init_fn = Outliving(given, most_secs)


def iterate(loader: Any) -> Iterator[Any]:
    """Return ``iter(loader)``; a worker that it starts holds the signals back until it outlives them."""
    if not isinstance(getattr(loader, "worker_init_fn", None), Outliving):
        return iter(loader)
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # a forked worker begins with this thread's mask
    try:
        return iter(loader)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


class Outliving:
    """A ``worker_init_fn``: has the worker go on, calls the program's own, then notes the random states (`Draws`).

    Args:
        given: the program's; None for none.
        most_secs: see `outlive_signals`.
    """

    def __init__(self, given: Callable[[int], object] | None, most_secs: float) -> None:
        self._given = given
        self._most_secs = most_secs

    def __call__(self, worker: int) -> None:
        """Called in the worker, after PyTorch has set its handlers."""
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)  # written to inside of native code, too
        for signum in _SIGNALS:
            signal.signal(signum, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        arguments = (read, os.getppid(), self._most_secs)
        threading.Thread(target=_end_after, args=arguments, name="worker-end", daemon=True).start()
        if self._given is not None:
            self._given(worker)
        note_states()


def _end_after(pipe: int, trainer: int, most_secs: float) -> None:
    """Wait for a SIGTERM, and then for the trainer's end."""
    while os.read(pipe, 1) != bytes([signal.SIGTERM]):
        pass
    until, pause = time.monotonic() + most_secs, threading.Event()
    while os.getppid() == trainer and time.monotonic() < until:
        pause.wait(_CHECK_SECS)
    os._exit(0)

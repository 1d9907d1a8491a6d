"""`watch_signals`: which signals a session acts upon, and what is said where they cannot be watched."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable

from supervisor_core.clock import Clock
from supervisor_core.options import Options
from supervisor_core.runtime.signals import OnSignal, SignalWatch
from supervisor_core.tf1.checkpoint_manager import CheckpointManager
from supervisor_core.tf1.tf_errors import error_text

_LOG = logging.getLogger("supervisor_core")
_SAID = threading.Lock()  # taken once, by whoever says it
_THREAD = (
    "SIGTERM and SIGINT are not handled: this session begins in the thread %r, and Python has signals handled by the "
    "main thread alone. SIGTERM ends this process without a final checkpoint; open the session in the main thread, or "
    "have a handler of the program's call request_stop()."
)


def watch_signals(
    options: Options,
    on_signal: OnSignal,
    on_again: OnSignal,
    checkpoints: Callable[[], CheckpointManager | None],
    work_done: Callable[[], int],
    clock: Clock,
) -> SignalWatch | None:
    """Return a watch for a session's signals, not yet entered; None where the options want none.

    Args:
        options: which signals.
        on_signal: see `SignalWatch`.
        on_again: see `SignalWatch`.
        checkpoints: returns what saves the session under way at `Options.save_signal`; None where nothing does.
        work_done: see `SignalWatch`.
        clock: the time.
    """
    if not options.handle_signals and options.save_signal is None:
        return None
    if threading.current_thread() is not threading.main_thread() and _SAID.acquire(blocking=False):
        _LOG.warning(_THREAD, threading.current_thread().name)

    def save(signum: int) -> None:
        name, saves = signal.Signals(signum).name, checkpoints()
        if saves is None:
            _LOG.warning("%s: there is nothing to save here.", name)
            return
        _LOG.info("%s: a checkpoint is saved; training continues.", name)
        try:
            saves.save("signal")
        except Exception as error:  # training goes on, and the next save may succeed
            _LOG.warning("%s: the checkpoint could not be saved: %s", name, error_text(error))

    others = {} if options.save_signal is None else {int(signal.Signals[options.save_signal]): save}
    return SignalWatch(
        on_signal,
        on_again=on_again,
        others=others,
        ends=options.handle_signals,
        work_done=work_done,
        clock=clock,
    )

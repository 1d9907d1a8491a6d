"""`ReceivedSignals`: the signals of the restarter's own process, for a loop that waits on descriptors."""

from __future__ import annotations

import signal
import socket
from contextlib import suppress
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)


class ReceivedSignals:
    """Keeps them, in their order, once `install` was called."""

    def __init__(self) -> None:
        self.stop_signal: int | None = None
        """The first that stops the training; None before it."""
        self._received: list[int] = []
        self._wakeup: socket.socket
        self._waker: socket.socket

    def install(self) -> None:
        """Install the handlers; a signal that is ignored, as SIGHUP under ``nohup``, stays so."""
        self._wakeup, self._waker = socket.socketpair()
        self._wakeup.setblocking(False)
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for signum in (*STOPPING, *PASSED_ON, signal.SIGWINCH):
            if signal.getsignal(signum) != signal.SIG_IGN:
                signal.signal(signum, self._handle)

    def fileno(self) -> int:
        """Return the descriptor that is readable when a signal came."""
        return self._wakeup.fileno()

    def take(self) -> list[int]:
        """Return those that came since the last call."""
        with suppress(BlockingIOError):
            self._wakeup.recv(512)
        received, self._received = self._received, []
        return received

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        self._received.append(signum)

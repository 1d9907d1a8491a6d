"""`TerminalDisplay`: what ``tb-supervisor run`` does, on a terminal."""

from __future__ import annotations

from contextlib import suppress

from rich.console import Console
from rich.status import Status

from supervisor_core.cli.text import literal
from supervisor_core.restarter.launch import Display


class TerminalDisplay(Display):
    """Lines on a terminal, and a status line while no program runs that writes to it, too."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._status: Status | None = None

    def line(self, text: str) -> None:
        """Show what has happened, in one line."""
        with suppress(OSError):  # a terminal that is gone does not end the training
            self._console.print(f"[bold cyan]tb-supervisor[/bold cyan] {literal(text)}", soft_wrap=True)

    def waiting(self, text: str, secs: float) -> None:
        """Show for how long the next launch is waited for."""
        with suppress(OSError):
            self._status = self._console.status(f"{literal(text)} in {secs:.0f} s (Ctrl-C ends it)")
            self._status.start()

    def done(self) -> None:
        """Stop showing a wait."""
        if self._status is not None:
            with suppress(OSError):
                self._status.stop()
        self._status = None

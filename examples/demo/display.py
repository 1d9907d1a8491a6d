"""`Display`: the play as it goes on, live on a terminal, plain lines in a pipe."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from examples.demo.metrics import Reading

LINE_SECS = 2.0
"""Seconds between two lines of progress where there is no terminal."""


class Display:
    """Shows acts, notes and progress; a ``with`` block, outside of which nothing live is on the screen.

    Args:
        console: where to.
        steps: how far the training goes.
        monotonic: the time, in seconds.
    """

    def __init__(self, console: Console, steps: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._steps = steps
        self._monotonic = monotonic
        self._next_line = 0.0
        self._acts = 0
        self._bar: Progress | None = None
        self._task = TaskID(0)
        if console.is_terminal:
            self._bar = Progress(
                TextColumn("session {task.fields[session]}"),
                BarColumn(),
                TextColumn("{task.fields[facts]}"),
                TimeElapsedColumn(),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task("training", total=steps, session=1, facts="")

    def act(self, title: str) -> None:
        """Begin an act, one session of the training."""
        self._acts += 1
        self._console.print(f"\n[bold]{self._acts}. {title}[/bold]", highlight=False)
        if self._bar is not None:
            self._bar.update(self._task, session=self._acts, facts="starting")

    def note(self, text: str) -> None:
        """Show one event."""
        self._console.print(f"   {text}", highlight=False, markup=False, soft_wrap=True)

    def progress(self, reading: Reading, epoch: float | None) -> None:
        """Show the progress; without a terminal, a line every `LINE_SECS`."""
        facts = self._facts(reading, epoch)
        if self._bar is not None:
            self._bar.update(self._task, completed=reading.step or 0, facts=facts)
        elif self._monotonic() >= self._next_line:
            self._next_line = self._monotonic() + LINE_SECS
            self.note(facts)

    def _facts(self, reading: Reading, epoch: float | None) -> str:
        facts = [reading.phase or "starting"]
        if reading.step is not None:
            facts.append(f"step {reading.step} of {self._steps}")
        if epoch is not None:
            facts.append(f"epoch {epoch:.1f}")
        if reading.steps_per_second:
            facts.append(f"{reading.steps_per_second:.0f} steps/s")
        if reading.checkpoint_step is not None and reading.checkpoint_age_secs is not None:
            facts.append(f"saved step {reading.checkpoint_step} {reading.checkpoint_age_secs:.1f} s ago")
        return ", ".join(facts)

    def __enter__(self) -> Display:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

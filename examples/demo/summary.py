"""The end of the demo: what was seen to be kept, the figures, where the files are, and what to type next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.demo.story import SESSIONS, Check, Story, again


def show_checks(console: Console, checks: Sequence[Check]) -> None:
    """Print each promise, whether it was seen to be kept, and the numbers."""
    table = Table(title="What was seen", title_justify="left", title_style="bold")
    table.add_column("seen")
    table.add_column("promise")
    table.add_column("by these numbers")
    for check in checks:
        table.add_row("[green]yes[/green]" if check.seen else "[bold red]NO[/bold red]", check.promise, check.detail)
    console.print()
    console.print(table)


def show_figures(console: Console, story: Story, logdir: Path, run: Path) -> None:
    """Print the figures of the run, its files, and the commands to look further."""
    accuracy = story.session(SESSIONS).test_accuracy
    table = Table(title="The run", title_justify="left", title_style="bold", show_header=False)
    table.add_row("sessions", str(len(story.sessions)))
    table.add_row("restarts", str(max(0, len(story.sessions) - 1)))
    for index, name in enumerate(("SIGKILL", "SIGTERM")):
        known = story.inspected.again[index : index + 1] if story.inspected is not None else ()
        table.add_row(f"steps done again after {name}", again(*known[0]) if known else "unknown")
    table.add_row("checkpoints written", str(sum(session.saved for session in story.sessions)))
    table.add_row("test accuracy", "unknown" if accuracy is None else f"{accuracy:.1%}")
    console.print()
    console.print(table)
    lines = [f"\nWhat each session printed, and its last metrics: {logdir}"]
    if story.events_files:
        lines += [
            f"Checkpoints and events: {run}",
            "\nWhat to type next:",
            f"  tensorboard --logdir {logdir}",
            f"  tb-supervisor inspect {logdir} --run {run.name}",
            f"  tb-supervisor verify {run}",
        ]
    for text in lines:
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def show_inspection(console: Console, text: str) -> None:
    """Print what ``tb-supervisor inspect`` prints of the run."""
    console.print("\nWhat `tb-supervisor inspect` makes of it:\n", highlight=False, markup=False)
    console.print(text, end="", highlight=False, markup=False, soft_wrap=True)


def show_tab(console: Console, url: str) -> None:
    """Print where the run is shown in TensorBoard."""
    console.print("\nThe kill, the restart and the resumed curve, in TensorBoard's Supervisor tab (Ctrl-C ends it):")
    console.print(f"  {url}", highlight=False, markup=False, soft_wrap=True)


def show_verdict(console: Console, story: Story, checks: Sequence[Check]) -> int:
    """Print whether all was seen, and what was not; return the exit status, 0 or 1."""
    console.print()
    if story.broken_off is not None:
        console.print(f"Broken off: {story.broken_off}", highlight=False, markup=False, soft_wrap=True)
    missing = [check for check in checks if not check.seen]
    if not missing and story.broken_off is None:
        console.print("[green]All of it was seen.[/green]", highlight=False)
        return 0
    console.print("[bold red]Not seen:[/bold red]", highlight=False)
    for check in missing:
        console.print(f"  {check.promise} ({check.detail})", highlight=False, markup=False, soft_wrap=True)
    return 1

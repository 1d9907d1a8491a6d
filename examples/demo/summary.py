"""The end of the demo: the checks, the figures, the files, and what to type next."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.demo.story import SESSIONS, Check, Story, again


def show_checks(console: Console, checks: Sequence[Check]) -> None:
    """Print each check, whether it passed, and the numbers."""
    table = Table(title="Checks", title_justify="left", title_style="bold")
    table.add_column("ok")
    table.add_column("check")
    table.add_column("measured")
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
        table.add_row(f"recomputed steps after {name}", again(*known[0]) if known else "unknown")
    table.add_row("checkpoints written", str(sum(session.saved for session in story.sessions)))
    table.add_row("test accuracy", "unknown" if accuracy is None else f"{accuracy:.1%}")
    console.print()
    console.print(table)
    lines = [f"\nOutput and last metrics of each session: {logdir}"]
    if story.events_files:
        lines += [
            f"Checkpoints and events: {run}",
            "\nWhat to type next:",
            *(
                "  " + shlex.join(map(str, (command(name), *rest)))
                for name, *rest in (
                    ("tensorboard", "--logdir", logdir),
                    ("tb-supervisor", "inspect", logdir, "--run", run.name),
                    ("tb-supervisor", "verify", run),
                )
            ),
        ]
    for text in lines:
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def command(name: str) -> str:
    """Return what to type for a command of this environment: its name where the shell finds it, else its path."""
    own = Path(sys.executable).parent / name
    if shutil.which(name) == str(own) or not own.exists():
        return name
    return str(own.relative_to(Path.cwd())) if own.is_relative_to(Path.cwd()) else str(own)


def show_inspection(console: Console, text: str) -> None:
    """Print the output of ``tb-supervisor inspect``."""
    console.print("\n`tb-supervisor inspect` reports:\n", highlight=False, markup=False)
    console.print(text, end="", highlight=False, markup=False, soft_wrap=True)


def show_tab(console: Console, url: str) -> None:
    """Print where the run is shown in TensorBoard."""
    console.print("\nThe run in the Supervisor tab of TensorBoard (press Ctrl-C to stop):")
    console.print(f"  {url}", highlight=False, markup=False, soft_wrap=True)


def show_report(console: Console, target: Path, problem: str | None) -> None:
    """Print where the run's page is, or why there is none."""
    text = f"\nThe run as a page, for any browser: {target}" if problem is None else f"\nThe run has no page. {problem}"
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def show_verdict(console: Console, story: Story, checks: Sequence[Check]) -> int:
    """Print whether all checks passed, and which failed; return the exit status, 0 or 1."""
    console.print()
    if story.broken_off is not None:
        console.print(f"Stopped early: {story.broken_off}", highlight=False, markup=False, soft_wrap=True)
    missing = [check for check in checks if not check.seen]
    if not missing and story.broken_off is None:
        console.print("[green]All checks passed.[/green]", highlight=False)
        return 0
    console.print("[bold red]Failed checks:[/bold red]", highlight=False)
    for check in missing:
        console.print(f"  {check.promise} ({check.detail})", highlight=False, markup=False, soft_wrap=True)
    return 1

"""``tb-supervisor report``: the tab's page of one run, as it is now, as one HTML file."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click
from rich.progress import SpinnerColumn, TextColumn

from supervisor_core.cli import NO_SPACE, WrongInput, paths
from supervisor_core.cli.logdirs import existing, filters, logdirs
from supervisor_core.cli.look import Look, Looking, SeenRun, check_run
from supervisor_core.cli.overview import worst_first
from supervisor_core.cli.text import progress_bar, runs_bar
from supervisor_core.errors import SupervisorError
from supervisor_core.install import DISTRIBUTION
from supervisor_core.log import printable
from supervisor_core.storage.local import LOCAL, absolute
from supervisor_core.systems import user_id

STDOUT = "-"
_LISTED = 10
"""How many runs the error names that asks for one."""


@click.command(
    short_help="Write the tab's page of one run as an HTML file.",
    epilog="\b\nExamples:\n"
    "  tb-supervisor report --html report.html /runs/mnist\n"
    "  tb-supervisor report --run mnist --html mnist.html /runs",
)
@logdirs()
@filters
@click.option("--run", "name", metavar="RUN", help="The run; needed where there are several.")
@click.option(
    "--html",
    "target",
    required=True,
    metavar="FILE",
    shell_complete=paths,
    help="The file to write, replaced if it exists; - for standard output.",
)
def report(logdirs: tuple[str, ...], include: str | None, exclude: str | None, name: str | None, target: str) -> None:
    """Write what the TensorBoard tab shows of a run now, as one HTML file: findings, timeline, tables, stacks, curves.

    Any browser opens the file, without a server and without a network. It holds paths, host names, commands and stacks
    of the run.

    Exit status: 0 if the file was written; 2 if LOGDIR is not a directory, has no runs, or not one that is meant, or if
    FILE cannot be written; 74 if the disk is full.
    """
    page_of = _page_maker()
    path = None if target == STDOUT else _checked(target)
    try:
        looking = Looking(existing(logdirs), include, exclude)
        with runs_bar("reading") as on_progress:
            look = looking.look(on_progress)
        seen = _chosen(look, logdirs, name)
        with progress_bar(SpinnerColumn(), TextColumn("reading the scalars")):
            made = page_of(seen.run.name, seen.watched, look.at, absolute(looking.directory))
    except SupervisorError as error:
        raise WrongInput(str(error)) from error
    if path is None:
        sys.stdout.buffer.write(made.page)
        return
    try:
        LOCAL.replace(path, made.page)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise
        raise WrongInput(f"{target} cannot be written: {error.strerror or error}.") from error
    click.echo(printable(f"{target}: the run {made.title} in {len(made.page) / 1e6:.1f} MB."))
    for text in made.left_out:
        click.echo(printable(text))


def _page_maker() -> Any:
    """Return `tb_plugin.report.report_page`, unless the package of that name is another project's."""
    try:
        package: Any = import_module("tb_plugin")
        if getattr(package, "DISTRIBUTION", None) == DISTRIBUTION:
            return import_module("tb_plugin.report").report_page
        found = f"the one of that name that Python finds is another project's: {package.__file__}"
    except ImportError as error:
        found = str(error)
    raise WrongInput(f"A report needs the package tb_plugin of {DISTRIBUTION}; {found}.")


def _checked(target: str) -> str:
    """Return where a file is written: through links, but no other user's, where it is a file already, or nothing
    yet."""
    path = os.path.realpath(target)
    if os.path.islink(target) and os.lstat(target).st_uid not in (0, user_id()):
        raise WrongInput(f"{target} is another user's link to {path}: give that, or the name of another file.")
    if os.path.lexists(path) and not os.path.isfile(path):
        what = "a directory" if os.path.isdir(path) else "no file"
        raise WrongInput(f"{target} is {what}; expected the name of a file to write.")
    if not os.path.basename(target):
        raise WrongInput(f"{target} is the name of a directory; expected the name of a file to write.")
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        raise WrongInput(f"The directory {os.path.dirname(target)} does not exist; create it first.")
    return path


def _chosen(look: Look, logdirs: Sequence[str], name: str | None) -> SeenRun:
    check_run(look, logdirs, name)
    found = look.asked_for(name)
    if len(found) == 1:
        return found[0]
    listed = [f"{seen.run.name} ({seen.run.state})" for seen in worst_first(found)]
    more = f" and {len(listed) - _LISTED:,} more" if len(listed) > _LISTED else ""
    raise WrongInput(
        f"{' or '.join(logdirs)} has {len(listed):,} runs; give one of them with --run: "
        f"{', '.join(listed[:_LISTED])}{more}."
    )

"""``tb-supervisor report``: what a fleet did with its time; or the tab's page of one run as one HTML file."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import click
from rich.progress import SpinnerColumn, TextColumn

from supervisor_core.base.errors import SupervisorError
from supervisor_core.base.log import printable
from supervisor_core.cli import WrongInput, checked_target, hints, paths, writing
from supervisor_core.cli.fleet import fleet_page, show
from supervisor_core.cli.logdirs import GivenRuns, given_runs
from supervisor_core.cli.look import Look, check_run, first_look, looking_at
from supervisor_core.cli.text import progress_bar
from supervisor_core.history.notebook import report_page
from supervisor_core.run.judge import run_json
from supervisor_core.run.judge.fleet_report import GROUPS, fleet_report
from supervisor_core.run.judge.run_json import plain
from supervisor_core.run.model.run import Run
from supervisor_core.run.model.thresholds import parse_duration
from supervisor_core.run.model.words import counted, listed
from supervisor_core.run.watch.whole_run import WholeRuns
from supervisor_core.storage.local import LOCAL, absolute

STDOUT = "-"
_LISTED = 20
"""How many labels an error names."""
SHOWN_PROBLEMS = 5


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment as it was given: how long ago, or a date."""

    given: str
    ago_secs: float | None
    date: float

    def at(self, now: float) -> float:
        """Return its wall time."""
        return self.date if self.ago_secs is None else now - self.ago_secs

    def __str__(self) -> str:
        """Return what was given."""
        return self.given


def _moment(context: click.Context, parameter: click.Parameter, given: str | None) -> Moment | None:
    """Return a moment: ``7d`` ago, or an ISO date, of local time where it has no zone."""
    if given is None:
        return None
    try:
        return Moment(given, parse_duration(given), 0.0)
    except ValueError:
        pass
    try:
        return Moment(given, None, datetime.fromisoformat(given).timestamp())
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(
            f"{given!r} is no moment; expected how long ago, such as 7d or 12h, or a date, such as 2026-11-20 or "
            "2026-11-20T06:30."
        ) from None


@click.command(
    short_help="Report what a fleet did with its time; or one run as an HTML file.",
    epilog="\b\nExamples:\n"
    "  tb-supervisor report --since 7d --by user /runs\n"
    "  tb-supervisor report --since 7d --html fleet.html /runs\n"
    "  tb-supervisor report --run mnist --html mnist.html /runs",
)
@given_runs
@click.option("--run", "name", metavar="RUN", help="The report of this run instead; it needs --html.")
@click.option(
    "--since", metavar="WHEN", callback=_moment, help="Begin of the window: how long ago, such as 7d, or a date."
)
@click.option("--until", metavar="WHEN", callback=_moment, help="Its end, in the same way. Default: now.")
@click.option("--by", metavar="LABEL", help="Group by host, run, device_kind, or a label such as user or team.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--html",
    "target",
    metavar="FILE",
    shell_complete=paths,
    help="The file to write, replaced if it exists; - for standard output.",
)
def report(
    runs: GivenRuns,
    name: str | None,
    since: Moment | None,
    until: Moment | None,
    by: str | None,
    as_json: bool,
    target: str | None,
) -> None:
    """Report where the time of all runs went: goodput, device hours lost by cause, failures, hosts.

    With --run, or with --html and nothing else where there is one run, it is the report of that run instead: what the
    TensorBoard tab shows of it now, findings, timeline, tables, stacks and curves, as one HTML file.

    Any browser opens the file, without a server and without a network. It holds paths, host names, commands and stacks
    of the run, or names of runs, hosts and users of the fleet.

    Exit status: 0 if the report was written; 2 if LOGDIR is not a directory, has no runs, or not one that is meant, or
    if FILE cannot be written; 74 if the disk is full.
    """
    is_of_fleet = as_json or any(given is not None for given in (since, until, by))
    if name is not None and is_of_fleet:
        raise click.UsageError("--run is the report of one run; --since, --until, --by and --json are of all runs.")
    if name is not None and target is None:
        raise click.UsageError("--run needs --html FILE: the report of one run is a page.")
    if as_json and target is not None:
        raise click.UsageError("--json and --html are two reports; give one of them.")
    path = None if target in (None, STDOUT) else checked_target(str(target))
    try:
        page_of = None if name is None else report_page()
        looking = looking_at(runs, whole=None)
        look = first_look(looking)
        looking.close()
        check_run(look, runs.logdirs, name)
        found = look.asked_for(name)
        if name is not None or (target is not None and not is_of_fleet and len(found) == 1):
            with progress_bar(SpinnerColumn(), TextColumn("reading the scalars")):
                watched = WholeRuns().of(found[0].watched)
                made = (page_of or report_page())(found[0].run.name, watched, look.at, absolute(looking.directory))
            _write(made.page, path, target, f"the run {made.title}", made.left_out)
            return
    except SupervisorError as error:
        raise WrongInput(str(error)) from error
    _report_fleet(look, runs.logdirs, since, until, by, as_json, path, target)


def _report_fleet(
    look: Look,
    logdirs: tuple[str, ...],
    since: Moment | None,
    until: Moment | None,
    by: str | None,
    as_json: bool,
    path: str | None,
    target: str | None,
) -> None:
    runs = [seen.run for seen in look.runs.values() if seen.watched.copy_of is None]
    _check_label(by, runs)
    begin, end = (None if given is None else given.at(look.at) for given in (since, until))
    if begin is not None and begin >= (look.at if end is None else end):
        raise click.UsageError(f"--since {since} is not before --until {until or 'now'}.")
    made = fleet_report(runs, now=look.at, since=begin, until=end, by=by)
    place = " ".join(logdirs)
    if as_json:
        more = {"logdirs": list(logdirs), "problems": list(look.problems)}
        click.echo(json.dumps(plain({**more, **run_json.as_json(made)})))
    elif target is None:
        show(made, place)
        for problem in look.problems[:SHOWN_PROBLEMS]:
            click.echo(printable(problem), err=True)
    else:
        runs_said = counted(made.total.runs, "run")
        _write(fleet_page(made, place), path, target, f"the fleet, {runs_said},", look.problems[:SHOWN_PROBLEMS])


def _write(page: bytes, path: str | None, target: str | None, what: str, remarks: Sequence[str]) -> None:
    if path is None:
        sys.stdout.buffer.write(page)
        return
    with writing(str(target)):
        LOCAL.replace(path, page)
    click.echo(printable(f"{target}: {what} in {len(page) / 1e6:.1f} MB."))
    for text in remarks:
        click.echo(printable(text))


def _check_label(by: str | None, runs: Sequence[Run]) -> None:
    if by is None or by in GROUPS:
        return
    known = {label for run in runs for session in run.sessions for label in session.labels}
    if by not in known:
        meant = hints.close_to(by, (*GROUPS, *known))
        have = f"the sessions have {listed(sorted(known)[:_LISTED])}" if known else "the sessions have no labels"
        raise WrongInput(
            f"No session has the label {by!r}; expected host, run or device_kind, or a label: {have}. {meant}".rstrip()
        )

"""``tb-supervisor inspect``: the runs in a logdir, from their events files."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from itertools import chain, islice
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from supervisor_core.base.log import printable
from supervisor_core.cli import hints
from supervisor_core.cli.logdirs import GivenRuns, given_runs
from supervisor_core.cli.look import Look, Looking, SeenRun, check_run, first_look, looking_at
from supervisor_core.cli.overview import overview
from supervisor_core.cli.text import STATES, UNBOUNDED, Output, by_its_clock, literal
from supervisor_core.cli.timeline import timeline
from supervisor_core.run.judge.run_json import as_json, plain, run_json
from supervisor_core.run.model.run import RunState
from supervisor_core.run.model.snapshot import WatchedRun

FOLLOW_SECS = 2.0
"""How often ``--follow`` snapshots again."""

NOT_READ_STATUS = 1
FAIL_ON_STATUS = 3

SHOWN_PROBLEMS = 5
"""Of each run; ``--json`` has a hundred of each file."""
_PIECES = 10_000
"""Of a JSON text that are written at once."""


def _states(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[RunState, ...]:
    """Return states of runs that were given with commas between them."""
    if value is None:
        return ()
    given = {word.strip() for word in value.split(",")}
    if strange := sorted(given - STATES.keys()):
        meant = hints.close_to(strange[0], STATES)
        expected = f"expected some of {','.join(STATES)}, with commas between them."
        raise click.BadParameter(f"{strange[0]!r} is no state; {expected} {meant}".rstrip())
    return tuple(state for state in STATES if state in given)


@click.command(
    short_help="Show the runs in a logdir: state, step, checkpoint, restarts.",
    epilog="\b\nExamples:\n"
    "  tb-supervisor inspect /runs\n"
    "  tb-supervisor inspect --run mnist /runs\n"
    "  tb-supervisor inspect '/teams/*/runs'\n"
    "  tb-supervisor inspect --fail-on lost,failed,stalled /runs",
)
@given_runs
@click.option("--run", "name", metavar="RUN", help="Show one run's timeline instead of the table of all.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --follow, one line per change.")
@click.option("--follow", is_flag=True, help="Keep watching, until Ctrl-C.")
@click.option(
    "--fail-on",
    callback=_states,
    metavar="STATES",
    help="Exit with status 3 if a run is in one of these states, for example lost,failed,stalled.",
)
@click.pass_context
def inspect(
    context: click.Context,
    runs: GivenRuns,
    name: str | None,
    as_json: bool,
    follow: bool,
    fail_on: tuple[RunState, ...],
) -> None:
    """Show the runs in and below LOGDIR: what needs you first, with the reason; then what goes on, and what is over.

    LOGDIR is a directory, an events file (it stands for its directory), or a pattern; there may be several. Reads the
    events files of any program. Values of a run without telemetry are inferred, and marked.

    Exit status: 0 if everything was read; 1 if a part could not be read; 2 if LOGDIR is not a directory, has no runs,
    or not the one of --run; 3 if --fail-on applies.
    """
    looking = looking_at(runs, whole=name or as_json or None)
    first = first_look(looking)
    if not follow:
        check_run(first, runs.logdirs, name)
    looks = [first]
    with suppress(KeyboardInterrupt) if follow else nullcontext():
        later = _following(looking, looks) if follow else iter(())
        if as_json:
            _print_json(first, later, (looking.directory, *runs.logdirs), name, follow)
        else:
            _print_text(first, later, name, follow)
    looking.close()
    context.exit(_status(looks[-1], name, fail_on))


def _status(look: Look, name: str | None, fail_on: Sequence[RunState]) -> int:
    runs = look.asked_for(name)
    failed = [f"{item.run.name} ({item.run.state})" for item in runs if item.run.state in fail_on]
    if failed:
        more = f" and {len(failed) - 10:,} more" if len(failed) > 10 else ""
        click.echo(printable(f"In a state of --fail-on: {', '.join(failed[:10])}{more}."), err=True)
        return FAIL_ON_STATUS
    return NOT_READ_STATUS if look.problems or any(item.watched.not_read for item in runs) else 0


def _print_json(look: Look, later: Iterator[Look], logdirs: Sequence[str], name: str | None, follow: bool) -> None:
    for item in _changes(look, later):
        if follow:
            click.echo(json.dumps(_object(item, logdirs, name)))
            continue
        # Piece by piece: of ten thousand sessions the pieces of the whole text take more memory than the run.
        pieces = json.JSONEncoder(indent=2).iterencode(_object(item, logdirs, name))
        while text := "".join(islice(pieces, _PIECES)):
            click.echo(text, nl=False)
        click.echo()


def _print_text(look: Look, later: Iterator[Look], name: str | None, follow: bool) -> None:
    terminal, unbounded = Output(highlight=False), Output(highlight=False, width=UNBOUNDED)

    def view(item: Look) -> RenderableType:
        return _view(item, name, terminal.width, terminal.width if terminal.is_terminal else None)

    if terminal.is_terminal and follow:
        with Live(view(look), console=terminal, auto_refresh=False) as live:
            for item in later:
                live.update(view(item), refresh=True)
        return
    # Where even a name is longer than the terminal is wide, the terminal itself breaks the line of the table.
    console = terminal if terminal.is_terminal and name is not None else unbounded
    for item in _changes(look, later):
        console.print(view(item), crop=False)


def _view(look: Look, name: str | None, bars: int, width: int | None) -> RenderableType:
    """Return what is shown, with bars of one width, and a table of runs within another."""
    parts: list[RenderableType] = []
    asked_for = look.asked_for(name)
    if name is None:
        parts += overview(asked_for, look.at, width)
    elif asked_for:
        parts += [timeline(seen.run, look.at, bars, seen.findings, label=seen.label) for seen in asked_for]
    else:
        parts.append(Text(printable(f"There is no run {name!r} yet.")))
    parts += [_problem(problem) for problem in look.problems]
    for seen in asked_for:
        texts = [text for text in seen.watched.not_read if text not in look.problems]
        parts += [_problem(text, seen.run.name) for text in texts[:SHOWN_PROBLEMS]]
        if len(texts) > SHOWN_PROBLEMS:
            parts.append(_problem(f"and {len(texts) - SHOWN_PROBLEMS:,} more", seen.run.name))
    return Group(*parts)


def _problem(text: str, run: str | None = None) -> Text:
    whose = "" if run is None else f"{literal(run)}: "
    return Text.from_markup(f"[bold red]not read[/bold red] {whose}{literal(text)}")


def _object(look: Look, logdirs: Sequence[str], name: str | None) -> dict[str, Any]:
    directory, *given = logdirs
    return {
        "v": SCHEMA_VERSION,
        "logdir": directory,
        "logdirs": given,
        "at": look.at,
        "problems": list(look.problems),
        "runs": [run_object(item, look.at) for item in look.asked_for(name)],
    }


def _marks(look: Look) -> dict[str, tuple[object, ...]]:
    """What has to differ for a run to be shown again."""
    return {
        name: (item.run.state, item.watched.records, *(found.text for found in item.findings))
        for name, item in look.runs.items()
    }


def _changes(look: Look, later: Iterator[Look]) -> Iterator[Look]:
    """Yield a look, and each later one in which a run has to be shown again."""
    before = None
    for item in chain([look], later):
        if _marks(item) != before:
            before = _marks(item)
            yield item


def _following(looking: Looking, looks: list[Look]) -> Iterator[Look]:
    """Yield each later look, and keep the newest in ``looks``."""
    never = threading.Event()
    while not never.wait(FOLLOW_SECS):
        looks[:] = [looking.look()]
        yield looks[0]


SCHEMA_VERSION = 1


def run_object(seen: SeenRun, now: float) -> dict[str, Any]:
    """Return one run as plain values, with nothing in it that JSON cannot hold."""
    watched, run = seen.watched, seen.run
    good = [item for item in run.checkpoints if item.ok and item.at]
    values = run_json(watched)
    found: dict[str, Any] = plain(
        {
            **values,
            "findings": as_json(seen.findings),
            "checkpoint_age_secs": max(0.0, by_its_clock(run, now) - (good[-1].at or 0.0)) if good else None,
            "launches": [{**as_json(item), "last_words": item.stderr} for item in run.launches],
            "workers": [{**as_json(item), "spans": as_json(item.spans)} for item in run.workers],
            "problems": [*_problem_of_run(watched), *values["problems"]],
        }
    )
    return found


def _problem_of_run(watched: WatchedRun) -> list[dict[str, Any]]:
    """Return the problem of the run as a whole, unless it is one of its files'."""
    about_a_file = {f"{problem.path}: {problem.text}" for problem in watched.file_problems}
    if watched.problem is None or watched.problem in about_a_file:
        return []
    return [{"path": None, "offset": None, "kind": "run", "text": watched.problem}]

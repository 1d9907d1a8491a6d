"""``tb-supervisor verify``: checks every events file and checkpoint below a logdir."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import click
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from supervisor_core.base.errors import CheckpointError, DamagedCheckpointError, EventsError, NoUsableCheckpointError
from supervisor_core.base.log import command_line, error_text
from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint.names import last_part, step_in_name
from supervisor_core.checkpoint.recovery import Candidate, CheckpointChoice, CheckpointKind, Skipped, newest_usable
from supervisor_core.checkpoint.search import find_stores
from supervisor_core.checkpoint.set_aside import SetAside
from supervisor_core.checkpoint.values import CheckpointValues, values_of
from supervisor_core.cli import WrongInput
from supervisor_core.cli.logdirs import (
    GivenLogdir,
    common_directory,
    existing,
    filters,
    is_wanted,
    logdirs,
    name_in,
    no_runs,
)
from supervisor_core.cli.text import OnProgress, Output, bold, literal, progress_bar, runs_bar
from supervisor_core.events.chunk import FileFacts
from supervisor_core.events.directory import MAX_PROBLEMS
from supervisor_core.events.index import LogdirIndex
from supervisor_core.run.model.words import counted
from supervisor_core.storage.filesystem import Filesystem
from supervisor_core.storage.local import filesystem_for, local_path, source_of

SCHEMA_VERSION = 1

Watch = Callable[[str], OnProgress]
Check = Callable[[str], bundle.VerifiedCheckpoint]


@dataclass(frozen=True, kw_only=True)
class CheckpointVerdict:
    """One checkpoint, as ``--json`` shows it."""

    path: str
    name: str
    """The last part of the path."""
    step: int | None
    """The step stored inside, or else the one in the name."""
    bytes: int | None = None
    tensors: int | None = None
    verdict: Literal["good", "damaged", "missing"]
    """``missing``: the state file names it and no file of it is there."""
    reason: str | None
    doubt: str | None = None
    """Why the model in it may be spoiled; None where nothing says so."""
    not_captured: tuple[str, ...] = ()
    """Why a resume from it is not exact: what it does not have."""
    source: str
    """``state``: the state file names it; ``disk``: it is only found on disk."""
    values: CheckpointValues | None = None
    """What its numbers are, with ``--values``."""
    values_problem: str | None = None
    """Why they could not be read."""


@dataclass(frozen=True, kw_only=True)
class RunVerdict:
    """One run directory, as ``--json`` shows it."""

    run: str
    """Relative to the logdir; ``.`` for the logdir itself."""
    path: str
    checkpoints: tuple[CheckpointVerdict, ...] = ()
    state_problem: str | None = None
    resume: str | None = None
    """The path of the checkpoint that a restart would resume from."""
    resume_step: int | None = None
    why: str | None = None
    """Why that one, in half a sentence."""
    problem: str | None = None
    """Why a restart would not start, in one line."""
    set_aside: tuple[SetAside, ...] = ()
    """Oldest first."""
    events: tuple[EventsVerdict, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong here."""
        damaged = any(item.verdict == "damaged" or item.values_problem for item in self.checkpoints)
        has_nan = any(item.values is not None and item.values.has_nan for item in self.checkpoints)
        chosen_missing = bool(self.checkpoints) and self.checkpoints[0].verdict == "missing"
        events = all(file.is_harmless for file in self.events)
        return events and not (has_nan or damaged or chosen_missing or self.state_problem or self.problem)


@click.command(
    short_help="Check every events file and checkpoint.",
    epilog="\b\nExamples:\n  tb-supervisor verify /runs\n  tb-supervisor verify --json /runs/mnist",
)
@logdirs()
@filters
@click.option("--values", "with_values", is_flag=True, help="Look for NaN and infinity in the checkpoints, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.pass_context
def verify(
    context: click.Context,
    logdirs: tuple[str, ...],
    include: str | None,
    exclude: str | None,
    with_values: bool,
    as_json: bool,
) -> None:
    """Check every byte of the events files and checkpoints in and below LOGDIR; show what a restart would resume from.

    LOGDIR is a directory, an events file (it stands for its directory), or a pattern; there may be several.

    Exit status: 0 if all are good; 1 if one is damaged, or has NaN or values that cannot be read (with --values), the
    checkpoint to resume from is missing, a state file cannot be read, or a directory cannot be searched; 2 if LOGDIR is
    not a directory or contains neither.
    """
    given = existing(logdirs)
    common = common_directory(given)
    verdicts: list[RunVerdict] = []
    unsearched: list[str] = []
    for logdir in given:
        found, not_searched = _verify_logdir(logdir, include, exclude, with_values=with_values)
        if len(given) > 1:
            found = [replace(verdict, run=name_in(common, logdir.path, verdict.run)) for verdict in found]
        verdicts += found
        unsearched += not_searched
    if not verdicts and not unsearched:
        raise no_runs("events files and no checkpoints", logdirs)
    if as_json:
        click.echo(json.dumps(_as_json(common, verdicts, unsearched), indent=2))
    else:
        _print(verdicts, unsearched)
    context.exit(0 if all(verdict.is_good for verdict in verdicts) and not unsearched else 1)


def _verify_logdir(
    logdir: GivenLogdir, include: str | None, exclude: str | None, *, with_values: bool
) -> tuple[list[RunVerdict], list[str]]:
    """Return the verdict of each run of a logdir, and what could not be searched."""
    filesystem, top = _directory(logdir.path)
    refused: dict[str, str] = {}

    def on_error(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError) or error.filename == top:  # a save that has ended meanwhile
            refused[str(error.filename)] = error_text(error)

    by_run: dict[str, list[CheckpointKind]] = {}
    with progress_bar(TextColumn("looking for checkpoints"), TimeElapsedColumn()):
        for store in find_stores(filesystem, top, on_error=on_error):
            by_run.setdefault(_name_in(top, store.run), []).append(store)
    include = logdir.include(include)
    with _reading() as watch:
        verdicts = {
            name: _verify_run(name, stores, watch)
            for name, stores in by_run.items()
            if is_wanted(name, include, exclude)
        }
        if with_values:
            verdicts = {name: _with_values(verdict, filesystem, watch) for name, verdict in verdicts.items()}
    with runs_bar("events files") as on_progress:
        events, unlisted = verify_events(top, on_progress, include, exclude)
    unsearched = list(itertools.islice(refused.values(), MAX_PROBLEMS))
    unsearched += [text for text in unlisted if text.partition(" cannot be listed: ")[0] not in refused]
    for name, files in events.items():
        path = top if name == "." else f"{top.rstrip('/')}/{name}"
        verdicts[name] = replace(verdicts.get(name) or RunVerdict(run=name, path=path), events=files)
    return [verdicts[name] for name in sorted(verdicts)], unsearched


def _directory(logdir: str) -> tuple[Filesystem, str]:
    local = local_path(logdir)
    filesystem, top = filesystem_for(logdir if local is None else local)
    if local is None:
        try:
            source_of(logdir)
            filesystem.list_names(top)
        except EventsError as error:
            raise WrongInput(str(error)) from error
        except (OSError, ImportError, ValueError) as error:
            raise WrongInput(f"{logdir} cannot be listed: {error_text(error)}") from error
    return filesystem, top


def _name_in(top: str, path: str) -> str:
    """Return the name of the run that a directory in or below a logdir is."""
    return os.path.relpath(path, top) if "://" not in top else path[len(top) :].strip("/") or "."


def _verify_run(run: str, stores: Sequence[CheckpointKind], watch: Watch) -> RunVerdict:
    """Verify all checkpoints of a run; of each kind the first store is the one that a restart would look into."""
    verdicts: dict[str, CheckpointVerdict] = {}
    aside: dict[str, SetAside] = {}
    first: dict[type, CheckpointKind] = {}
    found: list[RunVerdict] = []
    for store in stores:
        check = _once(store, watch)
        choice, problem = CheckpointChoice(chosen=None, verified=None), None
        try:
            own = [_verify_one(store, candidate, check) for candidate in store.listed().candidates]
            if first.setdefault(type(store), store) is store:
                choice, problem = _choice(store, check)
                if choice.chosen is not None and choice.chosen.path not in (item.path for item in own):
                    own.insert(0, _verify_one(store, choice.chosen, check))  # saved meanwhile
            now = store.listed()  # what a training has deleted meanwhile is no damage
            own += map(_without_index, now.remains)
            is_there = {item.path for item in now.candidates} | {item.path for item in now.remains}
            for item in own:
                if item.verdict == "good" or item.path in is_there:
                    verdicts.setdefault(item.path, item)
            aside.update((item.path, item) for item in store.all_set_aside())
        except CheckpointError as error:
            problem = str(error)
        except OSError as error:
            problem = error_text(error)
        chosen = choice.chosen if choice.verified is not None else None
        found.append(
            RunVerdict(
                run=run,
                path=store.run,
                state_problem=choice.state_problem,
                resume=None if chosen is None else chosen.path,
                resume_step=None if chosen is None else _step(chosen, choice.verified),
                why=None if chosen is None else _why(chosen, choice.skipped),
                problem=problem,
            )
        )
    best = next((item for item in found if item.resume), found[0])
    return replace(
        best,
        checkpoints=tuple(verdicts.values()),
        set_aside=tuple(sorted(aside.values(), key=lambda item: (item.at, item.path))),
        state_problem=next((item.state_problem for item in found if item.state_problem), None),
        problem=next((item.problem for item in found if item.problem), None),
    )


def _once(store: CheckpointKind, watch: Watch) -> Check:
    """Return what verifies each checkpoint once, and returns or raises the same later."""
    results: dict[str, bundle.VerifiedCheckpoint | DamagedCheckpointError] = {}

    def check(path: str) -> bundle.VerifiedCheckpoint:
        if path not in results:
            try:
                results[path] = store.verify(path, on_progress=watch(path))
            except DamagedCheckpointError as error:
                results[path] = error
        result = results[path]
        if isinstance(result, DamagedCheckpointError):
            raise result
        return result

    return check


def _choice(store: CheckpointKind, check: Check) -> tuple[CheckpointChoice, str | None]:
    """Return what a restart would resume from, and why it would not start."""
    try:
        return newest_usable(store, check), None
    except NoUsableCheckpointError:
        return CheckpointChoice(chosen=None, verified=None), "none of its checkpoints can be read"


def _why(chosen: Candidate, skipped: Sequence[Skipped]) -> str:
    """Return why a restart would resume from a checkpoint, in half a sentence."""
    if skipped:
        more = f" and {counted(len(skipped) - 1, 'other')}" if len(skipped) > 1 else ""
        return f"the newest that is whole: {last_part(skipped[0].path)}{more} would be passed over"
    return {"state": "which the state file names", "ledger": "saved after the state file was written"}.get(
        chosen.source, "the newest"
    )


def _verify_one(store: CheckpointKind, candidate: Candidate, check: Check) -> CheckpointVerdict:
    verified: bundle.VerifiedCheckpoint | None = None
    reason: str | None = None
    try:
        verified = check(candidate.path)
    except DamagedCheckpointError as error:
        reason = str(error)
    return CheckpointVerdict(
        path=candidate.path,
        name=os.path.basename(candidate.path),
        step=_step(candidate, verified),
        bytes=verified.bytes if verified else None,
        tensors=verified.tensors if verified else None,
        verdict="good" if verified else "damaged" if candidate.found else "missing",
        reason=reason,
        doubt=None if verified is None else store.doubt_about(candidate.path, verified),
        not_captured=() if verified is None or verified.manifest is None else verified.manifest.limits,
        source=candidate.source,
    )


def _with_values(run: RunVerdict, filesystem: Filesystem | None, watch: Watch) -> RunVerdict:
    """Return the verdict of a run with the values of its good checkpoints."""

    def looked_at(item: CheckpointVerdict) -> CheckpointVerdict:
        if item.verdict != "good":
            return item
        try:
            found = values_of(item.path, on_progress=watch(item.path), filesystem=filesystem)
            return replace(item, values=found)
        except CheckpointError as error:
            return replace(item, values_problem=str(error))

    return replace(run, checkpoints=tuple(map(looked_at, run.checkpoints)))


def _without_index(item: Skipped) -> CheckpointVerdict:
    return CheckpointVerdict(
        path=item.path,
        name=os.path.basename(item.path),
        step=step_in_name(item.path),
        verdict="damaged",
        reason=item.reason,
        source="disk",
    )


def _step(candidate: Candidate, verified: bundle.VerifiedCheckpoint | None) -> int | None:
    return verified.step if verified is not None and verified.step is not None else candidate.step


def _as_json(logdir: str, verdicts: list[RunVerdict], unsearched: list[str]) -> dict[str, Any]:
    counts = Counter(item.verdict for verdict in verdicts for item in verdict.checkpoints)
    return {
        "v": SCHEMA_VERSION,
        "logdir": logdir,
        "good": counts["good"],
        "damaged": counts["damaged"],
        "missing": counts["missing"],
        "set_aside": sum(len(verdict.set_aside) for verdict in verdicts),
        "unsearched": unsearched,
        "runs": [_run_as_json(verdict) for verdict in verdicts],
    }


def _run_as_json(verdict: RunVerdict) -> dict[str, Any]:
    """Return a run, with the values of its checkpoints where they were asked for."""
    found = asdict(verdict)
    for item, shown in zip(verdict.checkpoints, found["checkpoints"], strict=True):
        if item.values is None and item.values_problem is None:
            del shown["values"], shown["values_problem"]
        elif item.values is not None:
            shown["values"] |= {"summary": item.values.summary, "norm": item.values.norm}
    return found


_STYLES = {"good": "green", "damaged": "bold red", "unreadable": "bold red", "NaN": "bold red", "values": "green"}
"""Of the first word of a line; yellow for all others."""


def _print(verdicts: list[RunVerdict], unsearched: list[str]) -> None:
    console = Output(highlight=False, soft_wrap=True)

    def line(word: str, *texts: str) -> None:
        style = _STYLES.get(word, "yellow")
        console.print(f"  [{style}]{word:<8}[/{style}] {'  '.join(map(literal, texts))}")

    for verdict in verdicts:
        console.print(bold(verdict.run))
        for item in verdict.checkpoints:
            tensors = "" if item.tensors is None else f", {item.tensors:,} tensors"
            what = item.reason or f"{item.bytes or 0:,} bytes{tensors}"
            line(item.verdict, f"{_step_text(item.step):<14} {item.name}", what)
            if item.doubt:
                line("doubt", item.doubt)
            if item.values is not None:
                line("NaN" if item.values.has_nan else "values", item.values.summary)
            elif item.values_problem:
                line("unread", item.values_problem)
        for aside in verdict.set_aside:
            line("aside", f"{_step_text(aside.step):<14} {os.path.basename(aside.path)}/", aside.reason)
        if verdict.state_problem:
            line("note", verdict.state_problem)
        for file in verdict.events:
            if file.state != "good":
                line(file.state, os.path.basename(file.file), file.detail or "")
        good = [file for file in verdict.events if file.state == "good"]
        if good:
            records, files = sum(file.records for file in good), "events file" if len(good) == 1 else "events files"
            line("good", f"{len(good)} {files}, {records:,} {'record' if records == 1 else 'records'}")
        if verdict.checkpoints or verdict.problem or verdict.state_problem:
            for text in _outlook(verdict):
                console.print(f"  {literal(text)}")
    for reason in unsearched:
        console.print(f"[bold red]not searched[/bold red] {literal(reason)}")


def _step_text(step: int | None) -> str:
    return "no step" if step is None else f"step {step:,}"


def _outlook(verdict: RunVerdict) -> Iterator[str]:
    """Yield what a restart would do, and how it resumes from the last good checkpoint where the newest is in doubt."""
    if verdict.problem:
        yield f"A restart would stop with an error: {verdict.problem}."
        return
    if verdict.resume is None:
        yield "A restart would begin at step 0: there is no checkpoint."
        return
    step = "" if verdict.resume_step is None else f" (step {verdict.resume_step:,})"
    yield f"A restart would resume from {os.path.basename(verdict.resume)}{step}, {verdict.why}."
    tried = itertools.dropwhile(lambda item: item.path != verdict.resume, verdict.checkpoints)
    whole = [item for item in tried if item.verdict == "good"]
    yield from (f"Not exactly: {text}" for text in whole[0].not_captured)
    good = next((item for item in whole if item.doubt is None), None)
    if whole[0].doubt is not None and good is not None:
        yield f"It is in doubt; to resume from {good.name}: {command_line('tb-supervisor', 'rewind', '--', good.path)}"


@contextmanager
def _reading() -> Iterator[Watch]:
    """Show how much of which checkpoint is read."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with progress_bar(*columns) as update:

        def watch(path: str) -> OnProgress:
            update(description=literal(os.path.basename(path)), completed=0, total=None)
            return lambda done, total: update(completed=done, total=total)

        yield watch


@dataclass(frozen=True, kw_only=True)
class EventsVerdict:
    """One events file, as ``--json`` shows it."""

    file: str
    """Its path."""
    size: int | None
    """Bytes; None where it could not be asked."""
    records: int
    """Whole records."""
    state: Literal["good", "torn", "damaged", "skipped", "unreadable"]
    """``torn``: it ends within a record, which is being written or was cut by a kill; ``skipped``: it has no events."""
    detail: str | None
    """What is wrong, and where; None if nothing is."""

    @property
    def is_harmless(self) -> bool:
        """Whether it is no fault."""
        return self.state not in ("damaged", "unreadable")


def verify_events(
    logdir: str, on_progress: Callable[[int, int], None], include: str | None = None, exclude: str | None = None
) -> tuple[Mapping[str, tuple[EventsVerdict, ...]], tuple[str, ...]]:
    """Read every events file in and below a logdir, byte by byte.

    Args:
        logdir: the directory.
        on_progress: called after each run with how many are read, and how many there are.
        include: a regular expression that a run's name must match somewhere.
        exclude: one that it must not match anywhere.

    Returns:
        The verdicts by run, and the directories that could not be listed.

    Raises:
        EventsError: if no file system for a remote path is installed.
    """
    index = LogdirIndex(logdir, include=include, exclude=exclude, thorough=True)
    index.refresh(on_progress, take=lambda name, chunks: None)
    found = {name: tuple(_verdict(file) for file in run.files) for name, run in index.runs.items()}
    return found, tuple(problem.text for problem in index.problems)


def _verdict(file: FileFacts) -> EventsVerdict:
    state: Literal["good", "torn", "damaged", "skipped", "unreadable"] = "good"
    detail: str | None = None
    if file.skipped is not None:
        state, detail = ("skipped" if file.is_harmless else "unreadable"), file.skipped
    elif file.corrupt_records:
        first = next((item for item in file.problems if item.offset is not None), None)
        more = f" ({file.corrupt_records - 1} more)" if file.corrupt_records > 1 else ""
        state, detail = "damaged", f"at byte {first.offset:,}: {first.text}{more}" if first else None
    elif file.torn_bytes:
        state = "torn"
        detail = f"its last {file.torn_bytes:,} bytes are no whole record: being written, or cut by a kill"
    return EventsVerdict(file=file.path, size=file.size_bytes, records=file.records, state=state, detail=detail)

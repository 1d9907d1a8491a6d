"""``tb-supervisor stacks``: where the threads of a running process are."""

from __future__ import annotations

import json
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.progress import TextColumn, TimeElapsedColumn
from rich.text import Text

from supervisor_core.base.log import command_line, printable
from supervisor_core.cli import WrongInput, require_system, seconds_option
from supervisor_core.cli import rank_stacks as ranks
from supervisor_core.cli.logdirs import NoSuchLogdir, expanded, find_logdir, logdirs
from supervisor_core.cli.text import Output, progress_bar
from supervisor_core.engine.timeouts import FLOOR_SECS
from supervisor_core.process.identity import boot_id, is_running
from supervisor_core.process.outside import OutsideStacks, ThreadState, outside_stacks, thread_states
from supervisor_core.process.progress_page import PageReading, page_of_session, read_page
from supervisor_core.process.stacks import MAIN_THREAD, Stacks, in_order, user_line
from supervisor_core.process.stacks_file import read_stacks, stacks_path
from supervisor_core.restarter.hang import pages_here
from supervisor_core.run.judge.culprit import RankGroup, Verdict, verdict_of
from supervisor_core.run.model.thresholds import duration
from supervisor_core.run.model.words import named
from supervisor_core.run.watch.liveness import read_chief
from supervisor_core.storage.local import local_path

SCHEMA_VERSION = 1
NOT_READ_STATUS = 1
LARGEST_PID = 1 << 22
TICKING_SECS = 5.0
"""A session's monitor, which needs the interpreter's lock, ticks once a second."""


@dataclass(frozen=True, kw_only=True)
class ProcessStacks:
    """What could be seen of one process."""

    pid: int
    page: PageReading | None
    """Of its session, where it has one."""
    progress_age_secs: float | None
    """Seconds since its last progress; None without a page."""
    source: str | None
    """``py-spy``; ``memory``: the file that the process wrote itself; None: there are no stacks."""
    stacks: Stacks
    title: str
    """What the stacks are of."""
    states: tuple[ThreadState, ...]
    outside: OutsideStacks

    def is_late(self, alone_secs: float | None) -> bool:
        """Return whether its session has made no progress for longer than its hang timeout.

        Args:
            alone_secs: that of a process of several, as if it trained alone; None where it is not known.
        """
        given = (None if self.page is None else self.page.hang_timeout_secs, alone_secs)
        timeout_secs = min((secs for secs in given if secs is not None), default=None)
        return timeout_secs is not None and (self.progress_age_secs or 0.0) > timeout_secs

    @property
    def holds_lock(self) -> str | None:
        """The thread that holds the interpreter's lock, by py-spy, which reads a process that goes on: one that sleeps
        while the session's monitor runs Python does not hold it."""
        holder = self.outside.holds_lock
        state = None if holder is None else self.state_of(holder)
        page = self.page
        is_ticking = page is not None and page.ticks > 0 and time.monotonic() - page.tick_at < TICKING_SECS
        return None if state is not None and state.state == "S" and is_ticking else holder

    def state_of(self, thread: str) -> ThreadState | None:
        """Return what the kernel says of a thread of Python; None where it cannot be found."""
        main = self.pid if thread == MAIN_THREAD else None
        id = self.outside.threads.get(thread) if self.source == "py-spy" else main
        return next((each for each in self.states if each.id == id), None)


@click.command(
    short_help="Show where the threads of a running process are.",
    epilog="\b\nExamples:\n  tb-supervisor stacks 4711\n  tb-supervisor stacks --again 10s /runs/mnist",
)
@logdirs("The same as LOGDIR. Repeatable.", metavar="PID|LOGDIR")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@seconds_option("--again", "Look again after this time, and say which threads have moved.", least=0.1, most=3600.0)
@click.pass_context
def stacks(context: click.Context, logdirs: tuple[str, ...], as_json: bool, again_secs: float | None) -> None:
    """Show the Python stacks of the process PID, or of the sessions that train in LOGDIR or below it on this machine.

    Of a training in several processes it names the one that keeps the others waiting, and shows those at one place as a
    group; of processes on other machines it shows what they have written into their heartbeat files.

    Reads them from outside with py-spy, without stopping the process: also where native code blocks the interpreter.
    Without py-spy, or without the permission, shows what the session itself wrote last, and what the kernel says.

    Exit status: 0 if there are stacks of each process; 1 if not; 2 if there is no such process.
    """
    require_system("stacks", "linux", "darwin")
    targets = [path for given in logdirs for path in expanded(given)]
    found = {pid: page for target in targets for pid, page in _processes(target)}
    later: list[ProcessStacks] = []
    with progress_bar(TextColumn("reading stacks"), TimeElapsedColumn()):
        seen = [_read(pid, page) for pid, page in found.items()]
        if again_secs is not None:
            time.sleep(again_secs)
            later = [_read(each.pid, each.page) for each in seen]
    trainings = _trainings(seen)
    if as_json:
        click.echo(json.dumps(_object(seen, later, trainings), indent=2))
    else:
        output = Output(highlight=False)
        shown = {each.pid: list(_lines(each, _same(later, each.pid), again_secs)) for each in seen}
        of_several = {rank.pid for training in trainings for rank in training.ranks if rank.host is None}
        lines = [line for training in trainings for line in _of_training(training, shown)]
        lines += [line for each in seen if each.pid not in of_several for line in shown[each.pid]]
        output.print(*lines, sep="\n", soft_wrap=True)
    context.exit(0 if all(each.source for each in seen) else NOT_READ_STATUS)


def stacks_object(logdir: str) -> dict[str, Any]:
    """Return what ``--json`` prints of the sessions that train in a logdir or below it on this machine.

    Raises:
        WrongInput: if there is none, or the system cannot read stacks from outside.
    """
    require_system("stacks", "linux", "darwin")
    seen = [_read(pid, page) for pid, page in _processes(logdir)]
    return _object(seen, [], _trainings(seen))


def _processes(target: str) -> list[tuple[int, PageReading | None]]:
    pages = [page for page in pages_here() if page.is_running and not page.ended]
    if target.isascii() and target.isdigit() and not os.path.exists(target):
        pid = int(target[:18])
        if not 0 < pid <= LARGEST_PID or not is_running(pid):
            raise WrongInput(f"There is no process {target} on this machine. Give the logdir: its sessions are found.")
        return [(pid, next((page for page in pages if page.pid == pid), None))]
    # By name first: the logdir may be what hangs.
    directory = os.path.abspath(local_path(target) or "")
    found = [page for page in pages if page.logdir is not None and _is_below(page.logdir, directory)]
    if found:
        return [(page.pid, page) for page in sorted(found, key=lambda page: page.pid)]
    try:
        logdir = find_logdir(target)
    except NoSuchLogdir as error:
        raise WrongInput(f"{error.message} Expected the number of a process, or a logdir.") from error
    if logdir.itself_only:
        return _processes(logdir.path)
    try:
        chief = read_chief(target)
    except (OSError, ValueError):
        chief = None
    if chief is None:
        raise WrongInput(f"No session trains in {target} on this machine. Give the number of a process.")
    if chief.ended is not None:
        raise WrongInput(f"The last session in {target} has ended ({chief.ended}).")
    if chief.boot != boot_id():
        raise WrongInput(f"The session in {target} runs on {chief.host}, this is {socket.gethostname()}: look there.")
    if not is_running(chief.pid):
        shown = command_line("tb-supervisor", "inspect", "--run=.", "--", target)
        gone = f"The process {chief.pid}, which trained in {target}, does not run any more."
        raise WrongInput(f"{gone} Where it hung before, if it did: `{shown}`")
    # Of another user, or in a directory that only the session knows.
    return [(chief.pid, None if chief.page is None else page_of_session(chief.page, chief.session))]


def _is_below(path: str, directory: str) -> bool:
    name = os.path.abspath(local_path(path) or path)
    return name == directory or name.startswith(directory.rstrip("/") + "/")


def _same(looks: Sequence[ProcessStacks], pid: int) -> ProcessStacks | None:
    return next((each for each in looks if each.pid == pid), None)


@dataclass(frozen=True, kw_only=True)
class SeenTraining:
    """A training in several processes."""

    logdir: str
    ranks: tuple[ranks.SeenRank, ...]
    verdict: Verdict | None
    """Its groups; None if no place is known."""

    @property
    def groups(self) -> tuple[RankGroup, ...]:
        """The ranks by their places, those that keep the others waiting first; empty if no place is known."""
        return () if self.verdict is None else (*self.verdict.culprits, *self.verdict.others)

    @property
    def text(self) -> str | None:
        """Which process keeps the others waiting; None while all of them make progress."""
        is_late = any(rank.unresponsive is not None or rank.is_late for rank in self.ranks)
        return self.verdict.text if self.verdict is not None and is_late else None


def _trainings(seen: Sequence[ProcessStacks]) -> list[SeenTraining]:
    """Return the trainings in several processes, with those of them that run elsewhere or have ended."""
    by_logdir: dict[str, list[tuple[PageReading, ProcessStacks]]] = {}
    for each in seen:
        if each.page is not None and each.page.logdir is not None:
            by_logdir.setdefault(each.page.logdir, []).append((each.page, each))
    found = []
    for logdir, members in by_logdir.items():
        records = ranks.task_records(logdir)
        alone = {record.session: record.hang_timeout_secs for record in records}
        names = ranks.names_of([page.session for page, _ in members], records)
        here = [
            ranks.SeenRank(
                name=names[page.session],
                pid=each.pid,
                host=None,
                phase=page.phase,
                step=page.step,
                source=each.source,
                main=ranks.main_of(each.stacks),
                is_late=each.is_late(alone.get(page.session)),
            )
            for page, each in members
        ]
        began_at = min(page.started_at for page, _ in members)
        others = ranks.others_of(records, names, began_at, time.time())
        if len(here) + len(others) > 1:
            all_ranks = (*here, *others)
            verdict = verdict_of(ranks.as_ranks(all_ranks))
            found.append(SeenTraining(logdir=logdir, ranks=all_ranks, verdict=verdict))
    return found


def _of_training(training: SeenTraining, shown: Mapping[int, Sequence[Text]]) -> Iterator[Text]:
    """Yield the verdict, and each group: the stacks of its first process, and a line for each other one."""
    if training.text is not None:
        yield Text(printable(training.text), style="bold red")
    by_name = {rank.name: rank for rank in training.ranks}
    for group in training.groups:
        members = [by_name[name] for name in group.ranks]
        many = f" ({len(members)} processes)" if len(members) > 1 else ""
        yield Text(printable(f"{named(group.ranks)}{many}{_place(group)}:"), style="bold")
        first, *others = sorted(members, key=lambda rank: rank.host is not None)
        yield from _of_rank(first, shown, whole=True)
        for rank in others:
            yield from _of_rank(rank, shown, whole=False)
    for rank in training.ranks if training.verdict is None else ():
        yield Text(printable(f"{named([rank.name])}:"), style="bold")
        yield from _of_rank(rank, shown, whole=True)


def _place(group: RankGroup) -> str:
    where = "" if group.location is None else f" at {group.location}"
    return f"{where}, in {group.waits_in}" if group.waits_in else where


def _of_rank(rank: ranks.SeenRank, shown: Mapping[int, Sequence[Text]], *, whole: bool) -> Iterator[Text]:
    if rank.host is None and rank.pid in shown:
        lines = shown[rank.pid]
        yield from lines if whole else [Text(f"{lines[0].plain}: at the same place")]
        return
    where = "on this machine" if rank.host is None else f"on {rank.host}"
    step = "step unknown" if rank.step is None else f"step {rank.step}"
    same = "" if whole or not rank.main else "; at the same place"
    yield Text(printable(f"Process {rank.pid} {where}, {step}: {rank.said}{same}"))
    if whole and rank.main:
        yield Text("Stacks written by the process itself, of MainThread; innermost line last:")
        own = user_line(rank.main)
        for frame in rank.main:
            yield Text(printable(f"    {frame}"), style="bold" if frame == own else "")


def _read(pid: int, page: PageReading | None) -> ProcessStacks:
    page = page and (read_page(page.path) or page)
    age = None if page is None else max(0.0, time.monotonic() - page.progress_at)
    outside = outside_stacks(pid)
    source, stacks, title = None, outside.stacks, "now, by py-spy"
    if stacks:
        source = "py-spy"
    elif page is not None:
        reading = read_stacks(stacks_path(page.path.parent, page.session))
        if reading is not None and reading.looks:
            look = reading.looks[-1]
            source, stacks, title = "memory", look.stacks, f"written by the process itself: {look.title}"
    return ProcessStacks(
        pid=pid,
        page=page,
        progress_age_secs=age,
        source=source,
        stacks=stacks,
        title=title,
        states=thread_states(pid),
        outside=outside,
    )


def _lines(seen: ProcessStacks, later: ProcessStacks | None, secs: float | None) -> Iterator[Text]:
    page = seen.page
    session = "" if page is None else f", session {page.session}, in {page.logdir or 'no logdir'}"
    yield Text(printable(f"Process {seen.pid}{session}"), style="bold")
    if page is not None:
        step = "step unknown" if page.step is None else f"step {page.step}"
        progress = _progress(page, seen.progress_age_secs or 0.0)
        yield Text(printable(f"{step}, phase {page.phase}: {progress}"), style="bold")
    if seen.outside.problem is not None:
        yield Text(printable(f"Not read from outside: {seen.outside.problem}."), style="yellow")
    if seen.holds_lock is not None:
        yield Text(printable(f"{seen.holds_lock} holds the interpreter's lock."))
    if seen.source is not None:
        yield Text(printable(f"Stacks {seen.title}; innermost line last:"))
    for thread in in_order(seen.stacks):
        frames = seen.stacks[thread]
        state = seen.state_of(thread)
        said = [] if state is None else [state.text]
        if later is not None and secs is not None and later.source == "py-spy" == seen.source:
            moved = later.stacks.get(thread) != frames
            said.append(f"{'other' if moved else 'the same'} frames after {duration(secs)}")
        yield Text(printable(f"  {thread}{': ' if said else ''}{', '.join(said)}"))
        own = user_line(frames)
        for frame in frames:
            yield Text(printable(f"    {frame}"), style="bold" if frame == own else "")
    yield from _others(seen)


def _progress(page: PageReading, age_secs: float) -> str:
    """Return what a page says of its session's progress, for people."""
    if page.is_stopped:
        return "the process is stopped"
    if page.hang_timeout_secs is None:
        return "no progress is expected"
    if age_secs <= min(page.hang_timeout_secs, FLOOR_SECS):
        return "progressing"
    return f"no progress for {age_secs:.0f} s (hang timeout {page.hang_timeout_secs:.0f} s)"


def _others(seen: ProcessStacks) -> Iterator[Text]:
    """Yield what the kernel says of threads that have no stack here."""
    shown = {state.id for thread in seen.stacks if (state := seen.state_of(thread)) is not None}
    rest = [state for state in seen.states if state.id not in shown]
    for state in rest:
        if state.state == "D":
            yield Text(printable(f"  thread {state.id} ({state.name}): {state.text}"))
    counts = Counter(state.text for state in rest if state.state != "D")
    if counts:
        what = "other threads" if seen.stacks else "threads"
        yield Text(printable(f"  {what}: " + "; ".join(f"{count} {text}" for text, count in counts.most_common(8))))


def _object(
    seen: Sequence[ProcessStacks], later: Sequence[ProcessStacks], trainings: Sequence[SeenTraining]
) -> dict[str, Any]:
    looks = [[_process(each) for each in look] for look in (seen, later) if look]
    return {"v": SCHEMA_VERSION, "looks": looks, "trainings": [_training(training) for training in trainings]}


def _training(training: SeenTraining) -> dict[str, Any]:
    verdict = training.verdict
    culprits = () if verdict is None or training.text is None else verdict.culprits
    return {
        "logdir": training.logdir,
        "text": training.text,
        "groups": [
            {
                "ranks": list(group.ranks),
                "is_culprit": group in culprits,
                "location": group.location,
                "waits_in": group.waits_in,
                "phase": group.phase,
                "step": group.step,
                "frames": list(group.frames),
            }
            for group in training.groups
        ],
        "ranks": [
            {"name": rank.name, "pid": rank.pid, "host": rank.host, "step": rank.step, "source": rank.source}
            for rank in training.ranks
        ],
    }


def _process(seen: ProcessStacks) -> dict[str, Any]:
    page = seen.page
    threads = []
    for thread in in_order(seen.stacks):
        state = seen.state_of(thread)
        threads.append({"name": thread, "id": None if state is None else state.id, "frames": list(seen.stacks[thread])})
    return {
        "pid": seen.pid,
        **{name: None if page is None else getattr(page, name) for name in ("session", "logdir", "phase", "step")},
        "progress_age_secs": seen.progress_age_secs,
        "hang_timeout_secs": None if page is None else page.hang_timeout_secs,
        "source": seen.source,
        "title": seen.title if seen.source else None,
        "problem": seen.outside.problem,
        "holds_lock": seen.holds_lock,
        "threads": threads,
        "kernel": [asdict(state) for state in seen.states],
    }

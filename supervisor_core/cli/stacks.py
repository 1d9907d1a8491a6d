"""``tb-supervisor stacks``: where the threads of a running process are."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import click
from rich.progress import TextColumn, TimeElapsedColumn
from rich.text import Text

from supervisor_core.base.log import command_line, printable
from supervisor_core.cli import WrongInput, require_system
from supervisor_core.cli.logdirs import NoSuchLogdir, expanded, find_logdir, logdirs
from supervisor_core.cli.text import Output, progress_bar
from supervisor_core.engine.timeouts import FLOOR_SECS
from supervisor_core.events.telemetry import Place, place_of
from supervisor_core.process.identity import boot_id, is_running, may_be_of, started_at, this_machine
from supervisor_core.process.outside import OutsideStacks, ThreadState, outside_stacks, thread_states
from supervisor_core.process.progress_page import PageReading, page_of_session, read_page
from supervisor_core.process.stacks import MAIN_THREAD, Stacks, in_order, user_line
from supervisor_core.process.stacks_file import read_stacks, stacks_path
from supervisor_core.restarter.hang import pages_here
from supervisor_core.run.judge.culprit import Rank, RankGroup, Unresponsive, Verdict, name_of_chief, verdict_of
from supervisor_core.run.model.words import duration, named
from supervisor_core.run.watch.liveness import (
    LIVENESS_DIRECTORY,
    MAX_TASKS,
    LivenessRecord,
    chief_path,
    files_of_others,
    has_ended_well,
    is_gone,
    read_chief,
    read_record,
)
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.storage.local import filesystem_for, local_path

SCHEMA_VERSION = 1
NOT_READ_STATUS = 1
LARGEST_PID = 1 << 22
TICKING_SECS = 5.0
"""A session's monitor, which needs the interpreter's lock, ticks once a second."""
READ_SECS = 5.0
"""How long a logdir may take to answer: it may be what hangs."""
SLACK_SECS = 60.0
"""By how much clocks of machines may differ. A heartbeat from before the training began is of an earlier one."""


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
    epilog="\b\nExamples:\n  tb-supervisor stacks 4711\n  tb-supervisor stacks /runs/mnist",
)
@logdirs("The same as LOGDIR. Repeatable.", metavar="PID|LOGDIR")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def stacks(context: click.Context, logdirs: tuple[str, ...], as_json: bool) -> None:
    """Show the Python stacks of the process PID, or of the sessions that train in LOGDIR or below it on this machine,
    and of programs without a session that `tb-supervisor run` has started for it.

    Of a training in several processes it names the one that keeps the others waiting, and shows those at one place as a
    group; of processes on other machines it shows what they have written into their heartbeat files.

    Reads them from outside with py-spy, without stopping the process: also where native code blocks the interpreter.
    Without py-spy, or without the permission, shows what the session itself wrote last, and what the kernel says.

    Exit status: 0 if there are stacks of each process; 1 if not; 2 if there is no such process.
    """
    require_system("stacks", "linux", "darwin")
    targets = [path for given in logdirs for path in expanded(given)]
    found = {pid: page for target in targets for pid, page in _processes(target)}
    with progress_bar(TextColumn("reading stacks"), TimeElapsedColumn()):
        seen = [_read(pid, page) for pid, page in found.items()]
    trainings = _trainings(seen)
    if as_json:
        click.echo(json.dumps(_object(seen, trainings), indent=2))
    else:
        output = Output(highlight=False)
        shown = {each.pid: list(_lines(each)) for each in seen}
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
    return _object(seen, _trainings(seen))


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
    owner: int | None = None
    try:
        chief = read_chief(target)
        local = local_path(target)
        owner = None if chief is None or local is None else os.stat(chief_path(local)).st_uid
    except (OSError, ValueError):
        chief = None
    if chief is None or chief.ended is not None or not is_running(chief.pid):
        launched = _launched_here(logdir.path)
        if launched:
            return [(pid, next((page for page in pages if page.pid == pid), None)) for pid in launched]
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
    if not may_be_of(chief.pid, owner):
        raise WrongInput(
            f"The process {chief.pid}, which the heartbeat file in {target} names, is not of that file's owner. Give "
            "its number."
        )
    # Of another user, or in a directory that only the session knows.
    return [(chief.pid, None if chief.page is None else page_of_session(chief.page, chief.session))]


def _launched_here(logdir: str) -> list[int]:
    """Return the programs that ``tb-supervisor run`` has started for the runs of a logdir, and that run here."""
    found = []
    for watched in LogdirWatch(logdir).refresh().runs.values():
        launch = watched.run.launches[-1] if watched.run.launches else None
        if launch is None or launch.ended_at is not None or launch.host != socket.gethostname():
            continue
        since = None if launch.pid is None else started_at(launch.pid)
        is_it = since is not None and launch.started_at is not None and abs(since - launch.started_at) < SLACK_SECS
        if launch.pid is not None and is_it and is_running(launch.pid) and may_be_of(launch.pid, watched.owner):
            found.append(launch.pid)
    return found


def _is_below(path: str, directory: str) -> bool:
    name = os.path.abspath(local_path(path) or path)
    return name == directory or name.startswith(directory.rstrip("/") + "/")


@dataclass(frozen=True, kw_only=True)
class SeenRank:
    """One process of a training in several."""

    rank: Rank
    """Its place is where it is by its own account, before `_placed`."""
    pid: int
    host: str | None
    """None: this machine."""
    source: str | None
    """``py-spy``, ``memory``, ``record``: its liveness file; None: there are no stacks."""
    main: tuple[str, ...]
    """Frames of its main thread, outermost first; empty where they are not known."""
    said: str = ""
    """How it is, for people; of one on another machine."""


@dataclass(frozen=True, kw_only=True)
class SeenTraining:
    """A training in several processes."""

    logdir: str
    ranks: tuple[SeenRank, ...]
    verdict: Verdict | None
    """Its groups; None if no place is known."""

    @property
    def groups(self) -> tuple[RankGroup, ...]:
        """The ranks by their places, those that keep the others waiting first; empty if no place is known."""
        return () if self.verdict is None else (*self.verdict.culprits, *self.verdict.others)

    @property
    def text(self) -> str | None:
        """Which process keeps the others waiting; None while all of them make progress."""
        is_late = any(each.rank.unresponsive is not None or each.rank.is_late for each in self.ranks)
        return self.verdict.text if self.verdict is not None and is_late else None


def _trainings(seen: Sequence[ProcessStacks]) -> list[SeenTraining]:
    """Return the trainings in several processes, with those of them that run elsewhere or have ended."""
    by_logdir: dict[str, list[tuple[PageReading, ProcessStacks]]] = {}
    for each in seen:
        if each.page is not None and each.page.logdir is not None:
            by_logdir.setdefault(each.page.logdir, []).append((each.page, each))
    found = []
    for logdir, members in by_logdir.items():
        records = task_records(logdir)
        alone = {record.session: record.hang_timeout_secs for record in records}
        names = _names_of([page.session for page, _ in members], records)
        here = [
            SeenRank(
                rank=Rank(
                    name=names[page.session],
                    phase=page.phase,
                    step=page.step,
                    is_late=each.is_late(alone.get(page.session)),
                ),
                pid=each.pid,
                host=None,
                source=each.source,
                main=tuple(each.stacks.get(MAIN_THREAD, ())),
            )
            for page, each in members
        ]
        began_at = min(page.started_at for page, _ in members)
        all_ranks = _placed([*here, *_others_of(records, names, began_at, time.time())])
        if len(all_ranks) > 1:
            verdict = verdict_of(each.rank for each in all_ranks)
            found.append(SeenTraining(logdir=logdir, ranks=all_ranks, verdict=verdict))
    return found


def _of_training(training: SeenTraining, shown: Mapping[int, Sequence[Text]]) -> Iterator[Text]:
    """Yield the verdict, and each group: the stacks of its first process, and a line for each other one."""
    if training.text is not None:
        yield Text(printable(training.text), style="bold red")
    by_name = {each.rank.name: each for each in training.ranks}
    for group in training.groups:
        members = [by_name[name] for name in group.ranks]
        many = f" ({len(members)} processes)" if len(members) > 1 else ""
        yield Text(printable(f"{named(group.ranks)}{many}{_place(group)}:"), style="bold")
        first, *others = sorted(members, key=lambda rank: rank.host is not None)
        yield from _of_rank(first, shown, whole=True)
        for rank in others:
            yield from _of_rank(rank, shown, whole=False)
    for rank in training.ranks if training.verdict is None else ():
        yield Text(printable(f"{named([rank.rank.name])}:"), style="bold")
        yield from _of_rank(rank, shown, whole=True)


def _place(group: RankGroup) -> str:
    where = "" if group.location is None else f" at {group.location}"
    return f"{where}, in {group.waits_in}" if group.waits_in else where


def _of_rank(rank: SeenRank, shown: Mapping[int, Sequence[Text]], *, whole: bool) -> Iterator[Text]:
    if rank.host is None and rank.pid in shown:
        lines = shown[rank.pid]
        yield from lines if whole else [Text(f"{lines[0].plain}: at the same place")]
        return
    where = "on this machine" if rank.host is None else f"on {rank.host}"
    step = "step unknown" if rank.rank.step is None else f"step {rank.rank.step}"
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


def _lines(seen: ProcessStacks) -> Iterator[Text]:
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
        yield Text(printable(f"  {thread}" if state is None else f"  {thread}: {state.text}"))
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


def _object(seen: Sequence[ProcessStacks], trainings: Sequence[SeenTraining]) -> dict[str, Any]:
    return {"v": SCHEMA_VERSION, "processes": list(map(_process, seen)), "trainings": list(map(_training, trainings))}


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
            {"name": each.rank.name, "step": each.rank.step, "pid": each.pid, "host": each.host, "source": each.source}
            for each in training.ranks
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


# The processes of a training in several. Those of other machines are known by their liveness files.


def task_records(logdir: str) -> tuple[LivenessRecord, ...]:
    """Return what the processes other than the chief have written; without those that cannot be read, and nothing
    where the logdir does not answer in time.

    Args:
        logdir: the run's directory.
    """
    found: list[LivenessRecord] = []

    def read() -> None:
        with suppress(OSError, ImportError, ValueError):
            filesystem, directory = filesystem_for(os.path.join(logdir, LIVENESS_DIRECTORY))
            names = files_of_others(filesystem.list_names(directory))
            for name in names[:MAX_TASKS]:
                with suppress(OSError, ValueError):
                    found.append(read_record(filesystem, os.path.join(directory, name)))

    thread = threading.Thread(target=read, name="read heartbeat files", daemon=True)
    thread.start()
    thread.join(READ_SECS)
    return tuple(found)


def _names_of(sessions: Iterable[str], records: Sequence[LivenessRecord]) -> Mapping[str, str]:
    """Return the name of each session's process: the one that keeps no heartbeat file is the chief, or rank 0.

    Args:
        sessions: their ids.
        records: the heartbeat files of the run.
    """
    tasks = {record.session: record.task for record in records}
    chief = name_of_chief(record.task for record in records)
    given = list(sessions)
    is_known = sum(session not in tasks for session in given) == 1
    return {session: tasks.get(session) or (chief if is_known else f"session {session}") for session in given}


def _others_of(
    records: Iterable[LivenessRecord], here: Mapping[str, str], began_at: float, now: float
) -> list[SeenRank]:
    """Return the processes of a training that are not among those seen here: on another machine, or ended.

    Args:
        records: the heartbeat files of the run.
        here: the sessions of those that are seen here, with their names.
        began_at: when the training began.
        now: the present wall time.
    """
    machine, named = this_machine(), set(here.values())
    found = []
    for record in records:
        if record.task in named or record.written_at < began_at - SLACK_SECS or has_ended_well(record):
            continue
        if record.phase == "serving":  # no process waits for a parameter server
            continue
        unresponsive: Unresponsive | None = "failed" if record.ended is not None else None
        if is_gone(record, machine):
            unresponsive = "silent"
        silent_secs = max(0.0, now - record.written_at)
        what = "has failed" if unresponsive == "failed" else "is gone" if unresponsive else f"phase {record.phase}"
        found.append(
            SeenRank(
                rank=Rank(
                    name=record.task,
                    place=record.place,
                    phase=record.phase,
                    step=record.step,
                    unresponsive=unresponsive,
                    silent_secs=silent_secs if unresponsive == "silent" else None,
                    is_late=record.stalled or record.place is not None,
                ),
                pid=record.pid,
                host=None if record.machine == machine else record.host,
                source=None if record.place is None or unresponsive else "record",
                main=() if record.place is None or unresponsive else record.place.frames,
                said=f"{what}, written {duration(silent_secs)} ago, by its clock",
            )
        )
    return found


def _placed(seen: Sequence[SeenRank]) -> tuple[SeenRank, ...]:
    """Return the processes with their places. py-spy and Python itself give functions different names: with frames of
    both, two stacks are at one place if the program's line and the operation are the same."""
    is_one_kind = len({each.source for each in seen if each.main}) < 2

    def place(each: SeenRank) -> Place | None:
        if not each.main or (is_one_kind and each.source == "record"):
            return each.rank.place if each.main else None
        found = place_of(each.main)
        return found if is_one_kind else replace(found, digest=f"{found.location} {found.waits_in}")

    return tuple(replace(each, rank=replace(each.rank, place=place(each))) for each in seen)

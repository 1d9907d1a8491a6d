"""Why a launch ended: its `Cause`, and what two failures have in common, from the end of its standard error."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import replace

from supervisor_core.process.stacks import location, user_line
from supervisor_core.restarter.policy import AGAIN_STATUS, Cause, ChildEnd, EndedLaunch, Failure
from supervisor_core.run.fold.first_error import has_lost_rank, killed_worker

_PREFIX = re.compile(r"^\[rank(?P<rank>\d+)\]:\s?")
"""Written before each line of a traceback by PyTorch's distributed package."""
_TORCHRUNS = re.compile(
    r"\n[ \t]+rank[ \t]+: (?P<rank>\d+) \(local_rank: \d+\)\n[ \t]+exitcode[ \t]+: (?P<status>-?\d+) "
)
"""In the table of ranks that torchrun prints when one of them has failed."""
_LIGHTNINGS = re.compile(r"\[rank: (?P<rank>\d+)\] Child process with PID \d+ terminated with code (?P<status>-?\d+)\.")
"""Printed by Lightning's launcher, in rank 0, before it kills the other ranks and itself because one has ended."""
_BEGIN = "Traceback (most recent call last):"
_THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):")
_FRAME = re.compile(r'\s+File "(?P<file>.+)", line (?P<line>\d+)(, in (?P<function>.+)| in (?P<other>.+))?$')
_ERROR = re.compile(r"(?P<type>[A-Za-z_][\w.]{0,200})(:|$)")
_IN_USE, _OWN_SESSION = "LogdirInUseError", "is in use by this very process"


def failure_of(stderr: str, killed_by: int | None, step: int | None) -> Failure | None:
    """Return what identifies a failure: the type of the last exception that was printed, and the innermost line of the
    program itself; of a process killed by a signal the signal's name. Of several ranks the first that has failed by
    itself counts, neither those that have lost it nor the launcher. None of a process that failed without a word.

    Args:
        stderr: the end of what it wrote to standard error.
        killed_by: the signal that killed it; None if none did.
        step: the last step that it reached, where that is known.

    Example:
        >>> text = 'Traceback (most recent call last):\\n  File "/x/train.py", line 8, in step\\nValueError: no\\n'
        >>> str(failure_of(text, None, 5))
        'ValueError at train.py:8 in step'
    """
    printed = stderr.splitlines()
    lines = [_PREFIX.sub("", line) for line in printed]
    if killed_by is None:
        own = _last_error(lines, step)
    else:
        own = Failure(type=signal_name(killed_by), where=_fatal_location(lines), step=step)
        if killed_by != signal.SIGKILL:  # by which Lightning's launcher ends its own process
            return own
    return _failure_of_rank(printed, own, step)


def has_lost_another(stderr: str) -> bool:
    """Say whether a process, or torchrun's ranks, failed because they lost a rank that was not theirs.

    Args:
        stderr: the end of what it wrote to standard error.
    """
    printed = stderr.splitlines()
    statuses = [status for _, status in _ranks(printed)]
    if not statuses:
        begins = [number for number, line in enumerate(printed) if _PREFIX.sub("", line).strip() == _BEGIN]
        return bool(begins) and has_lost_rank(printed[-1])
    if any(status < 0 and -status != signal.SIGTERM for status in statuses):
        return False
    return all(is_lost for _, is_lost in _errors_of_ranks(printed, None).values())


def _last_error(lines: Sequence[str], step: int | None) -> Failure | None:
    begins = [number for number, line in enumerate(lines) if line.strip() == _BEGIN]
    if begins:
        frames, error = _traceback(lines[begins[-1] + 1 :])
    else:  # a syntax error of the program's own file has no traceback
        frames, error = [], next((line for line in reversed(lines) if line.strip()), "")
        if not error.startswith(("SyntaxError:", "IndentationError:", "TabError:")):
            return None
    found = _ERROR.match(error)
    if found is None:
        return None
    line, worker = user_line(frames), killed_worker(error) and killed_worker("\n".join(lines))
    where = worker or (None if line is None else location(line))
    return Failure(type=found["type"].rpartition(".")[2], where=where, step=step)


def _failure_of_rank(printed: Sequence[str], own: Failure | None, step: int | None) -> Failure | None:
    """Return the failure of the first rank that failed by itself: by an error that is not that of losing another, or
    by a signal. The launchers kill the others then. `own`, the launcher's failure, where there is no such rank."""
    ranks, errors = _ranks(printed), _errors_of_ranks(printed, step)
    found: Failure | None = None
    for rank, status in ranks:
        failure, is_lost = errors.get(rank, (None, True))
        if not is_lost:
            found = failure
        elif status < 0 and -status != signal.SIGTERM:  # by which torchrun itself ends the others
            found = Failure(type=signal_name(-status), step=step, rank=rank)
        if found is not None:
            break
    if _table(printed):
        return found or next((failure for failure, _ in errors.values()), own)
    return own if found is None or not any(rank for rank, _ in ranks) else found


def _ranks(printed: Sequence[str]) -> list[tuple[int, int]]:
    """Return the ranks that have failed, each with its status: in the order in which torchrun has seen them end;
    without its table in that in which they, or Lightning's launcher of one of them, have printed it."""
    if found := _table(printed):
        return found
    statuses: dict[int, int] = {}
    for line in printed:
        if named := _LIGHTNINGS.search(line):
            statuses.setdefault(int(named["rank"]), int(named["status"]))
        elif prefix := _PREFIX.match(line):
            statuses.setdefault(int(prefix["rank"]), 1)
    return list(statuses.items())


def _table(printed: Sequence[str]) -> list[tuple[int, int]]:
    found = [(int(found["rank"]), int(found["status"])) for found in _TORCHRUNS.finditer("\n".join(printed))]
    return found[::-1]  # torchrun writes the first last


def _errors_of_ranks(printed: Sequence[str], step: int | None) -> dict[int, tuple[Failure, bool]]:
    """Return the error of each rank that printed one, and whether it is that of losing another rank."""
    lines: dict[int, list[str]] = {}
    for line in printed:
        if (prefix := _PREFIX.match(line)) is not None:
            lines.setdefault(int(prefix["rank"]), []).append(line[prefix.end() :])
    failures = {}
    for rank, _ in _ranks(printed):
        own = lines.get(rank, [])
        if (failure := _last_error(own, step)) is not None:
            failures[rank] = (replace(failure, rank=rank), has_lost_rank(own[-1]))
    return failures


def _traceback(lines: Sequence[str]) -> tuple[list[str], str]:
    """Return the frames of a traceback, outermost first, and the line with the error."""
    frames = []
    for line in lines:
        if frame := _FRAME.match(line):
            frames.append(f"{frame['file']}:{frame['line']} {frame['function'] or '<module>'}")
        elif line and not line[0].isspace():
            return frames, line
    return frames, ""


def _fatal_location(lines: Sequence[str]) -> str | None:
    """Return the innermost line of the program in what Python's fault handler printed of the current thread."""
    begins = [number for number, line in enumerate(lines) if _THREAD.match(line)]
    if not begins:
        return None
    frames = []
    for line in lines[begins[-1] + 1 :]:
        if (frame := _FRAME.match(line)) is None:
            break
        frames.append(f"{frame['file']}:{frame['line']} {frame['other'] or frame['function'] or '<module>'}")
    found = user_line(frames[::-1])
    return None if found is None else location(found)


def signal_name(number: int) -> str:
    """Return the name of a signal; its number where it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def cause_of(launch: EndedLaunch, *, asked_to_stop: bool, is_hung: bool, never: Sequence[int]) -> Cause:
    """Return why a launch ended.

    Args:
        launch: the launch, with how it ended and what identifies its failure.
        asked_to_stop: whether the restarter had passed a stop signal on to it.
        is_hung: whether the restarter ended it because it hung.
        never: exit statuses after which there is no restart.
    """
    end = launch.end
    if asked_to_stop:
        return "stopped"
    if end.not_started is not None:
        return "not_started"
    if is_hung:
        return "hang"
    if end.exit_code == AGAIN_STATUS:
        return "requested"
    if end.exit_code in never:
        return "refused"
    if is_sigterm(end):
        return "preempted"
    if end.exit_code == 0:
        return "preempted" if launch.was_stopped else "completed"
    if end.oom_kills:
        return "oom"
    if launch.failure is not None and launch.failure.type == _IN_USE and _OWN_SESSION not in end.stderr:
        return "in_use"  # else the program opens it twice
    is_of_rank = launch.failure is not None and launch.failure.rank is not None  # for which the launcher was killed
    return "error" if end.signal is None or is_of_rank else "signal"


def is_sigterm(end: ChildEnd) -> bool:
    """Say whether a process was ended by SIGTERM, or says so as a shell does."""
    return end.signal == signal.SIGTERM or end.exit_code == 128 + signal.SIGTERM

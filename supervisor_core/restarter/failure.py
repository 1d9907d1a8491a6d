"""Why a launch ended: its `Cause`, and what two failures have in common, from the end of its standard error."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import replace

from supervisor_core.process.stacks import location, user_line
from supervisor_core.restarter.policy import AGAIN_STATUS, Cause, ChildEnd, EndedLaunch, Failure

_PREFIX = re.compile(r"^\[rank(?P<rank>\d+)\]:\s?")
"""Written before each line of a traceback by PyTorch's distributed package."""
_TORCHRUN = "ChildFailedError"
"""Raised by torchrun when one of its ranks has failed; it prints a table of them."""
_RANK = re.compile(r"\n\s+rank\s+: (?P<rank>\d+) \(local_rank: \d+\)\n\s+exitcode\s+: (?P<status>-?\d+) ")
_LOST = re.compile(r"RanksError|DistBackendError|DistNetworkError|Connection (closed|reset)|Broken pipe")
"""In the error of a rank that has lost another one."""
_BEGIN = "Traceback (most recent call last):"
_THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):")
_FRAME = re.compile(r'\s+File "(?P<file>.+)", line (?P<line>\d+)(, in (?P<function>.+)| in (?P<other>.+))?$')
_ERROR = re.compile(r"(?P<type>[A-Za-z_][\w.]{0,200})(:|$)")
_IN_USE = "LogdirInUseError"


def failure_of(stderr: bytes, killed_by: int | None, step: int | None) -> Failure | None:
    """Return what identifies a failure: the type of the last exception that was printed, and the innermost line of the
    program itself; of a process killed by a signal the signal's name. None of a process that failed without a word.

    Args:
        stderr: the end of what it wrote to standard error.
        killed_by: the signal that killed it; None if none did.
        step: the last step that it reached, where that is known.

    Example:
        >>> text = b'Traceback (most recent call last):\\n  File "/x/train.py", line 8, in step\\nValueError: no\\n'
        >>> str(failure_of(text, None, 5))
        'ValueError at train.py:8 in step'
    """
    printed = stderr.decode("utf-8", "replace").splitlines()
    lines = [_PREFIX.sub("", line) for line in printed]
    if killed_by is not None:
        return Failure(type=signal_name(killed_by), where=_fatal_location(lines), step=step)
    found = _last_error(lines, step)
    return _failure_of_rank(printed, step) or found if found is not None and found.type == _TORCHRUN else found


def has_lost_another(stderr: bytes) -> bool:
    """Say whether a process, or torchrun's ranks, failed because they lost a rank that was not theirs.

    Args:
        stderr: the end of what it wrote to standard error.
    """
    printed = stderr.decode("utf-8", "replace").splitlines()
    statuses = [status for _, status in _ranks(printed)]
    if not statuses:
        begins = [number for number, line in enumerate(printed) if _PREFIX.sub("", line).strip() == _BEGIN]
        return bool(begins) and _LOST.search(printed[-1]) is not None
    if any(status < 0 and -status != signal.SIGTERM for status in statuses):
        return False
    return all(is_lost for _, is_lost in _errors_of_ranks(printed, None))


def _last_error(lines: Sequence[str], step: int | None) -> Failure | None:
    """Return the last error that was printed."""
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
    line = user_line(frames)
    return Failure(type=found["type"].rpartition(".")[2], where=None if line is None else location(line), step=step)


def _failure_of_rank(printed: Sequence[str], step: int | None) -> Failure | None:
    """Return the failure of the rank that ended torchrun: one that a signal killed, or the first with an error of its
    own. The others fail when they lose it, often in the same moment. None where torchrun's table is not there."""
    for rank, status in _ranks(printed):
        if status < 0 and -status != signal.SIGTERM:  # by which torchrun itself ends the others
            return Failure(type=signal_name(-status), step=step, rank=rank)
    failures = _errors_of_ranks(printed, step)
    return next((failure for failure, is_lost in failures if not is_lost), failures[0][0] if failures else None)


def _ranks(printed: Sequence[str]) -> list[tuple[int, int]]:
    """Return the ranks in torchrun's table, each with its status, in the order in which it has seen them end."""
    found = [(int(found["rank"]), int(found["status"])) for found in _RANK.finditer("\n".join(printed))]
    return found[::-1]  # it writes the first last


def _errors_of_ranks(printed: Sequence[str], step: int | None) -> list[tuple[Failure, bool]]:
    """Return the error of each rank that printed one, and whether it is that of losing another rank."""
    failures = []
    for rank, _ in _ranks(printed):
        matches = [(line, _PREFIX.match(line)) for line in printed]
        own = [line[match.end() :] for line, match in matches if match is not None and int(match["rank"]) == rank]
        if (failure := _last_error(own, step)) is not None:
            failures.append((replace(failure, rank=rank), _LOST.search(own[-1]) is not None))
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
    if launch.failure is not None and launch.failure.type == _IN_USE:
        return "in_use"
    return "error" if end.signal is None else "signal"


def is_sigterm(end: ChildEnd) -> bool:
    """Say whether a process was ended by SIGTERM, or says so as a shell does."""
    return end.signal == signal.SIGTERM or end.exit_code == 128 + signal.SIGTERM

"""`ProgramLaunch`: one run of the program by a restarter outside it, and how it ended, in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from supervisor_core.events.telemetry import LaunchRecord
from supervisor_core.run.model.words import in_a_line

WHERE = re.compile(r" (at|on rank|on node) ")
"""Before the place in the error of a launch, which begins with its type."""
SLACK_SECS = 2.0
"""A session's last event may have a later time than the launch's end by this much."""
_MOST = 100
"""Characters of what a program printed: the place, and what followed, are in the same line."""
FAILED = ("error", "refused")
"""Causes by which the program itself says that it failed."""
_RANK = re.compile(r"\[rank(?P<rank>\d+)\]:\s?")
"""Written before each line of a traceback by PyTorch's distributed package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramLaunch(LaunchRecord):
    """One run of the program by a restarter outside it, ``tb-supervisor run``: its latest record."""

    ended_at: float | None = None
    """None while it runs, or if its end was not recorded."""
    seen_at: float | None = None
    """When its restarter last saw that it runs. None after its end, and of a program with a progress page."""

    @property
    def restarter(self) -> str:
        """The id of the restarter that has started it: of all its launches the same."""
        return self.launch.rpartition("-")[0]

    @property
    def text(self) -> str | None:
        """How it ended and what followed, in one line; None while it runs."""
        return None if self.ended_at is None else launch_text(self)


def launch_end(launch: ProgramLaunch) -> str:
    """Return how a launch ended, in a few words."""
    what = _CAUSES.get(launch.cause or "") or launch.signal or launch.error or launch.cause or "ended"
    if launch.cause == "hang" and launch.error:
        location = launch.error.partition(" at ")[2]
        where = f", {location}" if " at " in location else f" at {location}"  # with the thread, or without
        what = f"hung{where if location else ''}"
    elif launch.cause in FAILED:
        error = launch_error(launch)
        what = what if error is None else error if launch.cause == "error" else f"{what}: {error}"
    elif launch.cause == "signal" and launch.signal:
        what = f"killed by {launch.signal}{', core dumped' if launch.core_dumped else ''}"
    return what


def launch_error(launch: ProgramLaunch) -> str | None:
    """Return the error of a launch with its text, as the program has printed it: type, text and place. Of a program
    that printed no exception, as it is in another language, its status and its last line. None where nothing is known.

    Example:
        >>> printed = {"error": "KeyError at a.py:3 in f", "stderr": "KeyError: 'x'"}
        >>> launch_error(ProgramLaunch(launch="a", state="end", **printed))
        "KeyError: 'x' at a.py:3 in f"
    """
    lines = [line for line in (launch.stderr or "").splitlines() if line.strip()]
    if launch.error is None:
        is_told = bool(lines) and launch.exit_code is not None and launch.cause in FAILED
        return f"status {launch.exit_code}; it printed last: {in_a_line(lines[-1], _MOST)}" if is_told else None
    place = WHERE.search(launch.error)
    kind, where = (
        (launch.error, "") if place is None else (launch.error[: place.start()], launch.error[place.start() :])
    )
    named = re.search(r" on rank (\d+)", where)
    for line in reversed(lines):
        rank = _RANK.match(line)
        if rank is not None and named is not None and rank["rank"] != named[1]:
            continue  # of another rank
        printed, colon, text = line[rank.end() if rank else 0 :].partition(": ")
        if printed.rstrip().rpartition(".")[2] == kind:  # the last one that was printed: it may have no text
            return f"{kind}: {in_a_line(text, _MOST)}{where}" if colon else launch.error
    return launch.error


def launch_text(launch: ProgramLaunch) -> str:
    """Return how a launch ended and what followed, in one line for people.

    Example:
        >>> launch_text(ProgramLaunch(launch="a", state="end", attempt=4, cause="oom", action="restart"))
        'restarted by tb-supervisor: OOM-killed; attempt 4; next at once'
    """
    what = launch_end(launch)
    parts = [what, f"attempt {launch.attempt}"]
    if launch.action == "restart":
        parts.append(f"next in {launch.backoff_secs:.0f} s" if launch.backoff_secs >= 0.5 else "next at once")
        return f"restarted by tb-supervisor: {'; '.join(parts)}"
    if launch.reason and launch.reason != what:
        parts.append(launch.reason)
    how = "given up" if launch.cause in ("error", "signal", "oom", "hang", "not_started", "lost") else "ended"
    return f"{how} by tb-supervisor: {'; '.join(parts)}"


_CAUSES = {
    "completed": "completed",
    "oom": "OOM-killed",
    "hang": "hung",
    "preempted": "preempted",
    "requested": "asked to be restarted",
    "refused": "asked not to be restarted",
    "in_use": "logdir in use",
    "not_started": "the program cannot be run",
    "stopped": "asked to stop",
    "lost": "lost with its restarter",
}
LAUNCH_CAUSES = frozenset(("error", "signal", *_CAUSES))
"""Every cause that a restarter records."""


def final_launch(launches: Sequence[ProgramLaunch]) -> ProgramLaunch | None:
    """Return the newest launch, if the restarter starts the program no more; None otherwise, and where it was another
    process that had the logdir: that one may train."""
    newest = launches[-1] if launches else None
    is_over = newest is not None and newest.ended_at is not None and newest.action == "end"
    return newest if is_over and newest is not None and newest.cause != "in_use" else None

"""`ProgramLaunch`: one run of the program by a restarter outside it, and how it ended, in words."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor_core.events.telemetry import LaunchRecord


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
    if launch.cause in ("error", "hang") and launch.error:
        location = launch.error.partition(" at ")[2]
        where = f", {location}" if " at " in location else f" at {location}"  # with the thread, or without
        what = launch.error if launch.cause == "error" else f"hung{where if location else ''}"
    elif launch.cause == "signal" and launch.signal:
        what = f"killed by {launch.signal}{', core dumped' if launch.core_dumped else ''}"
    return what


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

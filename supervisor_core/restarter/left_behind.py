"""`BackgroundJob`: whether processes that a program with status 0 has left running are the job, or what is left of it.

After a training they are helpers, which end with it. Where no training has been seen (``start.sh`` has started one in
the background, which still imports its libraries), or one runs in them, they are the job, and it goes on.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from supervisor_core.process.identity import is_running
from supervisor_core.process.progress_page import PageReading
from supervisor_core.restarter.child import LeftBehind
from supervisor_core.restarter.logdir_view import LogdirThread, LogdirView, RunPosition
from supervisor_core.restarter.processes import descendants
from supervisor_core.run.model.words import counted

ANSWER_TICKS = 10
"""For how many seconds the logdir may say whether there was a training."""
MOST_NAMED = 5
"""How many processes a line names."""


@dataclass(eq=False)
class BackgroundJob:
    """See the module's docstring."""

    started_at: float
    """When the launch was started, wall time."""
    before: RunPosition | None
    """How far the run was then; None where unknown."""
    view: LogdirView
    thread: LogdirThread
    """Reads the logdir."""

    def __post_init__(self) -> None:
        self._ticks = 0
        self._is_watched = False
        self._asked_at = -1
        """How many processes had ended when the logdir was last asked."""
        self._recorded: set[int] | None = None
        """The process of its newest session, if that is of this launch; None before the logdir has answered."""

    def judge(
        self, left: LeftBehind, sessions: Collection[PageReading]
    ) -> Literal["goes on", "is done", "failed"] | None:
        """Return a new verdict, asked for once a second; None where there is none.

        Args:
            left: the processes.
            sessions: those that the launch had so far, by their pages.
        """
        if not sessions and self._asked_at < len(left.statuses):  # a short one may have had no page that was seen
            self._asked_at = len(left.statuses)
            self.thread.do(self._read_session, 0.0)
        recorded = self._recorded or set()
        trainings = {page.pid for page in sessions} | recorded
        is_training = any(page.is_running for page in sessions) or any(map(is_running, recorded))
        if trainings and not is_training and left.job_status(trainings):
            return "failed"
        self._ticks += 1
        if self._is_watched or self._ticks == 1:  # what ends by itself right after the program is not worth a word
            return None
        if trainings and not is_training:
            return "is done"
        if is_training or self._recorded is not None or self._ticks > ANSWER_TICKS:
            self._is_watched = True
            return "goes on"
        return None

    def _read_session(self) -> None:
        session = self.view.read_position().session_since(self.started_at, self.before)
        self._recorded = set() if session is None or session.pid is None else {session.pid}


def names_of_left(keeper: int) -> str:
    """Return the processes that a program has left running, for people: ``2 processes: 13 python a.py, 14 tee log``.

    Args:
        keeper: the launch's keeper, whose children they are.
    """
    found = [each for each in descendants(keeper) if each.parent == keeper]
    named = ", ".join(f"{each.pid} {each.command}" for each in found[:MOST_NAMED])
    more = f", and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"{counted(len(found), 'process')}: {named}{more}"

"""The first error among the ranks of a training is why it failed: the others fail because they lose that rank."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import replace

from supervisor_core.run.model.run import Run, Session, WorkerHistory
from supervisor_core.run.model.words import in_a_line, named

_LOST = re.compile(
    r"RanksError|DistBackendError|DistNetworkError|Connection (closed|reset|refused)|Broken pipe|Socket closed"
)


def has_lost_rank(error: str) -> bool:
    """Return whether an error is that of a rank that has lost another one.

    Args:
        error: the error's type and text.

    Example:
        >>> has_lost_rank("RuntimeError: [pair.cc:561] Connection closed by peer"), has_lost_rank("KeyError: 1")
        (True, False)
    """
    return _LOST.search(error) is not None


_WORKER = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? (?P<pid>\d+)(?:, \d+)*\) (?:is killed by signal: (?P<signal>[\w ]+)|exited)"
)
_SIGNALS = {signal.strsignal(each): each.name for each in signal.Signals}


def killed_worker(text: str) -> str | None:
    """Return which worker of a PyTorch loader has ended, and by what, from the text of an error, or a traceback's; None
    of another error. PyTorch raises such an error at any line of the trainer.

    Example:
        >>> killed_worker("RuntimeError: DataLoader worker (pid 14) is killed by signal: Killed. ")
        'DataLoader worker (pid 14) was killed by SIGKILL'
    """
    found = list(_WORKER.finditer(text))
    if not found:
        return None
    first = next((each for each in found if each["signal"]), found[0])
    name = first["signal"] and first["signal"].strip()
    how = "exited unexpectedly" if name is None else f"was killed by {_SIGNALS.get(name, name)}"
    return f"DataLoader worker (pid {first['pid']}) {how}"


def with_first_error(sessions: tuple[Session, ...], workers: Sequence[WorkerHistory]) -> tuple[Session, ...]:
    """Return sessions, the newest one with the error of another rank where its own is that of losing that rank; where
    that rank has no error, since it was killed, with its name. The same object where no rank is known to be the first.

    Args:
        sessions: in order.
        workers: the other processes, as the newest session has reported them, or as their files have them.
    """
    last = sessions[-1] if sessions else None
    if last is None or last.outcome != "error" or last.error is None or not has_lost_rank(last.error):
        return sessions
    here = [worker for worker in workers if worker.session == last.id]
    found = [
        (worker.last_seen_at or 0.0, worker)
        for worker in here
        if worker.state == "failed" and not has_lost_rank(worker.error or "Broken pipe")
    ]
    if found:
        worker = min(found, key=lambda item: item[0])[1]
        chief = "rank 0" if worker.name.startswith("rank:") else "the chief"
        error = f"{in_a_line(worker.error or '')} on {named([worker.name])}; then on {chief}: {last.error}"
    elif (killed := _killed(here)) is not None:
        kind, _, text = last.error.partition(": ")
        error = f"{kind}: lost {named([killed.name])}{_process(killed)}, which was killed or has crashed: {text}"
    else:
        return sessions
    return (*sessions[:-1], replace(last, error=error))


def has_lost_unknown_rank(run: Run) -> bool:
    """Return whether a run's newest session has lost another rank, and what it has seen of the ranks does not say
    which one: it ends at once then, before it has read their files again."""
    last = run.sessions[-1] if run.sessions else None
    has_lost = last is not None and last.outcome == "error" and has_lost_rank(last.error or "")
    return has_lost and with_first_error(run.sessions, run.workers) is run.sessions


def _killed(workers: Sequence[WorkerHistory]) -> WorkerHistory | None:
    """Return the only one that is lost. None where one has ended: it may have been the first, and a launcher kills
    those that are left after a while."""
    lost = [worker for worker in workers if worker.state == "lost"]
    return lost[0] if len(lost) == 1 and all(worker.state != "stopped" for worker in workers) else None


def _process(worker: WorkerHistory) -> str:
    if worker.pid is None:
        return ""
    return f" (process {worker.pid}{'' if worker.host is None else f' on {in_a_line(worker.host)}'})"

"""`Stop`: a stop signal on its way to those processes of a launch that are to act on it, once to each.

The leader need not be the training. A shell that waits for ``python train.py`` dies of SIGTERM, or notes SIGINT and
goes on waiting; its command gets neither. But a training's own children (a data loader's workers) have to live until
it has saved. So the signal goes

    to the leader
    through a shell     to the command in its foreground: until that ends, the shell runs no trap and passes nothing on
    to orphans          what a process has left behind that has ended. If that one had a handler for the signal, it may
                        have passed it on: its orphans get time to end by themselves, see `Stop._orphan_due_at`
    down a pipeline     from its head: ``tee`` must not end before the training that writes to it

What was started after the signal cleans up, as the commands of a trap: it has half of the time. A process that
ignores SIGINT, as a shell makes those in its background do, gets SIGTERM.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Mapping, Sequence

from supervisor_core.restarter.processes import Process, descendants, send_signal

ONE_SIGNAL_SECS = 0.5
"""No process gets a second signal within this time of its first. A session takes a later one for: end at once."""

_Key = tuple[int, int]


class Stop:
    """One stop signal, to be passed on again whenever a process has ended.

    Args:
        signum: SIGTERM or SIGINT.
        secs: how long the stop may take.
        came_from_others: whether somebody else has sent it to the leader, and perhaps to other processes.
    """

    def __init__(self, signum: int, secs: float, *, came_from_others: bool = False) -> None:
        self._signum = signum
        self._half_at = time.monotonic() + secs / 2
        self._came_from_others = came_from_others
        found = descendants()
        by_pid = {each.pid: each for each in found}
        self._parents = {each.key: by_pid[each.parent].key if each.parent in by_pid else None for each in found}
        self._in_front = {each.key for each in found if _is_in_front(each, by_pid.get(each.parent))}
        self._sent: dict[_Key, _Sent] = {}
        self._orphan_since: dict[_Key, float] = {}
        self._reads_until: dict[_Key, float] = {}

    def pass_on(self) -> float:
        """Send the signal to those whose turn it is; return the monotonic time at which to look again."""
        while True:
            now, found = time.monotonic(), {each.pid: each for each in descendants()}
            due_at = {each.pid: self._due_at(each, found, now) for each in found.values() if each.key not in self._sent}
            due = [found[pid] for pid, at in due_at.items() if at <= now]
            ready = self._heads(due, found, now)
            for each in ready:
                self._send(each)
            if not ready:
                waits = [self._reads_until[each.key] for each in due]
                return min((at for at in (*due_at.values(), *waits) if at > now), default=math.inf)

    def _due_at(self, process: Process, found: Mapping[int, Process], now: float) -> float:
        """Return when it is a process's turn; infinity as long as its parent is to end it."""
        parent = found.get(process.parent)
        if parent is not None and not (parent.key in self._sent and _is_in_front(process, parent)):
            return math.inf
        if process.key not in self._parents:
            return self._half_at
        return 0.0 if parent is not None else self._orphan_due_at(process, now)

    def _orphan_due_at(self, process: Process, now: float) -> float:
        """Return when it is the turn of a process whose parent has ended, or of the leader.

        Whether it has got the signal from its parent cannot be seen. If it may have, a second one too soon could cost
        it its last save, and none at all as well. Scripts with a trap mostly pass it on and may end at once, so what
        they leave behind gets it when half of the time is over; of other programs, after `ONE_SIGNAL_SECS`.
        """
        parent = self._parents[process.key]
        sent = None if parent is None or process.key in self._in_front else self._sent.get(parent)
        may_have_it = self._came_from_others or (sent is not None and sent.was_caught)
        if not may_have_it or not process.catches(self._signal_for(process)):  # it would have ended
            return 0.0
        soonest_at = self._orphan_since.setdefault(process.key, now) + ONE_SIGNAL_SECS
        return soonest_at if sent is not None and not sent.is_shell else max(soonest_at, self._half_at)

    def _heads(self, due: Sequence[Process], found: Mapping[int, Process], now: float) -> list[Process]:
        """Return those that do not read from a pipe to which another one that is to end writes. After the end of those
        a reader has time to read the rest, and to end by itself."""
        stopping = [each for each in found.values() if each.key in self._sent]
        outputs = [(each, (each.pipe(1), each.pipe(2))) for each in (*stopping, *due)]
        heads, readers, is_awaiting = [], 0, False
        for each in due:
            pipe = each.pipe(0)
            writers = [other for other, pipes in outputs if pipe is not None and pipe in pipes and other is not each]
            if writers:
                readers += 1
                is_awaiting |= any(writer.key in self._sent for writer in writers)
                self._reads_until[each.key] = now + ONE_SIGNAL_SECS
            elif self._reads_until.get(each.key, 0.0) <= now:
                heads.append(each)
        return list(due) if readers == len(due) and not is_awaiting else heads  # a ring of pipes has no head

    def _send(self, process: Process) -> None:
        signum = self._signal_for(process)
        self._sent[process.key] = _Sent(process.catches(signum), process.is_shell)
        send_signal(process, signum)

    def _signal_for(self, process: Process) -> int:
        return signal.SIGTERM if process.ignores(self._signum) else self._signum


def _is_in_front(process: Process, parent: Process | None) -> bool:
    """Say whether a process is the foreground command of a shell."""
    if parent is None or not parent.is_shell or process.group != parent.group:
        return False
    return not process.ignores(signal.SIGQUIT)  # as a shell without job control has its background do


class _Sent:
    """What a process was when it got the signal."""

    __slots__ = ("is_shell", "was_caught")

    def __init__(self, was_caught: bool, is_shell: bool) -> None:
        self.was_caught, self.is_shell = was_caught, is_shell

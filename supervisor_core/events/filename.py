"""The name of an events file: one that nothing else has taken or can take.

    events.out.tfevents.<seconds>.<host>.<pid>.<counter><suffix>

``<seconds>`` are whole seconds since the Unix epoch, at least ten digits; ``<counter>`` counts the files of the
process, at least four digits. TensorBoard reads the files of a run in the order of their names, and never returns to an
earlier one: hence the padding, without which file 10 of one second would come before its file 9.

The counter tells files of one process apart, the pid those of a forked child and of other processes of the host, the
host the rest. What remains (two containers of one name and pid in one second) the exclusive creation decides.
"""

from __future__ import annotations

import itertools
import os

_counter = itertools.count()


def events_filename(now: float, suffix: str = "") -> str:
    """Return the next file name of this process, for a file begun at ``now`` (seconds since the epoch)."""
    host = os.uname().nodename.replace(os.sep, "_") or "localhost"
    return f"events.out.tfevents.{max(0, int(now)):010d}.{host}.{os.getpid()}.{next(_counter):04d}{suffix}"

"""Another process of a training's cluster, as its chief sees it: a heartbeat. Run as a program.

It says ``beating`` once it beats, and ends in good order when its standard input is closed.
"""

from __future__ import annotations

import sys
import uuid

from supervisor_core.events.telemetry import StopRecord
from supervisor_core.supervision.beacon import Beacon


def main(logdir: str, task: str) -> None:
    """Beat until told to end."""
    session = uuid.uuid4().hex[:16]
    beacon = Beacon(logdir, task, session, interval_secs=1.0, phase="training")
    beacon.start()
    print("beating", flush=True)
    sys.stdin.read()
    beacon.write(StopRecord(session=session, reason="completed"))
    beacon.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Another process of a training's cluster, as its chief sees it: a heartbeat. Run as a program.

It says ``beating`` once it beats, and ends with a stop record when its standard input is closed.
"""

from __future__ import annotations

import sys
import uuid

from supervisor_core.engine.liveness_writer import LivenessWriter
from supervisor_core.events.telemetry import StopRecord


def main(logdir: str, task: str) -> None:
    """Beat until standard input is closed."""
    session = uuid.uuid4().hex[:16]
    heartbeats = LivenessWriter(logdir, task, session, interval_secs=1.0, phase="training")
    heartbeats.start()
    print("beating", flush=True)
    sys.stdin.read()
    heartbeats.write(StopRecord(session=session, reason="completed"))
    heartbeats.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A training with every default, which reads one command per line from its standard input. Run as a program.

    raise           end by an error
    nan             its loss is not finite from now on
    hang            no step ends any more

It says ``ready`` once it is in its phase. As ``worker:1`` it is another process of the training's cluster: a heartbeat.
"""

from __future__ import annotations

import sys
import threading
import uuid

from supervisor_core.base.clock import SYSTEM_CLOCK
from supervisor_core.base.options import Options
from supervisor_core.engine.liveness_writer import LivenessWriter
from supervisor_core.engine.recorder import StopInfo
from supervisor_core.engine.service import ServiceRegistry
from supervisor_core.engine.session_recorder import SessionRecorder
from supervisor_core.events.file_writer import FileWriter


def main(logdir: str, name: str, address: str, phase: str) -> None:
    """Train, and obey each command."""
    options = Options(run_name=name, metrics_address=address or None)
    hanging, failing = threading.Event(), threading.Event()
    with FileWriter(logdir) as writer:
        run = SessionRecorder(
            logdir=logdir, facade="SessionRecorder", options=options, writer=writer, services=ServiceRegistry()
        )
        run.begin()
        if phase != "restoring":
            run.ready()
        run.loss_read(True)
        run.enter(phase)
        threading.Thread(target=obey, args=(run, hanging, failing), daemon=True).start()
        print("ready", flush=True)
        while not failing.wait(0.05):
            now = SYSTEM_CLOCK.monotonic()
            if phase == "training" and not hanging.is_set():
                run.progress.run_ended(True, now - 0.05, now)
        run.end(StopInfo(reason="error", error="ValueError: scripted"))
        run.close()


def obey(run: SessionRecorder, hanging: threading.Event, failing: threading.Event) -> None:
    """Read what to do, line by line."""
    for line in sys.stdin:
        command = line.strip()
        if command == "raise":
            failing.set()
        elif command == "nan":
            run.loss_read(False)
        elif command == "hang":
            hanging.set()


def work(logdir: str, task: str) -> None:
    """Beat until killed."""
    heartbeats = LivenessWriter(
        logdir, task, uuid.uuid4().hex[:16], interval_secs=Options().heartbeat_secs, phase="training"
    )
    heartbeats.start()
    print("ready", flush=True)
    sys.stdin.read()
    heartbeats.close()


if __name__ == "__main__":
    (work if sys.argv[2].startswith("worker:") else main)(*sys.argv[1:])

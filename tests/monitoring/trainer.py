"""A training that reads one command per line from its standard input. Run as a program.

    go      steps as fast as they come (this is how it begins)
    hold    hang inside the next step
    step    let one step through, and hang inside the one after it
    stop    end as planned

It says ``training`` once it trains, and ``stopped`` once it has ended.
"""

from __future__ import annotations

import sys
import threading

from supervisor_core.base.clock import SYSTEM_CLOCK
from supervisor_core.base.options import Options
from supervisor_core.engine.recorder import StopInfo
from supervisor_core.engine.service import ServiceRegistry
from supervisor_core.engine.session_recorder import SessionRecorder
from supervisor_core.events.file_writer import FileWriter


def main(logdir: str, address: str, budget_secs: str) -> None:
    """Train until the command ``stop``."""
    options = Options(
        run_name="digits",
        metrics_address=address or None,
        heartbeat_secs=1.0,
        hang_timeout_secs={"training": float(budget_secs)},
    )
    steps, stopping = threading.Semaphore(0), threading.Event()
    free = threading.Event()
    free.set()
    threading.Thread(target=obey, args=(steps, free, stopping), daemon=True).start()
    with FileWriter(logdir) as writer:
        run = SessionRecorder(
            logdir=logdir, facade="SessionRecorder", options=options, writer=writer, services=ServiceRegistry()
        )
        run.begin()
        run.ready()
        run.enter("training")
        print("training", flush=True)
        while not stopping.is_set():
            started = SYSTEM_CLOCK.monotonic()
            if free.is_set():
                stopping.wait(0.02)
            else:
                steps.acquire()
            run.progress.run_ended(True, started, SYSTEM_CLOCK.monotonic())
        run.end(StopInfo(reason="completed"))
        run.close()
    print("stopped", flush=True)


def obey(steps: threading.Semaphore, free: threading.Event, stopping: threading.Event) -> None:
    """Read what to do, line by line."""
    for line in sys.stdin:
        command = line.strip()
        if command == "hold":
            free.clear()
        elif command in ("go", "stop"):
            free.set()
        if command == "stop":
            stopping.set()
        if command in ("go", "step", "stop"):
            steps.release()


if __name__ == "__main__":
    main(*sys.argv[1:])

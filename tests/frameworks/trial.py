"""One training in a process of its own, forked off the test's, which has imported the framework already."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from supervisor_core.engine import open_sessions


def calls_of(step: Callable[[], object]) -> int:
    """Return how many of the package's own functions one step calls, at the least: in some steps more is due."""
    counts = []
    for _ in range(20):
        count = 0

        def called(frame: FrameType, event: str, argument: object) -> None:
            nonlocal count
            count += event == "call" and frame.f_globals.get("__name__", "").startswith("supervisor_core.")

        sys.setprofile(called)
        try:
            step()
        finally:
            sys.setprofile(None)
        counts.append(count)
    return min(counts)


def trial(directory: Path, body: Callable[[Callable[[str], None]], None]) -> tuple[int, list[str]]:
    """Run ``body`` in a forked process; return its exit status (negative: the signal) and the lines that it said.

    Args:
        directory: where the lines are kept.
        body: is given a function that says one line; each is on disk at once, so a kill loses none.
    """
    path = directory / f"said-{len(list(directory.glob('said-*')))}"
    path.touch()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            body(lambda line: print(line, file=os.fdopen(os.dup(descriptor), "a"), flush=True))
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0
        except BaseException as error:
            sys.last_value = error
            traceback.print_exc()
        finally:
            open_sessions.stop_all()  # as an interpreter does at its end
            os._exit(status)
    _, ended = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(ended), path.read_text().splitlines()

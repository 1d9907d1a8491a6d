"""Counts the files that a SIGTERM passes through, until STOP is written and the logdir's lease is released.

    python scripts/stop_path.py [--calls]

Runs a training of its own, in a plain ``with sv.managed_session()`` loop with its checkpoint service, sends itself a
SIGTERM, and records the calls into this project from the signal's handler until ``sv.stop()`` returns, in three sets:

    all         the calls of all threads
    deciding    those of the main thread, and of the threads that the signal starts
    ending      of these, what is not within a step, the final save or the events writer

Prints the numbers of files and calls of each set, and then the files; with ``--calls`` the functions, too.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import supervisor_core

PACKAGE = f"{Path(supervisor_core.__file__).parent}/"
DECIDING = ("MainThread", "signal-watch", "signal-act")
STEP, SAVE, WRITER = "tf1/session.py", "tf1/checkpoint_manager.py", "events/"


class Calls:
    """Records calls into the project while it is switched on; to be started before the threads that it is to see."""

    def __init__(self) -> None:
        self.is_on = False
        self.sets: dict[str, Counter[CodeType]] = {name: Counter() for name in ("all", "deciding", "ending")}
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if not self.is_on or event != "call" or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        self.sets["all"][frame.f_code] += 1
        if threading.current_thread().name in DECIDING:
            self.sets["deciding"][frame.f_code] += 1
            if not _is_within(frame, (STEP, SAVE, WRITER)):
                self.sets["ending"][frame.f_code] += 1


def _is_within(frame: FrameType | None, places: tuple[str, ...]) -> bool:
    while frame is not None:
        if _file(frame.f_code).startswith(places):
            return True
        frame = frame.f_back
    return False


def _file(code: CodeType) -> str:
    return code.co_filename.removeprefix(PACKAGE)


def train_until_stopped(logdir: str, calls: Calls, *, with_functions: bool) -> None:
    """Train, be stopped by a SIGTERM in the tenth step, print the report, and end as the signal ends the process."""
    import tensorflow as tf

    class Recorded(supervisor_core.Supervisor):
        """Reports when it has stopped."""

        def stop(self, *args: Any, **kwargs: Any) -> None:
            super().stop(*args, **kwargs)
            calls.is_on = False
            report(calls, with_functions=with_functions)

    tf.compat.v1.disable_eager_execution()
    step = tf.compat.v1.train.get_or_create_global_step()
    train_op = tf.compat.v1.assign_add(step, 1)
    sv = Recorded(logdir=logdir, save_summaries_secs=1)
    with sv.managed_session() as sess:
        while not sv.should_stop():
            if sess.run(train_op) == 10:
                calls.is_on = True
                os.kill(os.getpid(), signal.SIGTERM)


def report(calls: Calls, *, with_functions: bool) -> None:
    """Print what was recorded."""
    for name, counted in calls.sets.items():
        files: dict[str, Counter[str]] = {}
        for code, count in counted.items():
            files.setdefault(_file(code), Counter())[code.co_name] += count
        print(f"{name}: {len(files)} files, {sum(counted.values())} calls")
        for file in sorted(files):
            print(f"    {file}" + (f"    {', '.join(files[file])}" if with_functions else ""), flush=True)


def main() -> int:
    """Train in a process of its own; the exit status is 0 where the signal ended it."""
    parser = argparse.ArgumentParser(description="Count the files that a SIGTERM passes through.")
    parser.add_argument("--calls", action="store_true", help="print the functions of each file, too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        child = os.fork()
        if not child:
            train_until_stopped(os.path.join(directory, "run"), Calls(), with_functions=arguments.calls)
            return 1
        return 0 if os.waitpid(child, 0)[1] == signal.SIGTERM else 1


if __name__ == "__main__":
    sys.exit(main())

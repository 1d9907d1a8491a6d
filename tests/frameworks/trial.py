"""One training in a process of its own, forked off the test's, which has imported the framework already; or in several
ones, which are its ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import traceback
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

from supervisor_core.engine import open_sessions
from supervisor_core.run.watch.logdir_watch import LogdirWatch

PAUSE = threading.Event()  # never set
Say = Callable[[str], None]
Event = Callable[[Any, int], None]
Train = Callable[..., subprocess.CompletedProcess[str]]
NEEDS = {
    "supervise": "numpy",
    "torch": "torch",
    "torch, for": "torch",
    "lightning": "lightning",
    "keras": "torch",  # not on TensorFlow: each process takes seconds to import that
    "jax": "jax",
    "transformers": "transformers",
    "Supervisor": "tensorflow",
    "MonitoredTrainingSession": "tensorflow",
}
"""What each facade of `facade_program.py` needs."""


def run_of(logdir: Path) -> Any:
    """The run in a logdir, as every reader sees it."""
    (item,) = LogdirWatch(str(logdir)).refresh().runs.values()
    return item.run


def at(step: int, signum: int, *, group: bool = False) -> Event:
    """An event: this signal at that step, to the process or to all of its group; it ends when the session has heard."""

    def event(session: Any, now: int) -> None:
        if now == step:
            (os.killpg if group else os.kill)(0 if group else os.getpid(), signum)
            while not session.should_stop():
                PAUSE.wait(0.01)

    return event


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


def killed_and_resumed(
    directory: Path, train: Callable[..., None], event: Event
) -> tuple[list[str], list[str], str, list[str]]:
    """Train without interruption; again with an event that kills the process, and once more to the end. Return what is
    said by the first one, by the killed one, the verdict of the resume, and what is said after it.

    Args:
        directory: of all logdirs.
        train: is given a logdir, what says a line, and perhaps the event.
        event: see `train`.
    """
    run = directory / "run"
    _, truth = trial(directory, lambda say: train(directory / "truth", say))
    status, first = trial(directory, lambda say: train(run, say, event=event))
    assert status == -signal.SIGKILL and truth[: len(first)] == first
    status, (verdict, *second) = trial(directory, lambda say: train(run, say))
    assert status == 0
    return truth, first, verdict, second


class Job:
    """A training's ranks, and what they say, each into a file of its own.

    Args:
        directory: of these files, and of the logdir.
        start: trains in all ranks; is given the directory, a plan, and options.
    """

    def __init__(self, directory: Path, start: Callable[..., object]) -> None:
        self.directory = directory
        self._start = start
        directory.mkdir(exist_ok=True)

    def run(self, plan: dict[str, Any] | None = None, *, ranks: int = 2, **options: Any) -> list[list[str]]:
        """Run to the end of all processes; return what each rank said."""
        before = {path.name: len(path.read_text().splitlines()) for path in self.directory.glob("rank-*")}
        read, write = os.pipe()  # which each process has open until it ends
        self.status, _ = trial(self.directory, lambda say: self._start(self.directory, plan, ranks=ranks, **options))
        os.close(write)
        assert os.read(read, 1) == b""
        os.close(read)
        said = [(self.directory / f"rank-{rank}").read_text().splitlines() for rank in range(ranks)]
        return [lines[before.get(f"rank-{rank}", 0) :] for rank, lines in enumerate(said)]

    def watch(self) -> Any:
        """The run, as the tab sees it."""
        return run_of(self.directory / "run")


def launch(program: Callable[..., Any], *args: Any, ranks: int = 2, restarts: int = 0) -> dict[int, Any]:
    """Run ``program`` as torchrun does, by its own launcher, in processes forked off this one; return what each rank
    returned."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=ranks, run_id=uuid.uuid4().hex, rdzv_backend="c10d",
        rdzv_endpoint="localhost:0", max_restarts=restarts, monitor_interval=0.05, start_method="fork",
    )  # fmt: skip
    returned: dict[int, Any] = elastic_launch(config, program)(*args)
    return returned


class Others:
    """The ranks of a training as one of them sees them, in place of `supervisor_core.torch.ranks.Ranks`.

    Args:
        rank: this one.
        size: how many there are.
        said: what each other one says at an exchange. Default: the same as this one.
        announced: what rank 0 announces. Default: what this one would.
        row: returns the row of each other one at a comparison, given this one's.
    """

    def __init__(
        self,
        rank: int = 0,
        size: int = 2,
        *,
        said: Any = ...,
        announced: Any = ...,
        row: Callable[[Any], Any] = lambda row: row,
    ) -> None:
        self.rank, self.size, self.is_chief = rank, size, rank == 0
        self.said, self.announced, self.row = said, announced, row
        self.meetings, self.has_left = 0, False

    def open(self) -> None:
        """Connected."""

    def meet(self) -> None:
        self.meetings += 1

    def leave(self) -> None:
        self.has_left = True

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()

    def exchange(self, value: Any) -> list[Any]:
        found = [value if self.said is ... else self.said] * self.size
        found[self.rank] = value
        return found

    def collect(self, value: Any) -> list[Any]:
        return self.exchange(value)

    def announce(self, value: Any = None) -> Any:
        return value if self.is_chief or self.announced is ... else self.announced

    def compare(self, row: Any) -> list[list[int]]:
        found = [list(self.row(row))] * self.size
        found[self.rank] = list(row)
        return found

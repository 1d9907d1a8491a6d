"""One of several ranks hangs, on every facade: the run says which one, and where; nothing while one evaluates."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from trial import PAUSE, launch, run_of

pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")

pytestmark = pytest.mark.timeout(400)  # several processes, on machines that may be busy
HANG_SECS = 3.0
Start = Callable[[Path, dict[str, Any]], object]


@pytest.fixture(params=["torch", "lightning", "transformers"])
def start(request: pytest.FixtureRequest, module_at: Callable[[str], ModuleType]) -> Start:
    """Trains in two ranks, with one of the facades."""
    name: str = request.param
    pytest.importorskip(name)
    programs = {"torch": "ranks_program", "lightning": "lightning_ranks", "transformers": "trainer_ranks_program"}
    program = module_at(f"frameworks/{programs[name]}.py")
    if name == "lightning":
        return lambda directory, plan: program.fit(directory, plan, ranks=2)
    return lambda directory, plan: launch(program.train_forked, str(directory), plan, ranks=2)


@contextmanager
def training(start: Start, directory: Path, plan: dict[str, Any], environment: dict[str, str]) -> Iterator[None]:
    """Train while the block runs; all of its processes are killed then."""
    pid = os.fork()
    if not pid:
        os.setpgid(0, 0)
        os.environ.update(environment)
        with suppress(BaseException):
            try:
                start(directory, plan)
            except BaseException:
                traceback.print_exc()
                raise
        os._exit(1)
    with suppress(OSError):  # the child has done it
        os.setpgid(pid, pid)
    try:
        yield
    finally:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def until(found: Callable[[], Any], secs: float = 300.0) -> Any:
    """Return what is found, once it is."""
    end = time.monotonic() + secs
    while time.monotonic() < end:
        with suppress(ValueError, OSError):  # nothing is written yet
            if value := found():
                return value
        PAUSE.wait(0.1)
    raise TimeoutError


def test_the_rank_that_hangs_is_named(start: Start, tmp_path: Path) -> None:
    """The other one waits for it, and is not named."""
    plan = {"act": "hang", "hangs": True, "rank": 1, "step": 5}

    def named() -> Any:
        run = run_of(tmp_path / "run")
        return run if run.verdict is not None and run.stalls and run.stalls[-1].culprit else None

    with training(start, tmp_path, plan, {"SUPERVISOR_HANG_TIMEOUT_SECS": str(HANG_SECS)}):
        run = until(named)
    waits = r"; rank 0 waits for it at \w+\.py:\d+ \(\w+\)( at step \d+)?"
    assert re.fullmatch(r"rank 1 hangs at \w+\.py:\d+ in (\w+\.)?\w+( at step \d+)?" + waits, run.verdict), run.verdict
    assert (run.state, run.stalls[-1].culprit) == ("stalled", "rank 1")
    assert run.stalls[-1].timeout_secs == HANG_SECS


def test_an_evaluation_of_one_rank_is_no_stall(module_at: Callable[[str], ModuleType], tmp_path: Path) -> None:
    """Rank 0 evaluates for all; the other one waits in its next step, for longer than its hang timeout."""
    program = module_at("frameworks/ranks_program.py")

    def place() -> Any:
        return json.loads((tmp_path / "run/.supervisor.live/rank-1.json").read_text())["place"]

    def train(directory: Path, plan: dict[str, Any]) -> None:
        launch(program.train_forked, str(directory), plan)

    plan = {"act": "evaluate", "rank": 0, "step": 9}
    with training(train, tmp_path, plan, {"SUPERVISOR_HANG_TIMEOUT_SECS": str(HANG_SECS)}):
        assert until(place)["waits_in"]
        run = run_of(tmp_path / "run")
        assert (run.state, run.verdict, run.stalls, run.sessions[-1].phase) == ("running", None, (), "evaluating")
        (tmp_path / "goes").touch()
        until(lambda: run_of(tmp_path / "run").state == "completed")
    assert run_of(tmp_path / "run").stalls == ()


class Endless:
    """A dataset with a sample that is never there."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> float:
        return self.decode() if index == 20 else 1.0

    def decode(self) -> float:
        while True:
            PAUSE.wait()


def test_a_worker_of_the_loader_that_hangs_is_named(tmp_path: Path) -> None:
    """At its own line, with its stack in the record; not the line of the loop that waits for it."""
    import torch
    from torch.utils.data import DataLoader

    from supervisor_core import Options
    from supervisor_core.process.stacks import LOADER_WORKER
    from supervisor_core.torch import supervised

    def train(directory: Path, plan: dict[str, Any]) -> None:
        loader: Any = DataLoader(Endless(), 4, num_workers=2)
        options = Options(hang_timeout_secs=HANG_SECS)
        for _ in supervised(loader, directory / "run", model=torch.nn.Linear(1, 1), options=options):
            pass

    def stalled() -> Any:
        run = run_of(tmp_path / "run")
        return run.stalls and run.stalls[-1]

    with training(train, tmp_path, {}, {}):
        stall = until(stalled)
        assert stall.thread == LOADER_WORKER
        assert re.fullmatch(r".*/test_hangs\.py:\d+ (Endless\.)?decode", stall.location)
        assert sum("__getitem__" in line for line in stall.stacks[LOADER_WORKER]) == 1
        assert not any("supervised" in line for line in stall.stacks[LOADER_WORKER])  # of the trainer that it was

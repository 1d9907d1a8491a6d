"""SIGTERM in every phase of a training: the step under way is saved, and the session's record says why it ended."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from supervisor_core import Options, Run, supervise
from supervisor_core.engine.ending import StopSignals
from supervisor_core.training import saver as savers
from tests.training.parts import run_of

PAUSE = threading.Event()  # never set


class Weights:
    """A state that counts the steps, and calls something when it is restored."""

    def __init__(self, on_restore: Callable[[], object] = lambda: None) -> None:
        self.steps = 0
        self.on_restore = on_restore

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]
        self.on_restore()


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """One of the program's, so that the process lives on."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


def send(run: Run) -> None:
    """Send the signal, and wait until it has come."""
    signal.raise_signal(signal.SIGTERM)
    while not run.should_stop():
        PAUSE.wait(0.01)


@pytest.mark.parametrize(
    ("phase", "steps"),
    [("restoring", 2), ("before the loop", 2), ("first step", 3), ("evaluating", 5), ("saving", 5)],
)
def test_sigterm(tmp_path: Path, before_writes: Any, phase: str, steps: int) -> None:
    """While it restores, before and in its first step, while it evaluates, and while a checkpoint is written."""
    with supervise(tmp_path, state={"weights": Weights()}, save_secs=None) as run:
        for _ in run.steps(2):
            run.state.objects["weights"].steps += 1

    weights = Weights((lambda: send(run)) if phase == "restoring" else lambda: None)
    run = supervise(tmp_path, state={"weights": weights}, save_secs=None, save_steps=2)
    is_writing, has_come = threading.Event(), threading.Event()

    def hold() -> None:
        is_writing.set()
        assert has_come.wait(100)

    if phase == "saving":
        before_writes(hold)
    with run:
        if phase == "before the loop":
            send(run)
        for step in run.steps(100):
            weights.steps += 1
            if phase == "first step" and step == 2:
                send(run)
            if phase == "evaluating" and step == 4:
                with run.phase("evaluating"):
                    send(run)
            if phase == "saving" and step == 4:  # that of step 4 is under way
                assert is_writing.wait(100)
                send(run)
                has_come.set()
    assert (run.global_step, weights.steps) == (steps, steps)
    assert run.newest_checkpoint == str(tmp_path / "checkpoints" / f"ckpt-{steps}")
    run_model = run_of(tmp_path)
    assert (run_model.sessions[-1].outcome, run_model.sessions[-1].last_step) == ("signal", steps)
    assert all(save.ok for save in run_model.checkpoints)


@pytest.mark.parametrize("inner", [False, True])
def test_a_signal_in_an_evaluation_is_saved_while_it_goes_on(tmp_path: Path, inner: bool) -> None:
    """The copy of its begin is, also where a phase in it has ended: nothing is lost if it never ends."""
    weights = Weights()
    with supervise(tmp_path, state={"weights": weights}, save_secs=None) as run:
        for _ in run.steps(2):
            weights.steps += 1
        with run.phase("evaluating"):
            if inner:
                with run.phase("compiling"):
                    pass
            signal.raise_signal(signal.SIGTERM)
            until = time.monotonic() + 100
            while run.newest_checkpoint is None and time.monotonic() < until:
                PAUSE.wait(0.01)
            assert run.newest_checkpoint == str(tmp_path / "checkpoints" / "ckpt-2")


@pytest.mark.parametrize("late", ["a later step is saved", "the same step is saved", "the session has ended"])
def test_a_copy_that_comes_late_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: str) -> None:
    """The signal's thread has taken the copy of an evaluation, and gets its turn when the training has saved its last
    step, or has ended: the last step stays the newest, and nobody waits for a save that is not made."""
    held, go_on, is_over = threading.Event(), threading.Event(), threading.Event()
    put, stop = savers.Saver._put, savers.Saver.stop

    def put_late(saver: savers.Saver, *arguments: Any, is_held: bool = False) -> bool:
        if is_held:
            held.set()
            assert go_on.wait(100)
        return put(saver, *arguments, is_held=is_held)

    def save_late(saver: savers.Saver, *arguments: Any) -> bool:
        try:
            return save_held(saver, *arguments)
        finally:
            is_over.set()

    def stop_after_it(saver: savers.Saver, *arguments: Any) -> None:
        if late != "the session has ended":
            go_on.set()
            assert is_over.wait(100)
        stop(saver, *arguments)

    save_held = savers.Saver.save_held
    monkeypatch.setattr(savers.Saver, "_put", put_late)
    monkeypatch.setattr(savers.Saver, "save_held", save_late)
    monkeypatch.setattr(savers.Saver, "stop", stop_after_it)
    weights = Weights()
    with supervise(tmp_path, state={"weights": weights}, save_secs=None) as run:
        for step in run.steps(5):
            weights.steps += 1
            if step == 4 and late != "the same step is saved":
                with run.phase("evaluating"):
                    send(run)
                    assert held.wait(100)
        if late == "the same step is saved":
            with run.phase("evaluating"):
                send(run)
                assert held.wait(100)
    go_on.set()
    assert is_over.wait(100)
    assert [item.name for item in (tmp_path / "checkpoints").iterdir()] == ["ckpt-5"]


@pytest.mark.parametrize("inside", [True, False])
def test_an_evaluation_that_begins_after_the_signal_is_saved_first(tmp_path: Path, inside: bool) -> None:
    """The signal's thread may have found nothing to save: the state may be copied in the training's thread only."""
    weights = Weights()
    with supervise(tmp_path, state={"weights": weights}, save_secs=None) as run:
        for step in run.steps(9):
            weights.steps += 1
            if step == 2:
                if not inside:
                    break
                signal.raise_signal(signal.SIGTERM)
                while not run.should_stop():
                    PAUSE.wait(0.01)
                with run.phase("evaluating"):
                    assert run.newest_checkpoint is not None
        if not inside:
            signal.raise_signal(signal.SIGTERM)
            while not run.should_stop():
                PAUSE.wait(0.01)
            with run.phase("evaluating"):
                assert run.newest_checkpoint is not None


def test_a_state_that_cannot_be_copied_ends_no_evaluation(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """For lack of memory, say: it is logged, training goes on, and the next save succeeds."""

    class Refusing(Weights):
        refuses = False

        def state_dict(self) -> dict[str, Any]:
            if self.refuses:
                raise MemoryError("no room")
            return super().state_dict()

    weights = Refusing()
    with supervise(tmp_path, state={"weights": weights}, save_secs=None) as run:
        for _ in run.steps(2):
            weights.steps += 1
        weights.refuses = True
        with run.phase("evaluating"):
            weights.refuses = False
    assert run.newest_checkpoint == str(tmp_path / "checkpoints" / "ckpt-2")
    assert "saves nothing, as the state cannot be copied: MemoryError: no room" in caplog.text


def test_an_interrupt_comes_not_into_the_last_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before_writes: Any
) -> None:
    """A training that has come to its end is not interrupted, however long its last checkpoint takes. The traceback is
    of the program's block, with one frame of the session's end."""
    interrupted, is_decided, decide = [], threading.Event(), StopSignals._interrupt

    def wait() -> None:
        assert is_decided.wait(60)

    def decided(*arguments: Any, **named: Any) -> bool:
        try:
            return decide(*arguments, **named)
        finally:
            is_decided.set()

    before_writes(wait)
    monkeypatch.setattr(StopSignals, "_interrupt", decided)
    with pytest.raises(KeyboardInterrupt) as left, supervise(tmp_path, options=Options(stop_timeout_secs=100)) as run:
        monkeypatch.setattr(run._ending.signals._watch, "interrupt", lambda: interrupted.append(True))
        for _ in run.steps(1000):
            signal.raise_signal(signal.SIGINT)
            while not run.should_stop():
                PAUSE.wait(0.01)
    assert not interrupted
    assert [frame.name for frame in left.traceback][1:] == ["__exit__"]
    run_model = run_of(tmp_path)
    assert (run_model.sessions[0].outcome, run_model.checkpoints[-1].step) == ("signal", 1)


def test_a_ctrl_c_that_is_lost_before_the_loop_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Native code that calls Python, and finalizers, drop the `KeyboardInterrupt` that is raised in them."""
    start = savers.Saver.start

    def started(saver: savers.Saver, *args: Any) -> None:
        start(saver, *args)
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
            PAUSE.wait(100)

    monkeypatch.setattr(savers.Saver, "start", started)
    with supervise(tmp_path, state={"weights": Weights()}, save_secs=None) as run:
        assert list(run.steps(3)) == []
    run_model = run_of(tmp_path)
    assert run_model.sessions[-1].outcome == "signal"


def test_only_the_loop_is_asked_whether_it_looks(tmp_path: Path) -> None:
    """A program that asks whether to stop while it restores, and never in its loop, is interrupted by Ctrl-C there."""
    with supervise(tmp_path, state={"weights": Weights()}, save_secs=None) as run:
        assert list(run.steps(2)) == [0, 1]
    weights, left = Weights(lambda: again.should_stop()), ""
    again = supervise(tmp_path, state={"weights": weights}, save_secs=None, options=Options(stop_timeout_secs=3600.0))
    with pytest.raises(KeyboardInterrupt), again:
        try:
            signal.raise_signal(signal.SIGINT)
            for _ in range(3000):  # half a minute: less than half of the time that the end has
                again.step()
                PAUSE.wait(0.01)
            left = "by itself"
        except KeyboardInterrupt:
            left = "interrupted"
            raise
    assert left == "interrupted"

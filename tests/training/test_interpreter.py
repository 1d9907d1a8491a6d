"""Notebooks, interpreters and threads: an error in a cell ends its session, and the next cell goes on."""

from __future__ import annotations

import code
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor_core import LogdirInUseError, Options, supervise
from supervisor_core.engine import ending
from tests.training.parts import run_of

PAUSE = threading.Event()  # never set
CELL = "fit(4, happen)"


def outcomes(logdir: Path) -> list[tuple[str | None, int | None, int | None]]:
    """How the sessions ended, and the steps that they began and ended at."""
    return [(session.outcome, session.restored_step, session.last_step) for session in run_of(logdir).sessions]


class Interpreter:
    """An interpreter whose cells may train in a logdir."""

    def __init__(self, logdir: Path) -> None:
        self.logdir = logdir
        self.done: list[int] = []
        self.names: dict[str, Any] = {"__name__": "__main__", "fit": self.fit, "loop": self.loop}
        self.interpreter = code.InteractiveInterpreter(self.names)

    def fit(self, until: int, happen: Callable[[int], object]) -> None:
        """A session without a block, as that of a framework's callback: its frame keeps it."""
        self.session = run = supervise(self.logdir, save_secs=None, save_steps=2)
        run.__enter__()
        for step in run.steps(until):
            run.wait_until_saved()
            self.done.append(step)
            happen(step)
        run.__exit__(None, None, None)

    def loop(self) -> Iterator[int]:
        """A session that ends with a generator."""
        with supervise(self.logdir, save_secs=None, save_steps=2) as run:
            yield from run.steps(9)

    def run(self, happen: Callable[[int], object] = lambda step: None, cell: str = CELL) -> None:
        """Run a cell."""
        self.names["happen"] = happen
        self.interpreter.runsource(cell, symbol="exec")


@pytest.fixture
def interpreter(tmp_path: Path) -> Iterator[Interpreter]:
    """One that leaves no error behind."""
    yield Interpreter(tmp_path)
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)


def fail(error: type[BaseException], at: int) -> Callable[[int], None]:
    """An error in the body of a step."""

    def happen(step: int) -> None:
        if step == at:
            raise error("in the body")

    return happen


@pytest.mark.parametrize(("error", "outcome"), [(KeyboardInterrupt, "signal"), (ArithmeticError, "error")])
def test_the_next_cell_goes_on_after_an_error_in_the_body(
    interpreter: Interpreter, error: type[BaseException], outcome: str
) -> None:
    """The traceback keeps the session alive: the next session ends it, and goes on from its last checkpoint."""
    handlers = [signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)]
    interpreter.run(fail(error, 3))
    assert interpreter.done == [0, 1, 2, 3]
    interpreter.run()
    assert interpreter.done[4:] == [2, 3]
    assert outcomes(interpreter.logdir) == [(outcome, None, 3), ("completed", 2, 4)]
    assert [signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)] == handlers


def test_a_handler_may_train_again(interpreter: Interpreter) -> None:
    """While the exception is handled, whose traceback keeps the session; one that is still in its block stays open."""
    try:
        interpreter.fit(4, fail(ArithmeticError, 3))
    except ArithmeticError:
        interpreter.fit(4, lambda step: None)
    assert outcomes(interpreter.logdir) == [("error", None, 3), ("completed", 2, 4)]
    with supervise(interpreter.logdir, save_secs=None):
        try:
            raise ArithmeticError
        except ArithmeticError:
            with pytest.raises(LogdirInUseError):
                interpreter.fit(4, lambda step: None)


def test_the_next_cell_goes_on_after_ctrl_c(interpreter: Interpreter) -> None:
    """The step under way ends and is saved; the cell ends by `KeyboardInterrupt`, and the session with it."""

    def press(step: int) -> None:
        if step == 2:
            signal.raise_signal(signal.SIGINT)
            while not interpreter.session.should_stop():
                PAUSE.wait(0.01)

    interpreter.run(press)
    assert isinstance(sys.last_value, KeyboardInterrupt)
    assert outcomes(interpreter.logdir) == [("signal", None, 3)]
    interpreter.run(press)
    assert interpreter.done == [0, 1, 2, 3]
    assert outcomes(interpreter.logdir)[1:] == [("completed", 3, 4)]


def test_in_a_notebook_the_session_ends_with_its_cell(
    interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By IPython's own event; an error of another cell ends none."""
    events: dict[str, Callable[[object], None]] = {}

    class Shell:
        """What is needed of IPython's."""

        def __init__(self) -> None:
            self.events = SimpleNamespace(register=events.setdefault)

    shell = Shell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    interpreter.run(cell="kept = loop(); next(kept)")
    interpreter.run(cell="1 / 0")
    events["post_run_cell"](None)
    assert isinstance(sys.last_value, ZeroDivisionError) and outcomes(interpreter.logdir) == [("running", None, 0)]
    interpreter.run(cell="kept.close()")
    interpreter.run(fail(ValueError, 1))
    events["post_run_cell"](None)
    assert [outcome for outcome, _, _ in outcomes(interpreter.logdir)] == ["completed", "error"]


@pytest.mark.parametrize("handled", [True, False])
def test_a_session_in_a_thread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, handled: bool
) -> None:
    """Leaves the process's signal handlers alone and says so, once; a requested stop ends it."""
    monkeypatch.setattr(ending, "_SAID", threading.Lock())  # another test's session may have said it
    handlers = [signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)]
    runs, is_training, steps = [], threading.Event(), []

    def train() -> None:
        with supervise(tmp_path, save_secs=None, options=Options(handle_signals=handled)) as run:
            runs.append(run)
            for step in run.steps(10**9):
                steps.append(step)
                is_training.set()

    thread = threading.Thread(target=train, name="trainer", daemon=True)
    with caplog.at_level(logging.WARNING, "supervisor_core"):
        thread.start()
        assert is_training.wait(100)
        assert [signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)] == handlers
        runs[0].request_stop()
        thread.join(100)
    assert not thread.is_alive()
    assert outcomes(tmp_path) == [("requested", None, len(steps))]
    assert runs[0].newest_checkpoint == str(tmp_path / "checkpoints" / f"ckpt-{len(steps)}")
    warned = [record.getMessage() for record in caplog.records if record.msg == ending.IN_A_THREAD]
    assert [("'trainer'" in text) for text in warned] == ([True] if handled else [])

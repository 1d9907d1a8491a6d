"""The table of `docs/stopping.md` for the graph-mode facades, row by row, with real processes.

The rows are read from the page; a row without a test fails, and so does a test without a row. `test_loops_end_how.py`
has the other facades.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from endings_page import Row, table

pytestmark = pytest.mark.timeout(300)
Start = Callable[..., Any]
LONG = {"stop_timeout_secs": 3600.0, "snapshot_wait_secs": 3600.0}
"""Nothing ends in these tests because time is up, unless a test says so."""
SHORT_SECS, RESERVE_SECS = 8.0, 20.0
"""The stop timeout of the row in which no Python code runs; what the last records may take on a loaded machine."""
FULL = {"stop_timeout_secs": RESERVE_SECS + 12.0, "reserve_secs": RESERVE_SECS}
HANGS = {"stop_timeout_secs": RESERVE_SECS + 20.0, "reserve_secs": RESERVE_SECS}
"""Of the other rows that end because the stop timeout is over: with nothing to save, and with a save in it."""
SLOWER = 12
"""How much longer than the page says an end may take on a loaded machine."""
IMMEDIATE_SECS = 10.0
"""What the page's "at once" is, and its "1 s", which is longer in the tests' program: see there."""


def plain(name: str) -> Callable[[Start], Any]:
    """A process that ends by itself."""
    return lambda start: start(name).end()


def signalled(
    name: str, signum: int, *, at: str = "trained", then: Callable[[Any], None] | None = None, **options: Any
) -> Callable[[Start], Any]:
    """A process that gets a signal when it has said something; then more may be done to it."""

    def run(start: Start) -> Any:
        process = start(name, **{**LONG, **options})
        process.expect(at)
        began = time.monotonic()
        process.send(signum)
        if then is not None:
            then(process)
        process.end()
        process.ended_after = time.monotonic() - began
        process.stop_timeout_secs = options.get("stop_timeout_secs")
        return process

    return run


def cleans_up(run: Callable[[Start], Any]) -> Callable[[Start], Any]:
    """A process whose own clean-up runs, whatever ended it."""

    def check(start: Start) -> Any:
        process = run(start)
        assert process.lines[-3:] == ["except KeyboardInterrupt ran", "finally ran", "atexit ran"]
        assert "KeyboardInterrupt" in process.err
        return process

    return check


def says_what_is_lost(run: Callable[[Start], Any]) -> Callable[[Start], Any]:
    """A process that says, once, which checkpoint is the newest."""

    def check(start: Start) -> Any:
        process = run(start)
        assert process.err.count("After an error no checkpoint is saved. The newest checkpoint is") == 1
        return process

    return check


def sends_again(signum: int) -> Callable[[Any], None]:
    """Sends a signal until the process ends."""
    return lambda process: process.send_until_it_ends(signum)


def interrupts_again(process: Any) -> None:
    """Sends a second Ctrl-C when the first one was handled; a third would come into the program's own clean-up."""
    process.expect("handled")
    process.send(signal.SIGINT)


def taken_over(start: Start) -> Any:
    """A chief whose logdir another one takes, as after a suspension."""
    process = start("asks", lease_timeout_secs=4.0, **LONG)
    process.expect("trained")
    process.is_taken_over()
    assert "LogdirInUseError" in process.err
    return process


def in_a_thread(start: Start) -> Any:
    """A session that begins in a thread."""
    process = signalled("in_a_thread", signal.SIGTERM)(start)
    assert process.err.count("this session begins in the thread 'trainer'") == 1
    return process


def shows_stacks(start: Start) -> Any:
    """A process whose lock is held by native code."""
    process = signalled("holds_the_interpreter", signal.SIGTERM, at="stuck", stop_timeout_secs=SHORT_SECS)(start)
    assert "holds_the_interpreter" in process.err
    return process


ROWS: dict[str, list[Callable[[Start], Any]]] = {
    "the block is left": [plain("clean_end"), plain("made_before_a_fork")],
    "break": [plain("clean_end")],
    "exhausted input": [plain("exhausted")],
    "request_stop()": [plain("requested")],
    "exception": [says_what_is_lost(plain(name)) for name in ("exception", "monitored_exception")],
    "exception without a text": [plain("exception_without_text")],
    "sys.exit(0)": [plain("exit_0"), plain("monitored_exit_0")],
    "sys.exit(3)": [plain("exit_3")],
    "SIGTERM": [signalled(name, signal.SIGTERM) for name in ("asks", "monitored_asks", "unmanaged_asks")],
    "SIGHUP": [signalled("asks", signal.SIGHUP)],
    "SIGQUIT": [signalled("asks", signal.SIGQUIT)],
    "SIGTERM, the loop never asks": [
        signalled(name, signal.SIGTERM) for name in ("never_asks", "monitored_never_asks", "unmanaged_never_asks")
    ],
    "SIGTERM, a run hangs": [
        signalled(name, signal.SIGTERM, at="stuck", **HANGS) for name in ("hangs", "hangs_after_asking")
    ],
    "SIGTERM, an evaluation takes long": [signalled("evaluates", signal.SIGTERM, at="stuck", **HANGS)],
    "SIGTERM, the disk is full": [signalled("full_disk", signal.SIGTERM, at="trained 6", **FULL)],
    "SIGTERM, the interpreter is held": [shows_stacks],
    "SIGTERM, twice": [
        signalled("hangs_after_asking", first, at="stuck", then=sends_again(signal.SIGTERM))
        for first in (signal.SIGTERM, signal.SIGINT)
    ],
    "SIGTERM, a handler of the program's": [
        signalled(name, signal.SIGTERM) for name in ("handler_of_its_own", "handler_in_the_block")
    ],
    "Ctrl-C": [
        *(signalled(name, signal.SIGINT) for name in ("asks", "monitored_asks", "unmanaged_asks")),
        signalled("asks_late", signal.SIGINT, at="asks late"),
    ],
    "Ctrl-C, the loop never asks": [
        cleans_up(signalled(name, signal.SIGINT))
        for name in ("never_asks", "monitored_never_asks", "unmanaged_never_asks")
    ],
    "Ctrl-C, nothing to save": [cleans_up(signalled("nothing_to_save", signal.SIGINT))],
    "Ctrl-C, twice": [
        cleans_up(signalled("waits_while_nothing_can_be_saved", signal.SIGINT, at="waits", then=interrupts_again)),
        cleans_up(signalled("comes_back_late", signal.SIGINT, at="stuck", then=interrupts_again)),
        signalled("hangs", signal.SIGINT, at="stuck", then=sends_again(signal.SIGINT)),
    ],
    "Ctrl-C, the program catches it": [signalled("catches_interrupt", signal.SIGINT)],
    "Ctrl-C, signals are not handled": [cleans_up(signalled("never_asks", signal.SIGINT, handle_signals=False))],
    "the interpreter ends": [plain("left_open"), plain("block_left_open"), plain("monitored_left_open")],
    "the interpreter ends by an exception": [plain("left_open_by_exception")],
    "another chief took over": [taken_over],
    "SIGTERM in a thread": [in_a_thread],
    "SIGKILL": [signalled("never_asks", signal.SIGKILL)],
}
OTHERS = {"save_signal", "a forked child", "SIGTERM, as process 1"}
"""What does not end, and what is not the session's process: tests of their own, or of `test_loops_end_how.py`."""


def page() -> dict[str, Row]:
    """What the page says of the graph-mode facades."""
    return {cause: row for cause, rows in table().items() if (row := rows["graph"]) is not None}


def limit_secs(at_most: str, stop_timeout_secs: float | None) -> float | None:
    """What the page's last column says in seconds; None where the save or the program takes its time."""
    if at_most.startswith(("at once", "1 s")):
        return IMMEDIATE_SECS
    return stop_timeout_secs if at_most == "stop_timeout_secs" else None


def test_each_row_has_a_test() -> None:
    """The rows that are tested here are those of the page, no more and no fewer."""
    assert set(page()) == set(ROWS) | OTHERS


@pytest.mark.parametrize(
    ("cause", "number"), [(cause, number) for cause, runs in ROWS.items() for number in range(len(runs))]
)
def test_what_ends_how(start: Start, read_telemetry: Any, read_logs: Any, cause: str, number: int) -> None:
    """What is saved and recorded, and the exit status, are what the page says; STOP is the events file's last word."""
    saved, recorded, status, at_most = page()[cause]
    process = ROWS[cause][number](start)
    assert process.status_text == status, process.err
    if (secs := limit_secs(at_most, process.stop_timeout_secs)) is not None:
        assert process.ended_after < secs * SLOWER
    records = read_telemetry(process.logdir)
    assert [record.reason for record in records if record.kind == "stop"] == [recorded] * (recorded != "no record")
    steps = [record.step for record in records if record.kind == "checkpoint" and record.error is None]
    reached = [int(line.rpartition(" ")[2]) for line in process.lines if line.startswith(("trained", "left the loop"))]
    import tensorflow as tf

    newest = tf.train.latest_checkpoint(process.logdir)
    if saved == "nothing":
        assert set(steps) <= {0}
        assert newest is None or newest.endswith("-0")
        return
    assert read_logs(process.logdir)[-1] == tf.compat.v1.SessionLog.STOP
    stored = tf.train.load_checkpoint(newest)
    assert stored.get_tensor("global_step") == stored.get_tensor("weight")[0] == steps[-1]
    [stop] = [record for record in records if record.kind == "stop"]
    assert stop.final_checkpoint_step == steps[-1]
    if saved == "at the signal":
        assert reached[-1] <= steps[-1] <= stop.step
    else:
        assert saved == "last step"
        assert steps[-1] == stop.step >= reached[-1]


def test_a_signal_after_an_interrupt_that_was_caught(start: Start, read_telemetry: Any) -> None:
    """A program that catches KeyboardInterrupt trains on as before: its services run, the next signal is a first one,
    and what was trained since is saved."""
    process = start("catches_interrupt_and_trains_on", **LONG)
    process.expect("trained")
    process.send(signal.SIGINT)
    process.expect("goes on")
    process.expect("trained")
    process.send(signal.SIGTERM)
    assert process.end().status_text == "SIGTERM", process.err
    records = read_telemetry(process.logdir)
    [stop] = [record for record in records if record.kind == "stop"]
    steps = [record.step for record in records if record.kind == "checkpoint" and record.trigger == "signal"]
    trained = [int(line.rpartition(" ")[2]) for line in process.lines if line.startswith("trained")]
    assert (stop.reason, stop.signal, len(steps)) == ("signal", "SIGTERM", 2)
    assert steps[0] < trained[-1] <= steps[1]


@pytest.mark.parametrize("name", ["nested_ask", "nested_never_ask", "stopped_one_by_one"])
def test_two_sessions_in_one_process(start: Start, read_telemetry: Any, name: str) -> None:
    """A signal ends the process when both are saved and recorded, whichever of them comes to its end first."""
    import tensorflow as tf

    process = start(name, **LONG)
    process.expect("both")
    process.send(signal.SIGTERM)
    assert process.end().status_text == "SIGTERM", process.err
    for logdir in (process.logdir, f"{process.logdir}-2"):
        [stop] = [record for record in read_telemetry(logdir) if record.kind == "stop"]
        assert (stop.reason, stop.signal) == ("signal", "SIGTERM")
        assert tf.train.load_checkpoint(logdir).get_tensor("global_step") == stop.final_checkpoint_step >= 3


def test_full_disk_says_what_was_given_up(start: Start, read_telemetry: Any) -> None:
    """A final save that is given up at the deadline is explained in the log and in the stop record; the newest
    checkpoint is named."""
    process = ROWS["SIGTERM, the disk is full"][0](start)
    [stop] = [record for record in read_telemetry(process.logdir) if record.kind == "stop"]
    for text in (process.err, stop.error):
        assert "File too large" in text
        assert f"The newest checkpoint is {process.logdir}/model.ckpt-0 (step 0)." in text


def test_an_error_of_the_programs_own_comes_out(start: Start, read_telemetry: Any) -> None:
    """An exception whose text cannot be had is raised as it is, and its record says what it can."""
    process = plain("exception_without_text")(start)
    assert "caught the program's own error" in process.lines
    [stop] = [record for record in read_telemetry(process.logdir) if record.kind == "stop"]
    assert stop.error == "UnprintableError: <no text: its __str__ raised RuntimeError>"


def test_exit_codes_are_recorded(start: Start, read_telemetry: Any) -> None:
    """The record of a program that exits with a code says which."""
    [stop] = [each for each in read_telemetry(plain("exit_3")(start).logdir) if each.kind == "stop"]
    assert stop.error == "SystemExit: 3"


def test_save_signal(start: Start, read_telemetry: Any, wait_until: Any) -> None:
    """A checkpoint is saved, and training goes on: a second one is of a later step."""
    saved, recorded, _, _ = page()["save_signal"]
    assert (saved, recorded) == ("at the signal", "no record")
    process = start("asks", save_signal="SIGUSR1", **LONG)
    process.expect("trained")

    def steps() -> list[int]:
        records = read_telemetry(process.logdir)
        return [each.step for each in records if each.kind == "checkpoint" and each.trigger == "signal"]

    for number in (1, 2):
        process.send(signal.SIGUSR1)
        wait_until(lambda number=number: len(steps()) == number, 120)
    assert process.is_running
    assert 3 <= steps()[0] < steps()[1]
    assert not [record for record in read_telemetry(process.logdir) if record.kind == "stop"]


@pytest.mark.parametrize(
    "name", ["fork_raises", "fork_exits", "fork_leaves", "monitored_fork_raises", "monitored_fork_leaves"]
)
def test_a_forked_child(start: Start, read_telemetry: Any, name: str) -> None:
    """It leaves the block at once and touches nothing; the parent trains on and ends as if there had been none."""
    saved, recorded, status, _ = page()["a forked child"]
    assert (saved, recorded, status) == ("nothing", "no record", "the child's own")
    process = start(name).end()
    assert process.status == 0
    assert process.lines.count("the child left the block") == 1
    expected = {"raises": "1", "exits": "0", "leaves": "0"}[name.rpartition("_")[2]]
    assert f"child ended with {expected}" in process.lines or name == "monitored_fork_raises"  # TensorFlow's SIGSEGV
    assert len(list(Path(process.logdir).glob("*tfevents*"))) == 1
    records = read_telemetry(process.logdir)
    assert [record.reason for record in records if record.kind == "stop"] == ["completed"]
    assert [record.step for record in records if record.kind == "checkpoint"] == [0, 6]


@pytest.mark.parametrize("name", ["interrupt_lost", "monitored_interrupt_lost"])
def test_an_interrupt_that_is_lost_before_the_loop_is_raised(start: Start, read_telemetry: Any, name: str) -> None:
    """A Ctrl-C that a finalizer drops while the session is prepared still ends the program."""
    process = plain(name)(start)
    assert process.status_text == "SIGINT", process.err
    assert not [line for line in process.lines if line.startswith("trained")]
    assert [record.reason for record in read_telemetry(process.logdir) if record.kind == "stop"] == ["signal"]

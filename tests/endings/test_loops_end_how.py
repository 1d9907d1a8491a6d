"""The table of `docs/stopping.md` for `supervise` and the adapters: each cause with each facade, real processes."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from endings_page import FACADES, table

from supervisor_core.checkpoint.sealed_store import Sealed, SealedStore
from supervisor_core.training.state import MID_STEP

pytestmark = pytest.mark.timeout(300)
Start = Callable[..., Any]
LOOPS = [facade for facade in FACADES if facade != "graph"]
NEEDS = {"torch_with": "torch", "torch_for": "torch", "keras": "torch"}
LONG = {"stop_timeout_secs": 3600.0}
"""Nothing ends in these tests because time is up, unless a test says so."""
SHORT_SECS = 8.0
"""The stop timeout of the row in which no Python code runs."""
SLOWER = 12
"""How much longer than the page says an end may take on a loaded machine."""
IMMEDIATE_SECS = 10.0
IN_AN_EVALUATION = "SIGTERM, an evaluation takes long"
KNOW_STEPS = {"torch_with", "torch_for", "jax"}
"""They know in a step's body whether the step was made."""
STEP_BEFORE = 3
"""The step in whose body things happen has this number."""


class How(NamedTuple):
    """How a process comes to its end."""

    event: str
    at: str | None = None
    """It gets a signal when it has said this."""
    signum: int = 0
    again: bool = False
    """Signals are sent until it ends; of Ctrl-C the second one when the first was handled: a third would come into the
    session's own end."""
    options: dict[str, Any] = LONG
    only: str | None = None
    """A program of `loops.py` instead of the facade's own."""


RESERVE_SECS = 20.0
"""What the last records may take on a loaded machine, where the session ends because its stop timeout is over."""
HUNG = {"hang_timeout_secs": 0.5}
HANGS = {"stop_timeout_secs": RESERVE_SECS + 4.0, "reserve_secs": RESERVE_SECS}
FULL = {"stop_timeout_secs": RESERVE_SECS + 12.0, "reserve_secs": RESERVE_SECS}
"""With a save in it that fails, again and again; a Trainer has to end by its error in that time."""
EVALUATES = {"stop_timeout_secs": RESERVE_SECS + 12.0, "reserve_secs": RESERVE_SECS}
"""With a save in it."""
ROWS: dict[str, How] = {
    "the block is left": How("nothing"),
    "break": How("left"),
    "request_stop()": How("requested"),
    "exception": How("exception"),
    "exception without a text": How("exception_without_text"),
    "sys.exit(0)": How("exit_0"),
    "sys.exit(3)": How("exit_3"),
    "SIGTERM": How("sigterm"),
    "SIGHUP": How("sighup"),
    "SIGQUIT": How("sigquit"),
    "SIGTERM, the loop never asks": How("nothing", "ready", signal.SIGTERM, only="never_asks"),
    "SIGTERM, a run hangs": How("hang", "stuck", signal.SIGTERM, options=HANGS),
    IN_AN_EVALUATION: How("evaluate", "stuck", signal.SIGTERM, options=EVALUATES),
    "SIGTERM, the disk is full": How("full_disk", "ready", signal.SIGTERM, options=FULL),
    "SIGTERM, the interpreter is held": How("hold", "stuck", signal.SIGTERM, options={"stop_timeout_secs": SHORT_SECS}),
    "SIGTERM, twice": How("hang", "stuck", signal.SIGTERM, again=True),
    "SIGTERM, a handler of the program's": How("handled"),
    "Ctrl-C": How("sigint"),
    "Ctrl-C, the loop never asks": How("nothing", "ready", signal.SIGINT, only="never_asks"),
    "Ctrl-C, twice": How("hang_after_a_signal", "stuck", signal.SIGINT, again=True),
    "Ctrl-C, under asyncio": How("sigint", only="in_asyncio"),
    "Ctrl-C, signals are not handled": How("interrupt", options={"handle_signals": False}),
    "the interpreter ends": How("nothing", only="left_open"),
    "the interpreter ends by an exception": How("exception", only="left_open"),
    "SIGTERM in a thread": How("hang", "stuck", signal.SIGTERM, only="in_thread"),
    "SIGKILL": How("kill"),
}
OTHERS = {
    "another chief took over", "save_signal", "a forked child", "SIGTERM, as process 1", "SIGHUP, the terminal is gone",
}  # fmt: skip
"""Tests of their own."""
GRAPH = {"exhausted input", "Ctrl-C, nothing to save", "Ctrl-C, the program catches it"}


def test_each_row_has_a_test() -> None:
    """The rows that are tested here are those of the page that can happen to a loop, no more and no fewer."""
    can_happen = {cause for cause, rows in table().items() if any(rows[facade] for facade in LOOPS)}
    assert can_happen == set(ROWS) | OTHERS


def cells() -> list[tuple[str, str]]:
    """Each cause with each facade to which it can happen."""
    return [(facade, cause) for cause in ROWS for facade in LOOPS if table()[cause][facade] is not None]


def began(start: Start, facade: str, how: How) -> Any:
    """A process on its way to its end."""
    if find_spec(framework := NEEDS.get(facade, facade)) is None and facade != "supervise":
        pytest.skip(f"{framework} is not installed: make test-frameworks has it")
    program = how.only or {"supervise": "plain"}.get(facade, facade)
    process = start(how.event, facade=program, **how.options)
    if how.at is not None:
        process.expect(how.at)
        process.began = time.monotonic()
        if how.again and how.signum == signal.SIGINT:
            process.send(how.signum)
            process.expect("handled")
            process.send(how.signum)
        else:
            (process.send_until_it_ends if how.again else process.send)(how.signum)
    return process


@pytest.mark.parametrize(("facade", "cause"), cells())
def test_what_ends_how(start: Start, read_telemetry: Any, facade: str, cause: str) -> None:
    """What is saved and recorded, and the exit status, are what the page says."""
    row, how = table()[cause][facade], ROWS[cause]
    assert row is not None
    process = began(start, facade, how)
    process.end()
    assert process.status_text == row.status, process.err
    if row.at_most in ("stop_timeout_secs", "1 s") and how.at is not None:
        limit = IMMEDIATE_SECS if how.again else SHORT_SECS
        assert time.monotonic() - process.began < limit * SLOWER
    records = read_telemetry(process.logdir)
    stops = [record for record in records if record.kind == "stop"]
    assert [record.reason for record in stops] == [row.recorded] * (row.recorded != "no record"), process.err
    check_saved(process, row.saved, stops, records, is_counted=cause != IN_AN_EVALUATION)
    if row.status == "SIGINT" and how.event != "hang":
        assert {"finally ran", "atexit ran"} <= set(process.lines)


def check_saved(process: Any, saved: str, stops: list[Any], records: list[Any], *, is_counted: bool) -> None:
    """The newest checkpoint is the one that the page says, whole, and of its step; where that was not counted before
    the signal, the record of the end has the step before."""
    steps = [record.step for record in records if record.kind == "checkpoint" and record.error is None]
    prefix, directory = ("checkpoint-", process.logdir) if process.facade == "transformers" else ("ckpt-", None)
    store = SealedStore(directory or str(Path(process.logdir, "checkpoints")), prefix)
    if saved == "nothing":
        assert steps == [] and not list(Path(process.logdir).rglob("supervisor-manifest.json"))
        return
    found = Sealed.chosen(store.newest_usable())
    reached = [int(line.rpartition(" ")[2]) for line in process.lines if line.startswith("trained")]
    assert found is not None and found.manifest.step == steps[-1]
    [stop] = stops
    assert (stop.final_checkpoint, stop.final_checkpoint_step) == (found.path, steps[-1])
    if saved == "last step":
        assert steps[-1] >= max([0, *reached])
        if process.facade in KNOW_STEPS and process.event in ("left", "exit_0"):
            assert steps[-1] == STEP_BEFORE + 1
        assert stop.step == steps[-1] or (stop.step == steps[-1] - 1 and not is_counted)
    else:
        assert saved == "at the signal" and STEP_BEFORE <= steps[-1] <= stop.step
    value = saved_value(process, found.path)
    assert value is None or value == found.manifest.step or MID_STEP in found.manifest.not_captured


def saved_value(process: Any, path: str) -> float | None:
    """The state in a checkpoint, which is the number of its steps; None where it is not that simple."""
    name = {"torch_with": "torch", "torch_for": "torch"}.get(process.facade, "numpy")
    file = Path(path, f"{name}.safetensors")
    if process.facade in ("keras", "lightning", "transformers", "jax"):
        return None
    content = file.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    (found,) = (item for key, item in json.loads(content[8:begin]).items() if "counter" in key or "weight" in key)
    letter = {"F32": "f", "F64": "d", "I64": "q"}[found["dtype"]]
    return float(struct.unpack_from(f"<{letter}", content, begin + found["data_offsets"][0])[0])


@pytest.mark.parametrize("facade", ["supervise", "torch_with", "torch_for"])
def test_the_error_is_in_the_record(start: Start, read_telemetry: Any, facade: str) -> None:
    """Its type, place and text; a bare loop of PyTorch knows them when the program has ended by it."""
    process = began(start, facade, How("exception")).end()
    [stop] = [record for record in read_telemetry(process.logdir) if record.kind == "stop"]
    assert re.fullmatch(r"ArithmeticError at loops\.py:\d+ in \w+: the loss exploded", stop.error)
    assert "After an error no checkpoint is saved. There is no checkpoint: all steps up to 3 are lost." in process.err


@pytest.mark.parametrize("facade", ["supervise", "torch_for"])
def test_a_loop_that_hangs_for_long_ends_at_once(start: Start, read_telemetry: Any, facade: str) -> None:
    """No step will end within the stop timeout; the end is recorded."""
    process = began(start, facade, How("hang_for_long", "stuck", signal.SIGTERM, options={**LONG, **HUNG})).end()
    assert process.status_text == "SIGTERM", process.err
    assert "No step ended (MainThread is at loops.py:" in process.err
    assert [record.reason for record in read_telemetry(process.logdir) if record.kind == "stop"] == ["signal"]


def test_another_chief(start: Start) -> None:
    """A session whose logdir another one has taken publishes nothing more, and ends with the error."""
    process = start("hang_until_stopped", facade="plain", lease_timeout_secs=4.0, **LONG)
    process.expect("ready")
    process.is_taken_over()
    row = table()["another chief took over"]["supervise"]
    assert row is not None and process.status_text == row.status and "LogdirInUseError" in process.err
    assert not list(Path(process.logdir, "checkpoints").glob("ckpt-*"))


def test_a_forked_child(start: Start, read_telemetry: Any) -> None:
    """It leaves the block at once and touches nothing; the parent trains on and ends as if there had been none."""
    process = start("fork", facade="plain").end()
    assert process.status == 0, process.err
    assert [line for line in process.lines if line.startswith("child")] == ["child ended with 0", "child ended with 1"]
    stops = [record for record in read_telemetry(process.logdir) if record.kind == "stop"]
    assert [stop.reason for stop in stops] == ["completed"]


@pytest.mark.parametrize("facade", LOOPS)
def test_save_signal(start: Start, read_telemetry: Any, facade: str) -> None:
    """A checkpoint of the step under way is saved, and training goes on to its end."""
    process = began(start, facade, How("saved_on_signal", options={"save_signal": "SIGUSR1"})).end()
    assert process.status == 0, process.err
    saved = [(each.trigger, each.step) for each in read_telemetry(process.logdir) if each.kind == "checkpoint"]
    assert ("signal", STEP_BEFORE + 1) in saved or ("signal", STEP_BEFORE + 2) in saved
    [stop] = [record for record in read_telemetry(process.logdir) if record.kind == "stop"]
    assert stop.reason == "completed"


UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


@pytest.mark.parametrize("program", ["loops", "program"])
def test_as_process_1(tmp_path: Path, read_telemetry: Any, program: str) -> None:
    """The first process of a container, which no signal without a handler can end, exits with the signal's status: what
    started it must not see a success."""
    if program == "program":
        pytest.importorskip("tensorflow")
    may = shutil.which("unshare") and not subprocess.run([*UNSHARE, "true"], capture_output=True, timeout=60).returncode
    if not may:
        pytest.skip("this user may not create a namespace of processes here (unshare --pid)")
    directory = Path(__file__).parent
    what = ["plain", "sigterm"] if program == "loops" else ["asks_and_ends_itself"]
    command = [sys.executable, str(directory / f"{program}.py"), *what, str(tmp_path / "run"), "{}"]
    ended = subprocess.run([*UNSHARE, *command], capture_output=True, text=True, timeout=200)
    row = table()["SIGTERM, as process 1"]["supervise"]
    assert row is not None and str(ended.returncode) == row.status == "143", ended.stderr
    [stop] = [record for record in read_telemetry(str(tmp_path / "run")) if record.kind == "stop"]
    assert (stop.reason, stop.final_checkpoint_step) == ("signal", stop.step)


@pytest.mark.parametrize("shell", [False, True])
def test_the_terminal_is_gone(tmp_path: Path, read_telemetry: Any, shell: bool) -> None:
    """A training that prints at each step is saved when its terminal is closed, whether SIGHUP or the failed print
    comes first; also where it is a shell that passes the signal on."""
    program = str(Path(__file__).with_name("loops.py"))
    command = shlex.join([sys.executable, program, "prints", "nothing", str(tmp_path / "run"), "{}"])
    pid, terminal = pty.fork()
    if not pid:
        os.execvp("bash", ["bash", "-c", f"{command}; true" if shell else f"exec {command}"])
    with os.fdopen(terminal, "rb", buffering=0) as screen:
        said = b""
        while b"trained 4" not in said:  # three steps are over then: of the fourth the print itself may fail
            said += screen.read(1000)
    os.waitpid(pid, 0)
    path = str(tmp_path / "run")
    records: list[Any] = []
    until = time.monotonic() + 100
    while not any(record.kind == "stop" for record in records):
        assert time.monotonic() < until, [record.kind for record in records]
        records = read_telemetry(path)
    [stop] = [record for record in records if record.kind == "stop"]
    assert (stop.reason, stop.signal) == ("signal", "SIGHUP")
    assert stop.final_checkpoint_step == stop.step >= 3
    assert json.dumps(stop.final_checkpoint)

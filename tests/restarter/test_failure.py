"""Why a launch ended, by its status and the end of its standard error."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from supervisor_core.restarter.failure import cause_of, failure_of, has_lost_another
from supervisor_core.restarter.policy import ChildEnd, EndedLaunch, Failure
from tests.cases import each

PROGRAM = """
import json
def step():
    json.loads("{")
try:
    step()
except ValueError as error:
    raise RuntimeError("of a step") from error
"""


def test_the_last_exception_and_the_programs_own_line_identify_a_failure(tmp_path: Path) -> None:
    """What Python itself prints: of chained errors the last one, of its frames the innermost outside the library."""
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "load.py").write_text("import json\ndef load():\n    json.loads('{')\nload()\n")
    (tmp_path / "wrong.py").write_text("def step(:\n")
    printed = {
        name: subprocess.run([sys.executable, str(tmp_path / name)], capture_output=True, text=True).stderr
        for name in ("train.py", "load.py", "wrong.py")
    }
    assert failure_of(printed["train.py"], None, 7) == Failure(
        type="RuntimeError", where="train.py:8 in <module>", step=7
    )
    assert failure_of(printed["load.py"], None, None) == Failure(type="JSONDecodeError", where="load.py:3 in load")
    syntax = failure_of(printed["wrong.py"], None, None)
    assert syntax is not None and syntax.type == "SyntaxError"


KILLED = """
Traceback (most recent call last):
  File "/x/train.py", line 30, in step
    optimizer.step()
  File "/venv/lib/python3.12/site-packages/torch/utils/data/_utils/signal_handling.py", line 73, in handler
    _error_if_any_worker_fails()
RuntimeError: DataLoader worker (pid 4711) is killed by signal: {}. {}
"""
EXITED = """
The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/x/train.py", line 28, in <module>
    for batch in loader:
RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly
"""


@each(
    "printed, how",
    [
        (KILLED.format("Killed", ""), "was killed by SIGKILL"),
        (KILLED.format("Killed", "") + EXITED, "was killed by SIGKILL"),
        (
            KILLED.format("Bus error", "Out of memory?"),
            "was killed by SIGBUS",
        ),
        (EXITED, "exited unexpectedly"),
    ],
)
def test_a_killed_worker_of_a_loader_is_the_place(printed: str, how: str) -> None:
    """PyTorch raises its error at any line of the trainer."""
    failure = Failure(type="RuntimeError", where=f"DataLoader worker (pid 4711) {how}", step=7)
    assert failure_of(printed, None, 7) == failure


TABLE = """
Traceback (most recent call last):
  File "/venv/bin/torchrun", line 7, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: 
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-01_10:00:00
  host      : machine
  rank      : 1 (local_rank: 1)
  exitcode  : {1} (pid: 12)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-01_10:00:00
  host      : machine
  rank      : 0 (local_rank: 0)
  exitcode  : {0} (pid: 11)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


def printed_by(rank: int, error: str) -> str:
    """What PyTorch prints of an error that ends a rank."""
    lines = ["Traceback (most recent call last):", f'  File "/x/a.py", line {rank + 3}, in f', error]
    return "".join(f"[rank{rank}]: {line}\n" for line in lines)


@each("printed", ["\n", "\n ", " ", "(", "a", "[rank1]: ", '  File "', "Thread 0x1", "a."])
def test_an_end_of_any_text_is_examined_at_once(printed: str) -> None:
    """256 KiB of it: an expression that goes back over blank lines would take minutes."""
    text = printed * (256 * 1024 // len(printed))
    assert failure_of(text, None, 3) is None
    error = "Traceback (most recent call last):\nValueError: DataLoader worker (pid " + "1" * len(text)
    assert str(failure_of(error, None, 3)) == "ValueError"
    assert has_lost_another(text) is printed.startswith("[rank")


def test_the_rank_that_failed_first_is_the_failure_of_torchrun() -> None:
    """And not the error that torchrun raises for it, nor that of a rank which has lost another one."""
    lost = "RuntimeError: [tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:9429"
    own = printed_by(1, "KeyError: 1") + printed_by(0, lost)
    one = failure_of((own + TABLE.format(1, 1)), None, 5)
    assert one == Failure(type="KeyError", where="a.py:4 in f", step=5, rank=1)
    assert str(one) == "KeyError at a.py:4 in f on rank 1"
    killed = failure_of((printed_by(0, lost) + TABLE.format(1, -9)), None, 5)
    assert killed == Failure(type="SIGKILL", step=5, rank=1) and str(killed) == "SIGKILL on rank 1"
    error_first = failure_of((printed_by(0, "KeyError: 1") + TABLE.format(1, -9)), None, 5)
    assert error_first == Failure(type="KeyError", where="a.py:3 in f", step=5, rank=0)  # torchrun has killed the other
    all_lost = failure_of((printed_by(0, lost) + TABLE.format(1, -15)), None, None)
    assert all_lost == Failure(type="RuntimeError", where="a.py:3 in f", rank=0)
    silent = failure_of(TABLE.format(1, 1), None, None)
    assert silent is not None and (silent.type, silent.rank) == ("ChildFailedError", None)


LIGHTNINGS = (
    "[rank: {}] Child process with PID 8082 terminated with code {}. Forcefully terminating all other processes"
)


def test_the_rank_that_failed_first_is_the_failure_of_lightnings_launcher() -> None:
    """Which is rank 0 itself: it fails when it loses that rank, or kills itself by SIGKILL."""
    lost = "RuntimeError: [tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:9429"
    first = Failure(type="KeyError", where="a.py:4 in f", step=5, rank=1)
    for order in ((1, 2, 0), (0, 2, 1), (2, 0, 1)):
        printed = "".join(printed_by(rank, "KeyError: 1" if rank == 1 else lost) for rank in order)
        assert failure_of(printed, None, 5) == first
        assert failure_of(printed, signal.SIGKILL, 5) == first
    named = printed_by(1, "KeyError: 1") + LIGHTNINGS.format(1, 1)
    assert failure_of(named, signal.SIGKILL, 5) == first
    end = ChildEnd(signal=signal.SIGKILL)
    assert cause_of(EndedLaunch(end=end, failure=first), asked_to_stop=False, is_hung=False, never=()) == "error"
    killed = printed_by(2, lost) + LIGHTNINGS.format(1, -9)
    assert failure_of(killed, signal.SIGKILL, 5) == Failure(type="SIGKILL", step=5, rank=1)
    by_launcher = printed_by(0, "KeyError: 1") + LIGHTNINGS.format(1, -9)  # which has killed it
    assert failure_of(by_launcher, None, 5) == Failure(type="KeyError", where="a.py:3 in f", step=5, rank=0)
    whole = Failure(type="SIGKILL", step=5)  # of a job whose first process was killed, and the others lost it
    assert failure_of((printed_by(1, lost) + printed_by(2, lost)), signal.SIGKILL, 5) == whole
    of_rank_0 = printed_by(0, "KeyError: 1") + printed_by(1, lost)
    assert failure_of(of_rank_0, None, 5) == Failure(type="KeyError", where="a.py:3 in f", step=5, rank=0)


def test_who_has_only_lost_another_rank() -> None:
    """Where each rank with an error has lost one that is not below the same torchrun, or torchrun has ended it."""
    lost = "RuntimeError: [tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:9429"
    assert has_lost_another(printed_by(0, lost) + TABLE.format(1, -15))
    assert has_lost_another(printed_by(0, lost))
    assert not has_lost_another(printed_by(0, lost) + TABLE.format(1, -9))
    assert not has_lost_another(printed_by(1, "KeyError: 1") + printed_by(0, lost) + TABLE.format(1, 1))
    assert not has_lost_another(printed_by(0, "KeyError: 1"))
    assert not has_lost_another("Connection reset\n") and not has_lost_another("")


def test_a_fatal_signal_has_the_line_that_the_fault_handler_printed(tmp_path: Path) -> None:
    """Else two segmentation faults have nothing in common but the signal."""
    code = "import ctypes, faulthandler\nfaulthandler.enable()\ndef step():\n    ctypes.string_at(0)\nstep()\n"
    (tmp_path / "train.py").write_text(code)
    done = subprocess.run([sys.executable, str(tmp_path / "train.py")], capture_output=True, text=True)
    assert failure_of(done.stderr, -done.returncode, 3) == Failure(type="SIGSEGV", where="train.py:4 in step", step=3)


@each(
    "end, given, cause",
    [
        ({"exit_code": 0}, {}, "completed"),
        ({"exit_code": 0}, {"was_stopped": True}, "preempted"),
        ({"signal": signal.SIGTERM}, {}, "preempted"),
        ({"exit_code": 143}, {}, "preempted"),
        ({"signal": signal.SIGTERM}, {"asked_to_stop": True}, "stopped"),
        ({"signal": signal.SIGTERM}, {"is_hung": True}, "hang"),
        ({"exit_code": 75}, {}, "requested"),
        ({"exit_code": 93}, {}, "refused"),
        ({"exit_code": 127, "not_started": "No such file or directory"}, {}, "not_started"),
        ({"signal": signal.SIGKILL, "oom_kills": 1}, {}, "oom"),
        ({"exit_code": 1, "oom_kills": 1}, {}, "oom"),
        ({"signal": signal.SIGKILL}, {}, "signal"),
        ({"exit_code": 1}, {"failure": Failure(type="LogdirInUseError")}, "in_use"),
        (
            {"exit_code": 1, "stderr": "The logdir /a is in use by this very process (session b)"},
            *({"failure": Failure(type="LogdirInUseError")}, "error"),
        ),
        ({"exit_code": 1}, {}, "error"),
    ],
)
def test_the_cause_of_an_end(end: dict[str, Any], given: dict[str, Any], cause: str) -> None:
    """Each by what sets it apart."""
    how = {name: given.get(name, False) for name in ("asked_to_stop", "is_hung")}
    launch = EndedLaunch(end=ChildEnd(**end), **{name: value for name, value in given.items() if name not in how})
    assert cause_of(launch, never=(93,), **how) == cause

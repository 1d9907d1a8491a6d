"""Keras: a fit that is interrupted goes on bit by bit, on each backend, or says by name why not."""

from __future__ import annotations

import signal
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from trial import run_of

from supervisor_core.checkpoint.manifest import read_manifest
from supervisor_core.training.state import MID_STEP

BACKENDS = [name for name in ("tensorflow", "jax", "torch") if find_spec(name)]
if not find_spec("keras") or not BACKENDS:
    pytest.skip("keras is not installed: make test-frameworks has it", allow_module_level=True)

PROGRAM = Path(__file__).parent / "keras_program.py"
Fit = Callable[..., tuple[int, list[str]]]
pytestmark = pytest.mark.timeout(900)  # each process compiles its steps


@pytest.fixture(params=BACKENDS)
def fit(request: pytest.FixtureRequest, starter_of: Callable[..., Any]) -> Fit:
    """Runs the program; its status, and what it said."""

    def run(logdir: Path, *arguments: str) -> tuple[int, list[str]]:
        starter = starter_of("keras", request.param)
        done = starter.run([str(PROGRAM), str(logdir), *arguments], {"OMP_NUM_THREADS": "1"})
        return done.returncode, done.stdout.splitlines()

    return run


def test_an_interrupted_fit_goes_on_bit_by_bit(tmp_path: Path, fit: Fit) -> None:
    """Killed in the middle of the second epoch, then stopped by SIGTERM in an evaluation and in a first step: the same
    bits of each batch's loss, of the evaluations, of the learning rate that ReduceLROnPlateau has set, and of the
    weights at the end. A second fit that ended with an error goes on, too, and the first one is not made again;
    after a Ctrl-C in an interpreter the next fit of the same process goes on in it."""
    status, both = fit(tmp_path / "truth", "--twice")
    truth, second = both[:23], both[23:]
    assert (status, second[0], len(second)) == (0, "exact", 1 + 6 * 3 + 3 + 2)
    run = tmp_path / "run"
    assert fit(run, "SIGKILL", "1 4") == (-signal.SIGKILL, truth[:11])
    # The last batch that was consumed is shown to the callbacks after ours.
    assert fit(run, "SIGTERM", "test 1 0") == (-signal.SIGTERM, ["exact", *truth[8:13]])
    # In the first step of a process, which is compiled.
    assert fit(run, "SIGTERM", "2 0") == (-signal.SIGTERM, ["exact", *truth[12:14]])
    assert fit(run) == (0, ["exact", *truth[14:]])
    found = run_of(run)
    assert [session.outcome for session in found.sessions] == ["lost", "signal", "signal", "completed"]
    assert [session.last_step for session in found.sessions][1:] == [12, 13, 18]

    again = tmp_path / "again"
    assert fit(again, "--twice", "error", "1 4") == (0, [*truth, *second[:12], "error the loss exploded"])
    status, lines = fit(again, "--twice", "interrupt", "2 5")
    resumed = ["exact", *second[9:20], "interrupted by KeyboardInterrupt", "exact", *second[18:]]
    assert (status, lines[:2], lines[3:]) == (0, ["exact", "history []"], resumed)
    found = run_of(again)
    outcomes = [session.outcome for session in found.sessions]
    assert outcomes == ["completed", "error", "completed", "signal", "completed"]


@pytest.mark.parametrize("fit", [name for name in BACKENDS if name != "torch"], indirect=True)
def test_several_batches_in_one_call(tmp_path: Path, fit: Fit) -> None:
    """A step is one call. After an exception that the program handles, its next fit goes on, with another model."""
    status, lines = fit(tmp_path, "--in-one-process")
    truth, run = lines[:14], lines[14:]
    assert status == 0 and [line.split()[0] for line in truth[:4]] == ["0", "0", "0", "epoch"]
    assert run == [*truth[:9], "exact", *truth[4:]]


def test_data_without_a_known_length(tmp_path: Path, fit: Fit) -> None:
    """Its end comes in a step that Keras has begun: the evaluation after it, and the last checkpoint, are of no half
    step."""
    assert fit(tmp_path, "--of-a-generator") == (0, ["within a step: False"])
    (path,) = (tmp_path / "checkpoints").iterdir()
    assert MID_STEP not in read_manifest(str(path)).not_captured

"""What is observed of a resume after a kill, facade by facade: `facade_program.py` is the training."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from trial import NEEDS, Train, run_of

ALL = [name for name in NEEDS if name != "torch, for"]
pytestmark = pytest.mark.timeout(900)  # frameworks are loaded in each process


@pytest.mark.parametrize("broken", (0, 1), ids=("exact", "broken"))
@pytest.mark.parametrize("facade", ALL, indirect=True)
def test_what_is_done_again_after_a_kill_is_compared(tmp_path: Path, train: Train, facade: str, broken: int) -> None:
    """Equal losses are observed as exact; a program whose batches depend on what no checkpoint has is observed not to
    be, whatever its framework's verdict is without."""
    killed = train(facade, tmp_path, 20, every=4, log=1, kill_at=15, broken=broken)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = train(facade, tmp_path, 20, every=4, log=1, broken=broken)
    assert done.returncode == 0, done.stderr
    resumed = run_of(tmp_path).sessions[-1]
    check = resumed.resume_check
    assert resumed.restored_step == 12 and check is not None, done.stderr
    if broken:
        assert check.is_equal is False and "loss" in (check.tag or "") and check.step in (12, 13)
        assert resumed.resume_exact is False and resumed.resume_reasons[0] == f"{check.text}."
        assert f"The resume is not exact: {check.text}" in done.stderr
    else:
        assert check.is_equal and check.what == "losses" and check.compared == check.equal >= 2


@pytest.mark.parametrize(
    ("facade", "broken"),
    [("torch", 0), ("torch", 1), ("lightning", 0), ("lightning", 1), ("keras", 0), ("keras", 1), ("jax", 0)],
    indirect=["facade"],
)
def test_without_a_logged_value_the_trained_state_is_compared(
    tmp_path: Path, train: Train, facade: str, broken: int
) -> None:
    """Digests of the weights, noted after one, two ... steps since a checkpoint."""
    killed = train(facade, tmp_path, 20, every=4, kill_at=15, broken=broken, log=0)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = train(facade, tmp_path, 20, every=4, broken=broken, log=0)
    assert done.returncode == 0, done.stderr
    check = run_of(tmp_path).sessions[-1].resume_check
    assert check is not None and check.what == "states", done.stderr
    if broken:
        assert check.is_equal is False and (check.tag or "").startswith("state of ") and check.step in (13, 14)
    else:
        assert check.is_equal and check.compared == check.equal >= 1


VERIFIES = ("torch", "lightning", "keras", "jax")


@pytest.mark.parametrize("facade", VERIFIES, indirect=True)
def test_steps_before_a_clean_stop_are_recomputed_where_that_is_asked_for(
    tmp_path: Path, train: Train, facade: str
) -> None:
    """The checkpoint of the stop is passed over, and one some steps before it restored."""
    stopped = train(facade, tmp_path, 20, every=4, log=1, stop_at=14)
    assert stopped.returncode == -signal.SIGTERM, stopped.stderr
    reached = run_of(tmp_path).sessions[-1].last_step
    assert reached in (14, 15, 16)
    done = train(facade, tmp_path, 20, every=4, log=1, verify=3)
    assert done.returncode == 0, done.stderr
    resumed = run_of(tmp_path).sessions[-1]
    check = resumed.resume_check
    assert resumed.restored_step == (8 if reached < 15 else 12) and check is not None, done.stderr
    assert check.is_equal and check.compared >= 2
    assert run_of(tmp_path).step == 20


@pytest.mark.parametrize("facade", [name for name in ALL if name not in ("supervise", *VERIFIES)], indirect=True)
def test_a_facade_that_cannot_recompute_steps_refuses_to(tmp_path: Path, train: Train, facade: str) -> None:
    """By an error that names the option, before it trains."""
    done = train(facade, tmp_path, 20, every=4, log=1, verify=3)
    assert done.returncode == 1 and "OptionsError: Options.verify_resume is 3; " in done.stderr, done.stderr

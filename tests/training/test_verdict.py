"""What a program's log says of its resume, at the level that a program has which configures none."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from supervisor_core import Options, supervise
from supervisor_core.training.state import NO_DATA_POSITION


def _train(logdir: Path, steps: int, *, has_data: bool, options: Options | None = None) -> str:
    state = {"data" if has_data else "count": {"next": 0}}
    with supervise(logdir, state=state, save_secs=None, save_steps=1, options=options) as run:
        for step in run.steps(steps):
            run.wait_until_saved()
            run.log("loss", 1.0 / (1 + step))
    assert run.exactness is None or run.exactness.verdict
    return "" if run.exactness is None else run.exactness.verdict


def _said(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    caplog.clear()
    return lines


def test_the_first_save_says_what_a_resume_will_lack_and_the_resume_says_it_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning in the first session, one line at the resume: from where, at which step, the verdict."""
    _train(tmp_path, 3, has_data=False)
    assert _said(caplog) == [f"A resume from the checkpoint of step 1 will not be exact: {NO_DATA_POSITION}"]
    assert _train(tmp_path, 5, has_data=False) == f"not exact: {NO_DATA_POSITION}"
    newest = tmp_path / "checkpoints" / "ckpt-3"
    assert _said(caplog) == [f"Resumed from {newest} at step 3: not exact: {NO_DATA_POSITION}"]


@pytest.mark.parametrize(
    ("verify_resume", "verdict"), [(0, "not observed"), (2, "observed exact (2 of 2 recomputed losses equal)")]
)
def test_a_resume_says_what_would_observe_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, verify_resume: int, verdict: str
) -> None:
    """After a clean stop nothing is recomputed, unless it is asked for."""
    with supervise(tmp_path, state={"data": {"next": 0}}, save_secs=None, save_steps=1) as run:
        for step in run.steps(9):
            run.wait_until_saved()
            run.log("loss", 1.0 / (1 + step))
            if step == 4:
                run.request_stop()
    assert _said(caplog) == []
    assert _train(tmp_path, 9, has_data=True, options=Options(verify_resume=verify_resume)) == verdict
    step = 5 - verify_resume
    lines = {
        0: [f"step {step}: not observed; Options(verify_resume=20) would recompute 20 steps and compare them."],
        2: [f"step {step}: not observed yet; 2 recomputed steps will be compared.", f"The resume is {verdict}."],
    }[verify_resume]
    said = _said(caplog)
    assert len(said) == len(lines) and all(map(str.endswith, said, lines)), said

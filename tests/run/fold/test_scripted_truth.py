"""The model against a script that knows where each second of a run went."""

from __future__ import annotations

import pytest

from benchmarks.goodput import GOAL_POINTS, Script, foreign
from supervisor_core.run.model.run import Run


@pytest.fixture(scope="module")
def scripted() -> tuple[Script, Run]:
    """A run of hours, of six sessions, each of which ended otherwise; and what its records say of it."""
    script = Script(5, peer=False)
    return script, script.run()


def test_every_bucket_is_right(scripted: tuple[Script, Run]) -> None:
    """Killed in several phases, frozen, hung, with a full disk, and dead at the end: within a tenth of a point."""
    script, run = scripted
    wall = script.ended - script.began
    assert len(run.sessions) == 6
    for happened in ("silent", "stall", "at_risk", "wasted_progress_from_disruption"):
        assert script.truth[happened] > 0
    for bucket, secs in script.truth.items():
        assert run.goodput.secs[bucket] == pytest.approx(secs, abs=wall * GOAL_POINTS / 100), bucket
    assert run.goodput.ratio == pytest.approx(script.truth["productive"] / wall, abs=GOAL_POINTS / 100)


def test_what_is_at_risk_is_what_was_not_saved(scripted: tuple[Script, Run]) -> None:
    """The steps since the last save of the last session, at least those that it reported."""
    script, run = scripted
    assert run.at_risk is not None
    assert run.at_risk.saved_step == script.saved_step
    assert 0 < run.at_risk.steps <= script.step - script.saved_step


def test_another_writer_s_run_has_no_goodput() -> None:
    """Moving or stalled: the use of its time is unknown."""
    (row,) = foreign(quick=True)
    assert row.met

"""Kept means saved: steps after the last checkpoint of a run that came to a bad end are at risk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from supervisor_core.run.model.run import AtRisk, Run
from tests.cases import each

RunOf = Callable[..., Run]
FULL = "OSError: [Errno 28] No space left on device"


def test_what_a_lost_run_did_after_its_last_checkpoint_is_at_risk(killed: Any, run_of: RunOf) -> None:
    """How many steps, how many seconds, after which one; they are not productive. While it is alive they are."""
    alive, lost = run_of(killed, now=killed.now), run_of(killed, now=killed.now + 600)
    assert (alive.at_risk, alive.goodput.secs["at_risk"]) == (None, 0.0)
    assert lost.state == "lost"
    assert lost.at_risk == AtRisk(steps=187, secs=lost.goodput.secs["at_risk"], saved_step=1000)
    assert lost.at_risk.secs == pytest.approx(187, abs=1.5)
    assert lost.goodput.secs["productive"] == pytest.approx(1000, abs=1.5)
    assert sum(lost.goodput.secs.values()) == lost.goodput.wall_secs
    assert "at_risk" not in lost.goodput.booked_secs


def test_a_restart_decides_what_becomes_of_them(killed: Any, resumed: Any, run_of: RunOf) -> None:
    """Restored from the checkpoint, they are wasted; at risk is what the later session has not saved, if it is lost."""
    assert run_of(killed, resumed, now=resumed.now).at_risk is None
    lost = run_of(killed, resumed, now=resumed.now + 600)
    assert lost.at_risk is not None
    assert (lost.at_risk.steps, lost.at_risk.saved_step) == (299, 1000)
    assert lost.goodput.secs["wasted_progress_from_disruption"] == pytest.approx(187 + 5, abs=2)


@each("reason", ["error", "signal", "completed"])
def test_a_failed_run_s_unsaved_steps_are_at_risk(trainer: Any, run_of: RunOf, reason: str) -> None:
    """An error saves nothing at its end. A run that ended as planned is believed to have saved what it wanted to."""
    session = trainer().ready().train(100).save(blocked_secs=0.0).train(20).stop(reason)
    at_risk = run_of(session).at_risk
    assert (at_risk and at_risk.steps) == (20 if reason == "error" else None)


@each("end", ["", "signal", "completed"])
def test_a_run_whose_saves_all_failed_kept_nothing(trainer: Any, run_of: RunOf, end: str) -> None:
    """Running or ended as planned: no step is kept, and none is productive."""
    session = trainer().ready()
    for _ in range(18):
        session.train(10).save(error=FULL, blocked_secs=0.0)
    if end:
        session.stop(end)
    run = run_of(session, now=session.now)
    assert run.at_risk == AtRisk(steps=180, secs=run.goodput.secs["at_risk"], saved_step=None)
    assert run.goodput.secs["productive"] == run.goodput.ratio == 0.0


def test_a_last_save_that_failed_leaves_steps_at_risk(trainer: Any, run_of: RunOf) -> None:
    """At once, and in a run that ended as planned: it kept what the save before holds."""
    session = trainer().ready().train(100).save(blocked_secs=0.0).train(20).save(error=FULL, blocked_secs=0.0)
    for run in (run_of(session, now=session.now), run_of(session.stop("completed"))):
        assert run.at_risk is not None
        assert (run.at_risk.steps, run.at_risk.saved_step) == (20, 100)


def test_only_checkpoints_that_are_there_keep_steps(trainer: Any, fold_of: Any) -> None:
    """One that was deleted keeps nothing; the one before it may."""
    session = trainer().ready().train(100).save().train(100).save().train(55).beat()
    fold, now = fold_of(session), session.now + 600
    steps = {
        gone: fold.run(now, lambda path, gone=gone: not path.endswith(gone)).at_risk.steps for gone in ("-200", "x")
    }
    assert steps == {"-200": 155, "x": 55}


def recovered(trainer: Any) -> list[Any]:
    """A recovery that restored an earlier checkpoint than the newest: steps are at risk from there on."""
    return [trainer().ready().train(100).save().train(100).save().train(30).recover(100).train(50).beat()]


def without_a_checkpoint(trainer: Any) -> list[Any]:
    """Lost before its first save."""
    return [trainer().ready().train(50).beat()]


def died_before_it_restored(trainer: Any) -> list[Any]:
    """The checkpoint of the session before is what there is."""
    first = trainer("a").ready().train(100).save().train(50).beat()
    return [first, trainer("b", first.now + 60, attempt=2).spend(15)]


def adopted(trainer: Any) -> list[Any]:
    """A chief that found its model alive restored nothing: what counts is the last save of the run."""
    first = trainer("a").ready().train(100).save().train(50)
    return [first, trainer("b", first.now + 60, attempt=2).ready(149, adopted=True).train(30).beat()]


@each(
    "made, steps, secs, saved_step",
    [
        (recovered, 50, 50, 100),
        (without_a_checkpoint, 50, 50, None),
        (died_before_it_restored, 50, 50, 100),
        (adopted, 79, 80, 100),
    ],
)
def test_steps_since_what_would_be_restored_are_at_risk(
    trainer: Any, run_of: RunOf, made: Callable[[Any], list[Any]], steps: int, secs: float, saved_step: int | None
) -> None:
    """Whatever the way on which a lost run came to them."""
    at_risk = run_of(*made(trainer), now=2e9).at_risk
    assert at_risk == AtRisk(steps=steps, secs=pytest.approx(secs, abs=12), saved_step=saved_step)


def test_nothing_is_concluded_of_another_writer_s_run(events_file: Any, run_of: RunOf) -> None:
    """Its checkpoints are unknown."""
    assert (
        run_of(events_file("/run/events.out.tfevents.1000.host", 1000.0).scalars("loss", range(99), 1e3)).at_risk
        is None
    )

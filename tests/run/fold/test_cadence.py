"""How long another writer's run may be silent, and how fast it goes, by its points alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.model.run import Run

RunOf = Callable[..., Run]
T = 1_600_000_000.0


def budget(run: Run) -> float | None:
    """What the run's newest session may be silent for."""
    return run.sessions[-1].progress_timeout_secs


@pytest.fixture
def log(events_file: Any) -> Any:
    """An events file of a writer that says nothing of itself."""
    return events_file(f"/run/events.out.tfevents.{int(T)}.host.1.0", T)


@pytest.mark.parametrize(("gap", "expected"), [(0.01, 600.0), (5.0, 600.0), (90.0, 900.0), (3600.0, 36_000.0)])
def test_ten_usual_gaps_but_no_less_than_ten_minutes(log: Any, run_of: RunOf, gap: float, expected: float) -> None:
    """A writer of one point an epoch is given ten epochs; the usual gap is known to a fifth of it."""
    found = budget(run_of(log.scalars("loss", range(50), T, secs=gap), now=T))
    assert found == pytest.approx(expected, rel=0.2)


def test_an_evaluation_is_no_silence(log: Any, run_of: RunOf) -> None:
    """Twice the longest gap so far: the next evaluation may last as long as the one before."""
    log.scalars("loss", range(100), T, secs=5.0).scalars("loss", range(100, 200), T + 2000, secs=5.0)
    assert budget(run_of(log, now=T)) == pytest.approx(2 * (2000 - 99 * 5))


def test_many_tags_at_one_moment_are_one_point(log: Any, run_of: RunOf) -> None:
    """Twenty tags written at once every minute have a gap of a minute, not of a millisecond."""
    for moment in range(30):
        for tag in range(20):
            log.scalar(f"tag-{tag}", moment, T + 60 * moment + tag / 1000)
    assert budget(run_of(log, now=T)) == pytest.approx(600.0, rel=0.2)


def test_running_until_the_budget_is_over(log: Any, run_of: RunOf) -> None:
    """A run of one point an hour is running between two of them; silent for ten, nothing is known."""
    log.scalars("loss", range(20), T, secs=3600.0)
    last = T + 19 * 3600
    allowed = budget(run_of(log, now=last)) or 0.0
    assert run_of(log, now=last + allowed - 1).state == "running"
    assert run_of(log, now=last + allowed + 1).state == "unknown"


def test_one_that_ended_by_itself_has_no_budget(log: Any, run_of: RunOf) -> None:
    """A STOP is an end: nothing is waited for."""
    run = run_of(log.scalars("loss", range(9), T).log("STOP", 0, T + 10), now=T + 20)
    assert (run.state, budget(run)) == ("stopped", None)


@pytest.mark.parametrize("cuts", [(), (1,), (3, 4, 5), tuple(range(1, 60))])
def test_however_the_file_is_cut(log: Any, run_of: RunOf, cuts: tuple[int, ...]) -> None:
    """Budget and speed do not depend on when it was looked at."""
    for step in range(30):
        log.scalar("loss", step, T + 90 * step).scalar("other", step, T + 90 * step + 3)
    fold = RunFold("r")
    for chunk in log.chunks(cuts):
        fold.update([chunk])
    run = fold.run(T + 2800)
    assert budget(run) == budget(run_of(log, now=T))
    assert run.steps_per_sec == pytest.approx(1 / 90)


def test_times_that_are_none(log: Any, run_of: RunOf) -> None:
    """Wall times of 0, of the far future or that are no number break nothing."""
    for step, at in enumerate([0.0, float("nan"), T, 1e300, float("inf"), T + 1]):
        log.scalar("loss", step, at)
    assert (budget(run_of(log, now=T)) or 0.0) >= 600.0


@pytest.mark.parametrize("gap", [0.001, 0.2, 0.99])
def test_points_without_a_pause_have_a_usual_gap(log: Any, run_of: RunOf, gap: float) -> None:
    """Of a second: such a program may fall silent as any other. What was written at one moment has none."""
    of_a_while = run_of(log.scalars("loss", range(2000), T, secs=gap), now=T)
    assert of_a_while.sessions[-1].usual_gap_secs == 1.0


def test_one_moment_has_no_usual_gap(log: Any, run_of: RunOf) -> None:
    """As what `add_hparams` writes."""
    assert run_of(log.scalars("loss", range(5), T, secs=0.01), now=T).sessions[-1].usual_gap_secs is None

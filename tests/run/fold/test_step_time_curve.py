"""A curve of any length takes little memory, and stays close to what was added."""

from __future__ import annotations

import random

from supervisor_core.run.fold.step_time_curve import ERROR_SECS, NEWEST_POINTS, OLD_POINTS, Polyline, StepTimeCurve
from supervisor_core.run.model.checkpoints import KEPT_SAVES, KEPT_UNSEEN, Checkpoint, save_key, useless_saves
from tests.cases import each


@each("seed", range(3))
def test_each_dropped_point_is_close_to_the_line(seed: int) -> None:
    """Within the error, whatever the points do."""
    draw = random.Random(seed)
    line, points, x, y = Polyline(0.5), [], 0, 0.0
    for _ in range(2_000):
        x, y = x + draw.randrange(1, 50), y + draw.random() * draw.choice((0.1, 1.0, 20.0))
        points.append((x, y))
        line.add(x, y)
    assert 2 < len(line) < len(points)
    kept = list(zip(line.xs, line.ys, strict=True))
    assert {kept[0], kept[-1]} == {points[0], points[-1]}
    at = 0
    for x, y in points:
        while kept[at + 1][0] < x:
            at += 1
        (x0, y0), (x1, y1) = kept[at : at + 2]
        assert abs(y0 + (y1 - y0) * (x - x0) / (x1 - x0) - y) <= 0.5 + 1e-9


def test_two_days_of_steps_take_no_more_than_the_bound() -> None:
    """Steps of some 0.27 s: all seconds are within six, those of the last ten minutes within a twentieth."""
    draw, curve, points, secs, step = random.Random(1), StepTimeCurve(0), [], 0.0, 0
    for _ in range(20_000):
        taken = draw.randrange(30, 45)
        step, secs = step + taken, secs + sum(0.27 + draw.gauss(0.0, 0.03) for _ in range(taken))
        curve.reached(step, secs)
        points.append((step, secs))
    assert len(curve) <= OLD_POINTS + 2 * NEWEST_POINTS
    assert max(abs(curve.secs_at(step) - secs) for step, secs in points) < 6.0
    assert max(abs(curve.secs_at(step) - secs) for step, secs in points[-NEWEST_POINTS:]) <= ERROR_SECS


def save(number: int, *, on_disk: bool | None, error: str | None = None) -> Checkpoint:
    """A save, ten minutes after the one before."""
    path = None if error else f"/runs/a/model.ckpt-{number}"
    return Checkpoint(session="s", path=path, step=number, at=600.0 * number, on_disk=on_disk, error=error)


def kept(saves: list[Checkpoint]) -> list[int | None]:
    """The steps of the saves that are not useless."""
    useless = useless_saves(saves)
    return [saved.step for saved in saves if save_key(saved) not in useless]


def test_saves_whose_files_are_gone_say_nothing_of_the_present() -> None:
    """The newest are kept, and each that is there, however old."""
    saves = [save(number, on_disk=number in (3, 97, 98, 99)) for number in range(100)]
    assert kept(saves) == [3, *range(100 - KEPT_SAVES, 100)]


def test_where_it_is_unknown_which_files_exist_more_are_kept() -> None:
    """A copy of the events files alone."""
    assert kept([save(number, on_disk=None) for number in range(100)]) == [*range(100 - KEPT_UNSEEN, 100)]


def test_the_newest_good_save_and_the_first_failure_since_are_kept() -> None:
    """They say since when saves fail, and from which step on nothing is saved."""
    good = [save(number, on_disk=False) for number in range(50)]
    bad = [save(number, on_disk=None, error="disk full") for number in range(50, 100)]
    assert kept([*good, *bad]) == [49, 50, *range(100 - KEPT_SAVES, 100)]


def test_few_saves_are_all_kept() -> None:
    """Forgetting a few would change the run at each look."""
    saves = [save(number, on_disk=False) for number in range(2 * KEPT_SAVES)]
    assert kept(saves) == [*range(2 * KEPT_SAVES)]

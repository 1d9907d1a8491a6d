"""What has happened to a run's checkpoints since they were saved, and which is the last good one."""

from __future__ import annotations

import math
from typing import Any

from supervisor_core.events.telemetry import CheckpointRecord
from supervisor_core.run.model.checkpoints import Checkpoint
from tests.cases import each

SKIPPED = ({"path": "/other/mount/model.ckpt-20", "reason": "it is cut"},)


def save(session: Any, doubt: str | None = None) -> Any:
    """Record a save of the present step, in doubt or not."""
    path = f"/run/model.ckpt-{session.step}"
    record = CheckpointRecord(session=session.id, trigger="timer", path=path, step=session.step, doubt=doubt)
    session.file.record(record, session.step, session.now)
    return session


def states(run: Any) -> list[tuple[int | None, str]]:
    """Step and status of each save."""
    return [(item.step, item.status) for item in run.checkpoints]


def test_what_a_later_session_passed_over_is_damaged(trainer: Any, fold_of: Any) -> None:
    """With its reason, wherever the later one has seen it; and set aside, as soon as that is so. What the later one
    saves under the same name is another checkpoint."""
    one = save(save(trainer("a").ready().train(10)).train(10))
    two = trainer("b", one.now + 60, attempt=2).ready(10, skipped=SKIPPED).train(10)
    fold = fold_of(one, two)
    there = {"/run/model.ckpt-10", "/run/model.ckpt-20"}
    run = fold.run(two.now, lambda path: path in there)
    assert states(run) == [(10, "on disk"), (20, "damaged, on disk: it is cut")]
    assert (run.last_good.step, run.checkpoints[1].is_there) == (10, False)
    there = {"/run/model.ckpt-10", "/run/model.ckpt-20.damaged"}
    run = fold.run(two.now, lambda path: path in there)
    assert states(run)[1] == (20, "damaged, set aside: it is cut")
    there.add("/run/model.ckpt-20")
    run = fold_of(one, save(two)).run(two.now, lambda path: path in there)
    assert states(run)[1:] == [(20, "damaged, set aside: it is cut"), (20, "on disk")]
    assert run.checkpoints[1].moved_to == "/run/model.ckpt-20.damaged"
    assert [item.status for item in fold.run(two.now).checkpoints] == ["", "damaged: it is cut"]
    run = fold.run(two.now, lambda path: False)
    assert states(run) == [(10, "deleted"), (20, "damaged, deleted: it is cut")]


def test_one_that_is_set_aside_without_a_word_is_seen_on_disk(trainer: Any, fold_of: Any) -> None:
    """A session that reads older ones back may find one damaged, too; no record has the reason, the directory has."""
    one = save(trainer("a").ready().train(10))
    run = fold_of(one).run(one.now, lambda path: path == "/run/model.ckpt-10.damaged")
    assert states(run) == [(10, "damaged, set aside")] and run.last_good is None


def test_a_second_name_keeps_a_checkpoint(trainer: Any, fold_of: Any) -> None:
    """Where a framework has deleted the first one."""
    one = save(save(trainer("a").ready().train(10)).train(1), "There is NaN.")
    run = fold_of(one).run(one.now, lambda path: path in {"/run/last-good-model.ckpt-10", "/run/model.ckpt-11"})
    assert states(run) == [(10, "on disk as last-good-model.ckpt-10"), (11, "on disk; in doubt: There is NaN.")]
    assert run.last_good is run.checkpoints[0]


def test_the_last_good_one_is_from_before_the_loss_went_wrong(trainer: Any, run_of: Any) -> None:
    """Also where no checkpoint is in doubt by itself: an older program did not look. The stretch without a finite
    value may have begun in an earlier session; an earlier stretch, that is over, does not count."""
    one = trainer("a").ready()
    for step in range(1, 10):
        one.train(1).file.scalar("loss", step, one.now, math.nan if step in (2, 7, 8, 9) else 1.0)
        save(one)
    run = run_of(one)
    assert (run.loss_nonfinite_since, run.last_good.step) == (7, 6)
    two = trainer("b", one.now + 60, attempt=2).ready(9)
    for step in (10, 11):
        two.train(1).file.scalar("loss", step, two.now, math.nan)
    run = run_of(one, two)
    assert (run.loss_finite, run.loss_nonfinite_since, run.last_good.step) == (False, 7, 6)
    two.file.scalar("loss", 12, two.now, 1.0)
    run = run_of(one, two)
    assert (run.loss_finite, run.loss_nonfinite_since, run.last_good.step) == (True, None, 9)


@each("cuts", [(), (2,), (1, 2, 3, 4, 5)])
def test_the_stretch_does_not_depend_on_how_the_file_was_read(events_file: Any, cuts: tuple[int, ...]) -> None:
    """In one piece, or value by value."""
    from supervisor_core.run.fold.run_fold import RunFold

    file = events_file("/run/events.out.tfevents.1.host", 1.0)
    for step, value in enumerate([math.nan, 1.0, math.inf, math.nan, math.nan]):
        file.scalar("loss", step, 2.0 + step, value)
    fold = RunFold("run")
    for chunk in file.chunks(cuts):
        fold.update([chunk])
    assert fold.run(10.0).loss_nonfinite_since == 2


@each(
    "changes, status",
    [
        ({}, "on disk"),
        ({"on_disk": None}, ""),
        ({"on_disk": None, "doubt": "There is NaN."}, "in doubt: There is NaN."),
        ({"on_disk": False, "doubt": "There is NaN."}, "deleted"),
        ({"error": "no space"}, "failed: no space"),
    ],
)
def test_the_words(changes: dict[str, Any], status: str) -> None:
    """What matters now: why a deleted one was in doubt does not."""
    given: dict[str, Any] = {"session": "a", "at": 1.0, "path": "/run/ckpt-1", "on_disk": True, **changes}
    assert Checkpoint(**given).status == status

"""Which checkpoints are kept: the original's rules, made to last across restarts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from supervisor_core.checkpoint.retention import Retention, Saved, decide

HOUR = 3600.0


def saves(*times: float) -> list[Saved]:
    """Return checkpoints 1, 2, 3 ... saved at these times."""
    return [Saved(f"model.ckpt-{number}", at) for number, at in enumerate(times, 1)]


def steps(items: Sequence[Saved]) -> list[int]:
    """Return the numbers of the checkpoints."""
    return [int(item.path.rpartition("-")[2]) for item in items]


def run(
    times: Sequence[float], *, max_to_keep: int, hours: float | None, restart_after: Sequence[int] = ()
) -> set[int]:
    """Save at each of these times; return the numbers of the checkpoints that are still there at the end.

    At a restart, all that is known is what the state file holds: the list, and the preserved time.
    """
    kept: tuple[Saved, ...] = ()
    last_preserved_at: float | None = None
    there: set[int] = set()
    for number, at in enumerate(times, 1):
        there.add(number)
        result = decide(
            [*kept, Saved(f"model.ckpt-{number}", at)],
            max_to_keep=max_to_keep,
            keep_every_n_hours=hours,
            last_preserved_at=last_preserved_at,
        )
        kept, last_preserved_at = result.keep, result.last_preserved_at
        there -= set(steps(result.delete))
        if number in restart_after:
            kept = tuple(Saved(*item) for item in kept)
    return there


OUTSIDE = Saved("/elsewhere/model.ckpt-9", 0.0, deletable=False)


@pytest.mark.parametrize(
    ("saved", "max_to_keep", "hours", "kept", "deleted", "preserved"),
    [
        (saves(1, 2, 3, 4), 2, None, [3, 4], [1, 2], []),
        (saves(1, 2, 3), None, 1.0, [3], [], [1, 2]),
        (saves(1, 2, 3), 0, 1.0, [3], [], [1, 2]),
        (saves(50, 1), 1, None, [2], [1], []),
        ([OUTSIDE, *saves(2, 3)], 1, None, [2], [1], [9]),
        ([*saves(1, 2), Saved("model.ckpt-1", 3.0)], 1, None, [1], [2], []),
        (saves(1, 2, 3), 1, 0.0, [3], [], [1, 2]),
    ],
    ids=[
        "the newest",
        "no bound",
        "a bound of 0",
        "times go back",
        "outside the logdir",
        "saved again",
        "every 0 hours",
    ],
)
def test_the_newest_stay_and_the_rest_go(
    saved: Sequence[Saved],
    max_to_keep: int | None,
    hours: float | None,
    kept: list[int],
    deleted: list[int],
    preserved: list[int],
) -> None:
    """The last one given is the newest, whatever the times say. Without a bound every file stays, and the newest is
    listed, as the original does; what is outside of the logdir stays where it is."""
    result = decide(saved, max_to_keep=max_to_keep, keep_every_n_hours=hours, last_preserved_at=None)
    assert (steps(result.keep), steps(result.delete), steps(result.preserved)) == (kept, deleted, preserved)


def test_no_checkpoints() -> None:
    """Nothing in, nothing out; the time goes on."""
    assert decide([], max_to_keep=5, keep_every_n_hours=1.0, last_preserved_at=7.0) == Retention((), (), (), None, 7.0)


@pytest.mark.parametrize(
    ("story", "kept"),
    [
        ("good good bad bad bad", [2, 4, 5]),
        ("bad bad bad", [2, 3]),
        ("good bad", [1, 2]),
        ("good bad good", [1, 2, 3]),
        ("good bad good good", [3, 4]),
        ("good bad good bad bad bad", [3, 5, 6]),
        ("good good good", [2, 3]),
    ],
)
def test_the_last_good_one_stays(story: str, kept: list[int]) -> None:
    """Besides `max_to_keep`, as long as the oldest one that is listed is in doubt: until as many good ones have
    followed. Where none was good nothing is kept besides; so there is never more than one more."""
    there: list[Saved] = []
    for number, word in enumerate(story.split(), 1):
        new = Saved(f"model.ckpt-{number}", number, in_doubt=word == "bad")
        result = decide([*there, new], max_to_keep=2, keep_every_n_hours=None, last_preserved_at=None)
        gone = {saved.path for saved in result.delete}
        there = [saved for saved in [*there, new] if saved.path not in gone]
        assert len(there) <= 3 and result.last_good not in result.keep
    assert steps(there) == kept


def test_the_last_good_one_with_a_bound_of_one() -> None:
    """The newest is listed, and the last good one stays besides, if that is another."""
    first, second = saves(1, 2)
    result = decide(
        [first, second._replace(in_doubt=True)], max_to_keep=1, keep_every_n_hours=None, last_preserved_at=None
    )
    assert (result.last_good, result.delete) == (first, ())


def test_one_is_spared_every_n_hours() -> None:
    """Saving each quarter of an hour and sparing one an hour keeps the first after each full hour."""
    times = [HOUR * quarter / 4 for quarter in range(17)]
    assert run(times, max_to_keep=1, hours=1.0) == {6, 10, 14, 17}


def test_a_restart_does_not_restart_the_hours() -> None:
    """Restarted more often than every hour, the run still spares one an hour: the same ones."""
    times = [HOUR * quarter / 4 for quarter in range(17)]
    steady = run(times, max_to_keep=2, hours=1.0)
    assert run(times, max_to_keep=2, hours=1.0, restart_after=range(1, 17, 2)) == steady
    assert len(steady) > 3


def test_a_pause_does_not_spare_all_that_follows() -> None:
    """After a week's pause one is spared, not one for each hour that passed: the next waits for its hour."""
    week = 7 * 24 * HOUR
    times = [0.0, 60.0, *(week + 60.0 * minute for minute in range(1, 30))]
    assert run(times, max_to_keep=1, hours=1.0) == {3, 31}


def test_the_hours_do_not_drift() -> None:
    """What is spared comes from a fixed grid of hours, not from an hour after what was spared last."""
    result = decide(saves(0, 1.9 * HOUR, 2 * HOUR), max_to_keep=1, keep_every_n_hours=1.0, last_preserved_at=0.0)
    assert steps(result.preserved) == [2]
    assert result.last_preserved_at == HOUR


def test_a_clock_that_was_ahead_does_not_stop_the_sparing() -> None:
    """A preserved time in the future is brought back to the present."""
    future = 1000 * HOUR
    result = decide(saves(HOUR), max_to_keep=1, keep_every_n_hours=1.0, last_preserved_at=future)
    assert result.last_preserved_at == HOUR

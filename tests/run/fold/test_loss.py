"""Whether a run's loss is finite, by what it says itself and by the tags that look like a loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from supervisor_core.events.losses import LOSS
from supervisor_core.run.model.run import Run
from tests.cases import each

RunOf = Callable[..., Run]
T = 1_600_000_000.0


@each(
    "tag", ["loss", "train/loss", "Loss/train", "epoch_loss", "losses/total", "loss_1", "trainLoss", "LOSS", "val.loss"]
)
def test_a_tag_that_looks_like_a_loss(tag: str) -> None:
    """The word stands by itself, or is set off by its capital."""
    assert LOSS.search(tag)


@each("tag", ["lossless", "gloss", "accuracy", "lr", "floss_rate", "lossy/x"])
def test_a_tag_that_does_not(tag: str) -> None:
    """The letters within another word are no loss."""
    assert not LOSS.search(tag)


@each("bad", [math.nan, math.inf, -math.inf])
def test_the_newest_point_counts(events_file: Any, run_of: RunOf, bad: float) -> None:
    """A loss is finite, then not, then finite again; other tags may hold what they like."""
    file = events_file("/run/events.out.tfevents.1.host", T).scalar("grad_norm", 0, T, bad)
    assert run_of(file).loss_finite is None
    assert run_of(file.scalar("train/loss", 1, T + 1)).loss_finite is True
    assert run_of(file.scalar("train/loss", 2, T + 2, bad).scalar("val/loss", 2, T + 2)).loss_finite is False
    assert run_of(file.scalar("train/loss", 3, T + 3)).loss_finite is True


def test_of_two_files_the_newest_point_counts(events_file: Any, run_of: RunOf) -> None:
    """Two writers of one program may write a loss of the same name, whichever file is read last."""
    often, rarely = (events_file(f"/run/events.out.tfevents.{T:.0f}.host.7.{number}", T) for number in (0, 1))
    for step in range(1, 8):
        often.scalar("loss", step, T + step, math.nan)
    run = run_of(often, rarely.scalar("loss", 1, T + 1).scalar("loss", 5, T + 5))
    assert (run.loss_finite, run.loss_nonfinite_since) == (False, 1)
    assert [math.isnan(value.value) for value in run.last_values] == [True]
    assert run_of(often, rarely.scalar("loss", 8, T + 8)).loss_finite is True


def test_what_the_session_says_counts_too(killed: Any, run_of: RunOf) -> None:
    """The watched loss of the latest heartbeat."""
    assert run_of(killed.beat()).loss_finite is None
    killed.loss_finite = True
    assert run_of(killed.beat()).loss_finite is True
    killed.loss_finite = False
    assert run_of(killed.beat()).loss_finite is False


def test_a_loss_of_an_earlier_session_is_over(killed: Any, resumed: Any, run_of: RunOf) -> None:
    """The session that follows begins without one."""
    killed.loss_finite = False
    assert run_of(killed.beat(), resumed).loss_finite is None

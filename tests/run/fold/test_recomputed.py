"""`Recomputed`: which scalars are compared, and what counts as a difference."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable

import numpy as np

from supervisor_core.events.chunk import Points
from supervisor_core.events.telemetry import ResumeRecord
from supervisor_core.run.fold.recomputed import Recomputed, is_measured
from tests.cases import each

Logged = Iterable[tuple[int, float]]


def points(logged: Logged) -> Points:
    """Return points: step and value of each."""
    steps, values = [step for step, _ in logged], [value for _, value in logged]
    zeros = np.zeros(len(steps))
    return Points(zeros.astype(np.int64), np.array(steps, np.int64), zeros, np.array(values, np.float64))


def check(restored: int, before: list[dict[str, Logged]], now: dict[str, Logged]) -> tuple[ResumeRecord | None, bool]:
    """Return what is found, and whether the comparison is over; ``before``: the files in their order."""
    found = Recomputed("b", restored)
    for number, tags in enumerate(before):
        for tag, logged in tags.items():
            found.before(f"file-{number}", {tag: points(list(logged))})
    found.begin()
    for tag, logged in now.items():
        for point in logged:  # value by value, as they come
            found.now({tag: points([point])})
    return found.result(), found.is_over


def falling(steps: Iterable[int], shift: float = 0.0) -> list[tuple[int, float]]:
    """Return a loss of some steps."""
    return [(step, 1.0 / (1 + step) + shift) for step in steps]


def test_equal_losses_are_counted_from_the_restored_step_on() -> None:
    """The steps that were done twice, and no others."""
    found, is_over = check(10, [{"loss": falling(range(14))}], {"loss": falling(range(10, 20))})
    assert found is not None and is_over
    assert (found.text, found.is_equal) == ("4 of 4 recomputed losses equal", True)


def test_a_loss_that_differs_in_its_last_bit_is_named_with_both_values() -> None:
    """With as many digits as tell them apart."""
    before = float(np.float32(0.412))
    now = float(np.nextafter(np.float32(0.412), np.float32(1)))
    found, is_over = check(14, [{"loss": [(14, 1.0), (15, before)]}], {"loss": [(14, 1.0), (15, now)]})
    assert found is not None and is_over and found.is_equal is False
    assert found.text == "loss at step 15 differs (0.412 before, 0.41200003 now)"


def test_without_a_step_in_common_nothing_is_found() -> None:
    """Neither steps nor tags in common."""
    assert check(10, [{"loss": falling(range(10))}], {"loss": falling(range(10, 20))})[0] is None
    assert check(10, [{"loss": falling(range(14))}], {"accuracy": falling(range(10, 20))})[0] is None


def test_what_a_later_session_logged_replaces_what_an_earlier_one_did() -> None:
    """The latest values of a step are those that a third session is compared with."""
    files = [{"loss": falling(range(15))}, {"loss": falling(range(10, 13), shift=0.5)}]
    found, _ = check(10, files, {"loss": falling(range(10, 13), shift=0.5)})
    assert found is not None and found.text == "3 of 3 recomputed losses equal"


def test_values_of_one_step_are_compared_in_their_order() -> None:
    """As with accumulated gradients: a step logs several values."""
    micro = [(10, 0.5), (10, 0.25), (11, 0.125), (11, 0.75)]
    found, is_over = check(10, [{"loss": micro[:3]}], {"loss": micro})
    assert found is not None and (found.compared, found.equal, is_over) == (3, 3, True)
    found, _ = check(10, [{"loss": micro}], {"loss": [micro[0], (10, 0.26)]})
    assert found is not None and found.tag == "loss"


def test_nan_equals_nan() -> None:
    """So does an infinite value."""
    found, _ = check(10, [{"loss": [(10, math.nan), (11, math.inf)]}], {"loss": [(10, math.nan), (11, math.inf)]})
    assert found is not None and found.equal == 2
    found, _ = check(10, [{"loss": [(10, 0.5)]}], {"loss": [(10, math.nan)]})
    assert found is not None and found.text == "loss at step 10 differs (0.5 before, nan now)"


def test_what_was_not_finite_before_proves_nothing() -> None:
    """A run is rewound after NaN, and changed: finite values then are what is wanted."""
    found, is_over = check(10, [{"loss": [(10, math.nan), (11, math.inf)]}], {"loss": [(10, 0.5), (11, 0.5)]})
    assert found is None and is_over


def test_losses_count_and_any_other_value_that_differs_is_named() -> None:
    """Where no loss is logged, all values count."""
    before = {"loss": falling(range(14)), "ema_norm": falling(range(14))}
    now = {"loss": falling(range(10, 14)), "ema_norm": falling(range(10, 14), shift=0.1)}
    found, _ = check(10, [before], now)
    assert found is not None and (found.what, found.compared, found.equal, found.tag) == ("losses", 4, 4, "ema_norm")
    found, _ = check(10, [{"accuracy": falling(range(14))}], {"accuracy": falling(range(10, 14))})
    assert found is not None and found.text == "4 of 4 recomputed values equal"


def test_a_mean_over_steps_before_the_restart_is_no_difference_and_the_values_after_it_count() -> None:
    """It would be one if the values after it differed, too."""
    before = {"loss": [(5, 0.5), (10, 0.4), (15, 0.3), (20, 0.2)]}
    found, is_over = check(8, [before], {"loss": [(10, 0.41), (15, 0.3), (20, 0.2)]})
    assert found is not None and is_over and found.text == "2 of 2 recomputed losses equal"
    found, _ = check(8, [before], {"loss": [(10, 0.41), (15, 0.31)]})
    assert found is not None and found.step == 15
    found, _ = check(10, [before], {"loss": [(15, 0.31)]})  # the mean is of steps after the restart only
    assert found is not None and found.step == 15
    found, is_over = check(8, [before], {"loss": [(10, 0.41)]})
    assert found is None and not is_over


@each(
    "tag",
    ("global_step/sec", "charts/SPS", "time/forward", "stepTime", "gpu_memory", "train/samples_per_second", "it/s"),
)
def test_what_measures_the_machine_is_not_compared(tag: str) -> None:
    """No two runs share it."""
    assert is_measured(tag)
    assert check(10, [{tag: falling(range(14))}], {tag: falling(range(10, 14), shift=1.0)})[0] is None


@each("tag", ("learning_rate", "train/loss", "time_loss", "timesteps", "grad_norm", "epoch"))
def test_what_a_training_computes_is_compared(tag: str) -> None:
    """Whatever else its name says."""
    assert not is_measured(tag)


def test_steps_after_the_last_one_of_before_are_not_kept() -> None:
    """A tag that does not come again keeps the comparison open for as long as the training goes on."""
    found = Recomputed("b", 10)
    found.before("a", {"loss": points(falling(range(14))), "other": points([(1 << 62, 1.0)])})
    found.begin()
    for first in range(10, 20_000, 1000):
        found.now({"loss": points(falling(range(first, first + 1000)))})
    assert not found.is_over
    assert len(found._tags["loss"].seen) == 4


def test_a_value_beyond_32_bits_is_shown() -> None:
    """Without a warning of numpy's, which a program may have made an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, _ = check(10, [{"loss": [(10, 1e300)]}], {"loss": [(10, 2e300)]})
    assert found is not None and found.text == "loss at step 10 differs (1e+300 before, 2e+300 now)"


def test_a_long_tag_is_cut() -> None:
    """As readers of the record cut it."""
    tag = "loss" * 1000
    found, _ = check(10, [{tag: [(10, 1.0)]}], {tag: [(10, 2.0)]})
    assert found is not None and found.tag == tag[:256]

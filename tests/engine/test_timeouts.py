"""One hang timeout and one stop timeout: given, or learned; no pause of a healthy training exceeds a learned one."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping

import pytest

from supervisor_core.base.errors import OptionsError
from supervisor_core.base.options import HANG_TIMEOUT_SECS, Options
from supervisor_core.engine.timeouts import (
    HANG_TIMEOUT_VARIABLE,
    LEAST_PAUSE_SECS,
    STOP_TIMEOUT_VARIABLE,
    HangTimeouts,
    stop_timeout,
)

LEARNED = 25
"""After so many steps of no time, a learned hang timeout of training is 6 s."""


@pytest.fixture(autouse=True)
def _no_restarter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables are the test's."""
    for variable in (HANG_TIMEOUT_VARIABLE, STOP_TIMEOUT_VARIABLE):
        monkeypatch.delenv(variable, raising=False)


def in_effect(options: Options) -> dict[str, float | None]:
    """The hang timeout of each phase once training could be learned."""
    timeouts = HangTimeouts(options)
    return {phase: timeouts.secs(phase, steps=LEARNED) for phase in HANG_TIMEOUT_SECS}


@pytest.mark.parametrize(
    ("given", "handed_down", "expected"),
    [
        (None, None, {"training": 6.0}),
        (60, None, {"training": 60}),
        (700.0, None, {"training": 700.0, "stopping": 700.0}),
        ({"training": 40.0, "evaluating": 10.0}, None, {"training": 40.0, "evaluating": 10.0}),
        ({"evaluating": 10.0}, None, {"training": 6.0, "evaluating": 10.0}),
        (None, "700", {"training": 700.0, "stopping": 700.0}),
        (60.0, "700", {"training": 60.0}),
        ({"training": 60.0}, "700", {"training": 60.0, "stopping": 700.0}),
        ({"evaluating": 10.0}, "90", {"training": 90.0, "evaluating": 10.0}),
    ],
)
def test_the_hang_timeout_in_effect(
    monkeypatch: pytest.MonkeyPatch,
    given: float | Mapping[str, float] | None,
    handed_down: str | None,
    expected: Mapping[str, float],
) -> None:
    """A number is that of training, and the least of the other phases. The options come first, by phase; then the
    environment; what neither says is learned."""
    if handed_down is not None:
        monkeypatch.setenv(HANG_TIMEOUT_VARIABLE, handed_down)
    assert in_effect(Options(hang_timeout_secs=given)) == {**HANG_TIMEOUT_SECS, **expected}


@pytest.mark.parametrize("handed_down", [None, "60"])
def test_a_number_is_not_learned(monkeypatch: pytest.MonkeyPatch, handed_down: str | None) -> None:
    """Longer pauses than it change nothing in training; the other phases learn from theirs."""
    given = None if handed_down else 60
    if handed_down is not None:
        monkeypatch.setenv(HANG_TIMEOUT_VARIABLE, handed_down)
    timeouts = HangTimeouts(Options(hang_timeout_secs=given))
    for phase in ("training", "stopping"):
        timeouts.paused(phase, 200.0, steps=LEARNED)
    assert timeouts.secs("training", steps=LEARNED, is_held=True) == 60
    assert timeouts.act_after("training", steps=LEARNED) == 60
    assert timeouts.secs("stopping", steps=LEARNED) == 1000.0


@pytest.mark.parametrize(
    ("given", "handed_down", "secs"),
    [
        (None, None, 25.0),
        (60.0, None, 60.0),
        (None, "7.5", 7.5),
        (None, "60", 60.0),
        (60.0, "7.5", 7.5),
        (5.0, "60", 5.0),
        (None, "", 25.0),
    ],
)
def test_the_stop_timeout_in_effect(
    monkeypatch: pytest.MonkeyPatch, given: float | None, handed_down: str | None, secs: float
) -> None:
    """The program's own, but no longer than whoever kills it waits."""
    if handed_down is not None:
        monkeypatch.setenv(STOP_TIMEOUT_VARIABLE, handed_down)
    assert stop_timeout(Options(stop_timeout_secs=given)) == secs


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
@pytest.mark.parametrize("variable", [HANG_TIMEOUT_VARIABLE, STOP_TIMEOUT_VARIABLE])
def test_a_value_in_the_environment_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str
) -> None:
    """The error names the variable, what came and what was expected."""
    monkeypatch.setenv(variable, text)
    with pytest.raises(OptionsError) as caught:
        stop_timeout(Options()) if variable == STOP_TIMEOUT_VARIABLE else HangTimeouts(Options())
    assert str(caught.value) == f"{variable} is {text!r} in the environment; expected a number of seconds above 0."


@pytest.mark.parametrize(
    ("pauses", "hang_timeout_secs"),
    [([], 6.0), ([1.0], 8.0), ([2.0, 1.0], 16.0), ([100.0], 800.0), ([1000.0], 2000.0), ([300.0], 1800.0)],
    ids=["the floor", "the longest", "not the last", "above the default", "twice the longest", "half an hour"],
)
def test_training_learns_from_its_longest_pauses(pauses, hang_timeout_secs) -> None:
    """Few pauses are their own 99th percentile, so that eight times the longest counts."""
    timeouts = HangTimeouts(Options())
    for secs in pauses:
        timeouts.paused("training", secs, steps=LEARNED)
    assert timeouts.secs("training", steps=LEARNED) == pytest.approx(hang_timeout_secs)


def test_a_rare_pause_counts_five_times() -> None:
    """Of 1,000 steps one took 4 s: it is far above the 99th percentile."""
    timeouts = HangTimeouts(Options())
    timeouts.paused("training", 4.0, steps=500)
    assert timeouts.secs("training", steps=1000) == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("phase", "pause_secs", "given", "is_held", "hang_timeout_secs"),
    [
        ("checkpointing", 30.0, {}, False, HANG_TIMEOUT_SECS["checkpointing"]),
        ("checkpointing", 400.0, {}, False, 1800.0),
        ("checkpointing", 1000.0, {}, False, 2000.0),
        ("stopped", 1000.0, {}, False, None),
        ("training", 1000.0, {"training": 20.0}, False, 20.0),
        ("restoring", 1000.0, {"training": 20.0}, False, 2000.0),
        ("training", 0.0, {}, True, HANG_TIMEOUT_SECS["training"]),
    ],
)
def test_the_hang_timeout_of_a_phase(phase, pause_secs, given, is_held, hang_timeout_secs) -> None:
    """Other phases than training are never below their default; five times the longest pause raises them. A given
    hang timeout is fixed, and the others learn. What a save, or another process of the cluster, may keep waiting has
    the default at least."""
    timeouts = HangTimeouts(Options(hang_timeout_secs=given))
    timeouts.paused(phase, pause_secs, steps=LEARNED)
    assert timeouts.secs(phase, steps=LEARNED, is_held=is_held) == hang_timeout_secs


HOURS = 1000
SESSION_HOURS = 10


def pauses_of_a_session(rng: random.Random) -> Iterator[tuple[str, float, int, bool]]:
    """Pauses of ten healthy hours: phase, seconds, steps done, and whether training waits for a save. Shorter ones than
    `LEAST_PAUSE_SECS` are left out, as by `Progress`.

    Steps of 1 ms to 1 minute vary by a third. One in 200, but at most one a minute, takes longer by up to 4 s, slow
    ones by three times their length; the input waits for 1 to 5 s after each epoch. A save every 10 minutes keeps
    training waiting for up to 2 minutes, and the next step copies what the snapshot shares with it (2 s of 20 GB), an
    evaluation each hour takes up to 50, and the session recovers twice, with first steps that take 2 minutes longer.
    """
    step_secs = rng.choice((0.001, 0.01, 0.05, 0.1, 0.15, 10.0, 30.0, 60.0)) * rng.uniform(0.7, 1.0)
    spike_every = max(200, round(60 / step_secs))
    now, steps, next_save, next_evaluation, next_epoch = 0.0, 0, 600.0, 3600.0, 900.0
    recoveries = [SESSION_HOURS * 3600 * share for share in (0.3, 0.8)]
    warm = 3
    yield "starting", rng.uniform(1, 900), 0, False
    while now < SESSION_HOURS * 3600:
        secs, count = step_secs * math.exp(rng.gauss(0, 0.3)), 1
        if warm:
            secs, warm = secs + rng.uniform(0, 120), warm - 1
        elif rng.random() < 1 / spike_every:
            secs += min(4.0 if step_secs < 1 else 3 * step_secs, rng.paretovariate(1.5) * max(step_secs, 0.2))
        elif step_secs * 4 < LEAST_PAUSE_SECS:  # none of the steps until the next spike is worth reporting
            count = max(1, min(round(rng.expovariate(1 / spike_every)), round(300 / step_secs)))
            secs = step_secs
        now, steps = now + secs * count, steps + count
        if secs >= LEAST_PAUSE_SECS:
            yield "training", secs, steps - 1, False
        if now > next_epoch:
            next_epoch += 900.0
            yield "training", rng.uniform(1, 5), steps, False
        if now > next_save:
            next_save += 600.0
            yield "training", rng.uniform(0.1, 120), steps, True
            yield "training", secs + rng.uniform(0.1, 2), steps, False
        if now > next_evaluation:
            next_evaluation += 3600.0
            yield "evaluating", rng.uniform(60, 3000), steps, False
        if recoveries and now > recoveries[0]:
            del recoveries[0]
            warm = 3
            yield "restoring", rng.uniform(1, 1500), steps, False


def test_a_thousand_healthy_hours_have_no_stall() -> None:
    """Saves, evaluations, restores, first steps and spikes included: no pause exceeds the hang timeout at its time."""
    rng = random.Random(13)
    false_stalls, judged, tight = [], 0, 0
    for session in range(HOURS // SESSION_HOURS):
        timeouts = HangTimeouts(Options())
        before = "starting"
        for phase, secs, steps, is_held in pauses_of_a_session(rng):
            if before in ("starting", "restoring"):
                timeouts.warm_up(steps)
            before = phase
            hang_timeout_secs = timeouts.secs(phase, steps=steps, is_held=is_held)
            if secs > hang_timeout_secs:
                false_stalls.append((session, phase, secs, hang_timeout_secs, steps))
            judged += 1
            tight += phase == "training" and hang_timeout_secs < HANG_TIMEOUT_SECS["training"] / 2
            if not is_held:
                timeouts.paused(phase, secs, steps=steps)
    assert false_stalls == []
    assert judged > 50_000 and tight > 10_000

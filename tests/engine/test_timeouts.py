"""One hang timeout and one stop timeout: what is in effect of what options, environment and defaults say."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from supervisor_core.base.errors import OptionsError
from supervisor_core.base.options import HANG_TIMEOUT_SECS, Options
from supervisor_core.engine.timeouts import HANG_TIMEOUT_VARIABLE, STOP_TIMEOUT_VARIABLE, HangTimeouts, stop_timeout

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

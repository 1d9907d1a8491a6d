"""Options are checked once, and what is refused is said."""

from __future__ import annotations

import math
from typing import Any

import pytest

from supervisor_core.base.errors import OptionsError
from supervisor_core.base.options import Options
from tests.cases import each


@each(
    "wrong",
    [
        {"heartbeat_secs": -1},
        {"heartbeat_secs": math.nan},
        {"heartbeat_secs": True},
        {"retry_initial_secs": 0},
        {"retry_initial_secs": 5.0, "retry_max_secs": 1.0},
        {"lease_timeout_secs": math.inf},
        {"service_errors": "ignore"},
        {"max_save_failures": -1},
        {"verify_resume": -1},
        {"kept_values": {"mean": 1}},
        {"max_recoveries": -1},
        {"save_signal": "SIGTERM"},
        {"save_on_stop": "yes"},
        {"run_name": ""},
        {"labels": "team=vision"},
        {"labels": {"my-team": "vision"}},
        {"labels": {"run": "vision"}},
        {"labels": {"team": "x" * 129}},
        {"labels": {"team": "a\nb"}},
        {"labels": {f"a{number}": "x" for number in range(17)}},
        {"worker_name": ""},
        {"on_event": "print"},
        {"metrics_address": 9464},
        {"hang_timeout_secs": [("training", 1)]},
        {"hang_timeout_secs": math.nan},
        {"stop_timeout_secs": -1.0},
        {"hang_timeout_secs": {"trainig": 1}},
        {"hang_action": "restart"},
        {"dump_blocked_stacks": 0},
    ],
)
def test_what_cannot_be_used_is_refused_by_name(wrong: dict[str, Any]) -> None:
    """The text names the option and shows what came."""
    with pytest.raises(OptionsError) as caught:
        Options(**wrong)
    name, value = list(wrong.items())[-1]
    assert f"Options.{name}" in str(caught.value)
    assert isinstance(caught.value, ValueError)
    shown = value if not isinstance(value, dict) else next(iter(value))
    assert str(shown).strip("'[]()") in str(caught.value) or repr(value) in str(caught.value)


def test_options_cannot_be_changed_afterwards() -> None:
    """What was checked stays."""
    with pytest.raises(AttributeError):
        Options().heartbeat_secs = 1  # type: ignore[misc]


@each("given", [None, 90, 0.5, {}, {"training": 5, "stopping": 1.5}])
def test_a_hang_timeout_is_nothing_a_number_or_a_mapping(given: Any) -> None:
    """It stays as it was given."""
    assert Options(hang_timeout_secs=given).hang_timeout_secs == given

"""A graph of its own for each of the guide's programs; threads stay in TensorFlow 2's eager mode, as users have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _own_graph(graph: Any) -> None:
    """Every program here builds its model in a graph of its own."""


@pytest.fixture
def read_summaries(logdir: str, read_events: Any) -> Callable[[str], list[tuple[int, float]]]:
    """Returns a function that reads steps and values of a tag from the run's events files."""

    def read(tag: str) -> list[tuple[int, float]]:
        events = [event for file in read_events(logdir, telemetry=False) for event in file]
        return [
            (event.step, value.simple_value) for event in events for value in event.summary.value if value.tag == tag
        ]

    return read

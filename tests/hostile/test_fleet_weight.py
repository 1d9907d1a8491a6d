"""One run's word about its size outweighs no fleet without bound."""

from __future__ import annotations

import pytest

from supervisor_core.events.telemetry import MAX_PROCESSES, SessionRecord, from_json
from tests.cases import each


@each("more", ["", ', "pid": "no number"'])
@each("name", ["world_size", "device_count"])
@each("size", ["1000001", "999999999999999", "1e18", "-5", "NaN", "1" * 400, '"8"', "true"])
def test_a_size_that_cannot_be_is_unknown(name: str, size: str, more: str) -> None:
    """Whichever way its record is decoded, and whether it is a number or not."""
    try:
        found = from_json("session", f'{{"v": 1, "session": "a", "{name}": {size}{more}}}')
    except Exception as error:
        pytest.fail(f"{error!r}")
    assert isinstance(found, SessionRecord)
    assert getattr(found, name) is None


@each("more", ["", ', "pid": "no number"'])
def test_the_largest_size_is_read(more: str) -> None:
    """A fleet of a million devices is not cut."""
    found = from_json("session", f'{{"v": 1, "session": "a", "device_count": {MAX_PROCESSES}{more}}}')
    assert isinstance(found, SessionRecord)
    assert found.device_count == MAX_PROCESSES

"""A run that a restarter has given up because it hung is failed: its own stop record has only the signal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor_core.run.model import ProgramLaunch
from supervisor_core.run.restarter_launches import given_up

HUNG = ProgramLaunch(id="l3", attempt=3, ended_at=9.0, session="s3", action="end", decided_by="watchdog", cause="hung")


@pytest.mark.parametrize(
    ("launch", "expected"),
    [
        (HUNG, True),
        (replace(HUNG, action="restart"), False),
        (replace(HUNG, decided_by="signal"), False),
        (replace(HUNG, session="s2"), False),
        (replace(HUNG, ended_at=None, action=None, decided_by=None), False),
    ],
)
def test_only_the_newest_sessions_last_launch_counts(launch: ProgramLaunch, expected: bool) -> None:
    """One that was ended because it hung, with no other after it."""
    earlier = ProgramLaunch(id="l2", attempt=2, ended_at=5.0, session="s3", action="end", decided_by="watchdog")
    assert given_up((earlier, launch), "s3") is expected
    assert not given_up((), "s3")

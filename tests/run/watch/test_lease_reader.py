"""A lease read for a run that is silent: what it says, and how rarely it is asked while it says nothing new."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from supervisor_core.checkpoint.lease_file import LeaseRecord, encode
from supervisor_core.run.live_session import MAX_WAIT_SECS, LeaseReader
from supervisor_core.storage.local import LOCAL

T0 = 1_700_000_000.0


def lease(**more: Any) -> bytes:
    """A lease's bytes."""
    fields = {"session": "s1", "attempt": 1, "host": "h", "boot": None, "pid": 1, "renewed_at": T0}
    return encode(LeaseRecord(**{**fields, "started_at": T0, "first_started_at": T0, **more}))


class Asked:
    """Local files, and how often one was asked for."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, path: str) -> tuple[Any, str]:
        self.times += 1
        return LOCAL, path


def test_a_lease_that_is_renewed_is_read_each_time(tmp_path: Path) -> None:
    """While the session lives, each look has its newest word."""
    reader = LeaseReader(str(tmp_path))
    for n in range(3):
        (tmp_path / ".supervisor.lease").write_bytes(lease(renewed_at=T0 + n, last_step=n))
        found = reader.read(T0 + n)
        assert found is not None and (found.session, found.last_step) == ("s1", n)


def test_a_dead_one_is_read_ever_more_rarely(tmp_path: Path) -> None:
    """A lost run costs a dozen readings in a day, and less than one in a look's time."""
    (tmp_path / ".supervisor.lease").write_bytes(lease())
    asked = Asked()
    reader = LeaseReader(str(tmp_path), asked)
    for look in range(24 * 240):
        assert reader.read(T0 + 40 + 15 * look) is not None  # as it was read last
    assert 5 < asked.times < 12 + 24 * 3600 / MAX_WAIT_SECS


def test_what_says_nothing(tmp_path: Path) -> None:
    """No lease, one that has ended, or half of one: nothing is concluded."""
    assert LeaseReader(str(tmp_path)).read(T0) is None
    for data in (lease(ended="completed"), lease()[:50], b"", b"\0" * 1024):
        (tmp_path / ".supervisor.lease").write_bytes(data)
        assert LeaseReader(str(tmp_path)).read(T0) is None

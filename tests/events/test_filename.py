from __future__ import annotations

import os
import re
import socket
from itertools import count

import pytest

from supervisor_core.events import events_file
from supervisor_core.events.events_file import events_filename


def test_a_name_says_when_where_and_who() -> None:
    """Seconds, host, pid and a counter, then the suffix."""
    name = events_filename(1_700_000_000.9, ".eval")
    host = re.escape(socket.gethostname())
    assert re.fullmatch(rf"events\.out\.tfevents\.1700000000\.{host}\.{os.getpid()}\.\d{{4,}}\.eval", name)


def test_names_of_one_second_differ_and_sort_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty files of one second have twenty names, in an order that TensorBoard reads them in, up to the last of four
    digits."""
    monkeypatch.setattr(events_file, "_counter", count(9_980))
    names = [events_filename(1_700_000_000) for _ in range(20)]
    assert len(set(names)) == 20
    assert sorted(names) == names


def test_an_early_clock_still_makes_a_name() -> None:
    """A machine whose clock starts at, or before, 1970 gets ten digits."""
    assert events_filename(3).startswith("events.out.tfevents.0000000003.")
    assert events_filename(-3).startswith("events.out.tfevents.0000000000.")

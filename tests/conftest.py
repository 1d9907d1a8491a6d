"""What every test may rely on, however the tests were started."""

from __future__ import annotations

import signal

import pytest

# What a shell starts in the background ignores SIGINT, and so do its children: who sends one would wait for ever.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What mostly waits, for servers and browsers, goes first: at the end it would keep one processor busy with waiting.
WAITING = (
    "tests/monitoring/test_end_to_end.py",
    "tests/tf1/monitoring/",
    "tests/browser/",
    "tests/tf1/cluster/test_supervisor_cluster.py",
    "tests/tf1/cluster/test_monitored_cluster.py",
    "tests/tf1/cluster/test_network_cut.py",
    "tests/examples/test_demo.py",
    "tests/examples/test_cluster.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that mostly wait before all others, which keep their order."""
    items.sort(key=lambda item: not item.nodeid.startswith(WAITING))

"""Ports of the loopback device for servers that are started a moment after they were given one."""

from __future__ import annotations

import os
import socket
from itertools import count

FIRST, LAST = 10_000, 32_000
"""Below the ports that a system gives to outgoing connections: none of those takes one in the meantime."""

_next = count(os.getpid() * 13_597)


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that nothing listens on and that this process has not returned before.

    Processes begin far from each other, also those with neighbouring ids: tests that run at the same time do not meet.
    """
    for number in _next:
        port = FIRST + number % (LAST - FIRST)
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable: count() does not end")

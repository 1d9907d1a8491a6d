"""A network between this machine and processes that are behind one of their own: a namespace of the kernel's."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Network:
    """A network between this machine and the processes in `space`."""

    here: str
    there: str
    space: str
    link: str
    """The device here."""
    peer: str
    """The device there."""

    def cut(self) -> None:
        """Drop every packet from now on; no connection is reset."""
        ip("link", "set", self.link, "down")

    def heal(self) -> None:
        """Let everything through again."""
        ip("link", "set", self.link, "up")


def ip(*arguments: str) -> None:
    """Run the command; `CalledProcessError` with what it said if it fails."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@contextmanager
def private_network() -> Iterator[Network]:
    """A network that is gone after the block; skips the test where there can be none."""
    if shutil.which("ip") is None:
        pytest.skip("ip is missing (Debian: iproute2)")
    number, link = os.getpid() % 250, f"sup{os.getpid()}"
    made = Network(f"10.231.{number}.1", f"10.231.{number}.2", f"supervisor{os.getpid()}", link, f"{link}p")
    with ExitStack() as stack:
        try:
            ip("netns", "add", made.space)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this user may not make a network of its own: {error.stderr.strip()}")
        stack.callback(ip, "netns", "del", made.space)  # its end of the link, and with it the link, goes too
        ip("link", "add", made.link, "type", "veth", "peer", "name", made.peer)
        ip("link", "set", made.peer, "netns", made.space)
        ip("addr", "add", f"{made.here}/24", "dev", made.link)
        ip("link", "set", made.link, "up")
        ip("-n", made.space, "addr", "add", f"{made.there}/24", "dev", made.peer)
        ip("-n", made.space, "link", "set", made.peer, "up")
        ip("-n", made.space, "link", "set", "lo", "up")
        yield made

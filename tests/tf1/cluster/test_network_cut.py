"""A worker behind a network of its own (a namespace of the kernel's), which is cut and healed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Network:
    """A network between this machine and one process."""

    here: str
    there: str
    space: str
    link: str

    def cut(self) -> None:
        """Drop every packet from now on; no connection is reset."""
        ip("link", "set", self.link, "down")

    def heal(self) -> None:
        """Let everything through again."""
        ip("link", "set", self.link, "up")


def ip(*arguments: str) -> None:
    """Run the command; `CalledProcessError` with what it said if it fails."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def network() -> Iterator[Network]:
    """A network, gone after the test."""
    if shutil.which("ip") is None:
        pytest.skip("ip is missing (Debian: iproute2)")
    number = os.getpid() % 250
    made = Network(f"10.231.{number}.1", f"10.231.{number}.2", f"supervisor{os.getpid()}", f"sup{os.getpid()}")
    with ExitStack() as stack:
        try:
            ip("netns", "add", made.space)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this user may not make a network of its own: {error.stderr.strip()}")
        stack.callback(ip, "netns", "del", made.space)  # its end of the link, and with it the link, goes too
        peer = f"{made.link}p"
        ip("link", "add", made.link, "type", "veth", "peer", "name", peer)
        ip("link", "set", peer, "netns", made.space)
        ip("addr", "add", f"{made.here}/24", "dev", made.link)
        ip("link", "set", made.link, "up")
        ip("-n", made.space, "addr", "add", f"{made.there}/24", "dev", peer)
        ip("-n", made.space, "link", "set", peer, "up")
        ip("-n", made.space, "link", "set", "lo", "up")
        yield made


def test_a_worker_whose_network_is_cut_goes_on_when_it_is_healed(
    open_cluster: Callable[..., Any], until: Callable[..., None], network: Network
) -> None:
    """The chief continues, and records that the worker makes no progress; healed, both train, and all end well."""
    with open_cluster("MonitoredTrainingSession", network.here) as cluster:
        port = cluster.addresses["worker"][0].rpartition(":")[2]
        cluster.addresses["worker"] = [f"{network.there}:{port}"]
        cluster.networks["worker:0"] = network.space
        cluster.start("ps:0", "chief:0", "worker:0")
        cluster["worker:0"].line("ready at step")
        until(cluster.sees("worker:0", "running"))

        network.cut()
        until(lambda: cluster.worker("worker:0").state in ("stalled", "waiting"))
        during = cluster["chief:0"].step("trained to")
        assert cluster["chief:0"].step("trained to") > during

        network.heal()
        until(cluster.sees("worker:0", "running"))
        done = cluster.worker("worker:0").steps
        until(lambda: cluster.worker("worker:0").steps > done)
        cluster["chief:0"].enough()
        cluster["worker:0"].enough()
        assert [cluster[task].ended() for task in ("chief:0", "worker:0", "ps:0")] == [0, 0, 0]

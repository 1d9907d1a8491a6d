"""A worker behind a network of its own (a namespace of the kernel's), which is cut and healed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from networks import Network, private_network

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def network() -> Iterator[Network]:
    """A network, gone after the test."""
    with private_network() as made:
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

"""Which processes of a cluster do not answer: asked through real sockets."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest
import tensorflow as tf

from supervisor_core.tf1.cluster import wait
from supervisor_core.tf1.cluster.wait import remember_cluster, unreachable_tasks
from tests.cases import each

NOTHING_KNOWN = "a process of the cluster that does not answer (set TF_CONFIG to name it)"


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test knows of no cluster but its own."""
    monkeypatch.setattr(wait, "_known", {})
    monkeypatch.delenv("TF_CONFIG", raising=False)


@pytest.fixture
def listener() -> Iterator[str]:
    """The address of a process that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address that refuses connections: the port is bound, without a listener."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def config() -> Callable[..., tf.compat.v1.ConfigProto]:
    """Returns a function that makes a session's configuration, with these device filters."""
    return lambda *filters: tf.compat.v1.ConfigProto(device_filters=list(filters))


def test_who_does_not_answer_is_named(listener: str, nobody: str) -> None:
    """With its address; those that answer are not."""
    remember_cluster({"ps": {0: listener, 1: nobody}, "worker": {0: listener}})
    assert unreachable_tasks(None) == f"ps:1 ({nobody}): unreachable"


def test_who_is_silent_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch, nobody: str) -> None:
    """A connection that is neither accepted nor refused, as to a machine that is off, is given a second."""
    asked: list[tuple[tuple[str, int], float]] = []

    def silent(address: tuple[str, int], timeout: float) -> socket.socket:
        asked.append((address, timeout))
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", silent)
    remember_cluster({"ps": {0: "10.255.255.1:2222"}})
    assert unreachable_tasks(None) == "ps:0 (10.255.255.1:2222): unreachable"
    assert asked == [(("10.255.255.1", 2222), 1.0)]


@pytest.mark.parametrize(
    ("filters", "named"),
    [
        (("/job:ps",), ["ps:0", "ps:1"]),
        (("/job:ps/task:1",), ["ps:1"]),
        (("/job:ps/replica:0/task:1/device:CPU:0", "/job:worker/task:0"), ["ps:1", "worker:0"]),
        (("/job:ps/task:7",), []),
    ],
)
def test_only_those_that_the_session_needs(
    nobody: str, config: Callable[..., object], filters: tuple[str, ...], named: list[str]
) -> None:
    """A session's device filters say which; the others are no reason to wait."""
    remember_cluster({"ps": {0: nobody, 1: nobody}, "worker": {0: nobody, 10: nobody}})
    text = unreachable_tasks(config(*filters))
    expected = ", ".join(f"{name} ({nobody})" for name in named)
    assert text == (f"{expected}: unreachable" if named else NOTHING_KNOWN)


def test_the_cluster_of_the_session(nobody: str, config: Callable[..., object]) -> None:
    """The one in its configuration is the one that counts, whatever else is known."""
    remember_cluster({"worker": {0: nobody}})
    session = tf.compat.v1.ConfigProto(cluster_def=tf.train.ClusterSpec({"ps": [nobody]}).as_cluster_def())
    assert unreachable_tasks(session) == f"ps:0 ({nobody}): unreachable"


@each(
    "address",
    [
        "here",
        "",
        ":",
        "127.0.0.1:",
        "127.0.0.1:x",
        "127.0.0.1:99999999",
        "127.0.0.1:70000",
        "127.0.0.1:-1",
        "h" * 70 + ".a:1",
        "[::1",
        "a b:1",
    ],
)
def test_an_address_that_is_none_does_not_answer(address: str) -> None:
    """Nothing is raised over it."""
    remember_cluster({"ps": {0: address}})
    assert unreachable_tasks(None) == f"ps:0 ({address}): unreachable"


def test_an_unknown_host_does_not_answer() -> None:
    """As after a pod's end: its name is gone."""
    remember_cluster({"ps": {0: "no-such-host.invalid:2222"}})
    assert unreachable_tasks(None) == "ps:0 (no-such-host.invalid:2222): unreachable"

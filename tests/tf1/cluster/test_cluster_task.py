"""Which process of a cluster this is, and the TensorFlow server that it runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tensorflow as tf
from ports import free_port

from supervisor_core.base.errors import OptionsError
from supervisor_core.base.options import Options
from supervisor_core.engine.tf_config import TaskIdentity
from supervisor_core.tf1.cluster import task as task_module
from supervisor_core.tf1.cluster import wait
from supervisor_core.tf1.cluster.task import ClusterTask

v1 = tf.compat.v1
CLUSTER = {"ps": ("a:1", "b:1"), "worker": ("c:1", "d:1")}


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test's tasks remember is forgotten after it."""
    monkeypatch.setattr(wait, "_known", {})


class Servers:
    """Makes servers that serve nothing, and notes how."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[dict[str, Any]] = []
        self.joined = 0
        monkeypatch.setattr(tf.distribute, "Server", self._make)

    target = "grpc://c:1"

    def _make(self, cluster: Any, **arguments: Any) -> Servers:
        self.made.append({"cluster": cluster.as_dict(), **arguments})
        return self

    def join(self) -> None:
        self.joined += 1


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Servers:
    """The servers made from here on."""
    return Servers(monkeypatch)


def task(kind: str, index: int = 0, **cluster: tuple[str, ...]) -> ClusterTask:
    """Return a task of a cluster with two parameter servers and two workers, or of the one given."""
    return ClusterTask(TaskIdentity(cluster=cluster or CLUSTER, type=kind, index=index))


def from_config(config: object) -> ClusterTask:
    """Return the task that a TF_CONFIG describes."""
    return ClusterTask.from_environment({"TF_CONFIG": json.dumps(config)})


def test_roles() -> None:
    """From TF_CONFIG: the chief, where there is one, or else worker 0; parameter servers; the others."""
    cluster = {"ps": ["a:1"], "worker": ["b:1", "c:1"]}
    tasks = [
        from_config({"cluster": cluster, "task": {"type": kind, "index": index}})
        for kind, index in (("ps", 0), ("worker", 0), ("worker", 1))
    ]
    assert [each.name for each in tasks] == ["ps:0", "worker:0", "worker:1"]
    assert [each.is_chief for each in tasks] == [False, True, False]
    assert [each.is_parameter_server for each in tasks] == [True, False, False]
    chief = from_config({"cluster": {"chief": ["d:1"], **cluster}, "task": {"type": "chief", "index": 0}})
    assert (chief.name, chief.is_chief) == ("chief:0", True)
    worker = from_config({"cluster": {"chief": ["d:1"], **cluster}, "task": {"type": "worker", "index": 0}})
    assert not worker.is_chief
    assert worker.cluster.as_dict() == {"chief": ["d:1"], **cluster}


@pytest.mark.parametrize("environ", [{}, {"TF_CONFIG": " "}, {"TF_CONFIG": "{}"}])
def test_one_on_its_own(environ: dict[str, str], servers: Servers, graph: Any) -> None:
    """It is a chief that needs no server: the same program runs on one machine, its variables placed nowhere."""
    alone = ClusterTask.from_environment(environ)
    assert (alone.name, alone.is_chief, alone.is_parameter_server) == ("worker:0", True, False)
    assert (alone.start_server(), alone.target, servers.made) == (None, "", [])
    assert alone.cluster.as_dict() == {}
    assert list(alone.session_config().device_filters) == []
    with alone.device():
        assert v1.get_variable("weight", initializer=1.0).device == ""


def test_a_server_keeps_to_its_part_of_the_cluster(servers: Servers) -> None:
    """A worker's needs the parameter servers and itself; a parameter server's whoever comes; one's own configuration
    is taken as it is."""
    own = v1.ConfigProto(allow_soft_placement=True)
    task("worker", 1).start_server()
    task("ps", 1).start_server()
    task("worker", 0).start_server(own, protocol="grpc+x")
    assert list(servers.made[0]["config"].device_filters) == ["/job:ps", "/job:worker/task:1"]
    assert servers.made[1]["config"] is None
    assert servers.made[2]["config"] is own
    assert servers.made[2]["protocol"] == "grpc+x"


def test_a_real_server_serves() -> None:
    """Sessions on its target run in it."""
    address = f"127.0.0.1:{free_port()}"
    alone = task("worker", worker=(address,))
    alone.start_server()
    with tf.Graph().as_default(), alone.device(), v1.Session(alone.target, config=alone.session_config()) as sess:
        assert alone.target == f"grpc://{address}"
        assert sess.run(tf.constant(42)) == 42


def test_variables_on_the_parameter_servers(graph: Any) -> None:
    """In turn; all else on the process's own device; an inner device counts."""
    with task("worker", 1).device():
        variables = [v1.get_variable(name, initializer=1.0) for name in ("a", "b", "c")]
        product = variables[0] * 2.0
        with tf.device("/device:CPU:0"):
            inner = tf.constant(1.0)
    assert [each.device for each in variables] == ["/job:ps/task:0", "/job:ps/task:1", "/job:ps/task:0"]
    assert product.device == "/job:worker/task:1"
    assert inner.device == "/job:worker/task:1/device:CPU:0"


@pytest.mark.parametrize("kind", ["worker", "ps"])
def test_who_cannot_serve(kind: str, servers: Servers, logdir: str) -> None:
    """A worker, and a parameter server that was not started: the error says what to do."""
    with pytest.raises(
        RuntimeError, match=rf"{kind}:0 cannot serve: expected a task of the job 'ps' .* start_server\(\)"
    ):
        task(kind).serve(logdir)
    one = task("worker")
    one.start_server()
    with pytest.raises(RuntimeError, match="Chiefs and workers train instead"):
        one.serve(logdir)


@pytest.mark.parametrize(("options", "name"), [(None, "ps:1"), (Options(worker_name="store"), "store")])
def test_serving_with_a_logdir(
    servers: Servers, logdir: str, monkeypatch: pytest.MonkeyPatch, options: Options | None, name: str
) -> None:
    """A `ParameterServer` serves until the run has finished, by the task's name or the one in the options."""
    served: list[tuple[str, str, Options]] = []

    class Noted:
        def __init__(self, *arguments: Any) -> None:
            self.arguments = arguments

        def serve(self) -> None:
            served.append(self.arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(task_module, "ParameterServer", Noted)
    server = task("ps", 1)
    server.start_server()
    server.serve(logdir, options=options)
    assert served == [(logdir, name, options or Options())]
    assert servers.joined == 0


def test_an_environment_that_makes_no_sense() -> None:
    """Says what came and what to do."""
    with pytest.raises(OptionsError, match="TF_CONFIG is not JSON"):
        ClusterTask.from_environment({"TF_CONFIG": "{"})

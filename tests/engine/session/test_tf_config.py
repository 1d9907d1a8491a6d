"""Which process of a cluster this is: read as TensorFlow reads it, refused with words that help."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supervisor_core.base.errors import OptionsError
from supervisor_core.engine.tf_config import TaskIdentity, parse_tf_config, task_from_environment

CLUSTER = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}


def parse(cluster: Any = None, task: Any = None) -> TaskIdentity:
    """The identity that such a TF_CONFIG says."""
    return parse_tf_config(json.dumps({"cluster": cluster, "task": task}))


def test_a_worker_of_a_cluster() -> None:
    """Job, index, name and every address."""
    identity = parse(CLUSTER, {"type": "worker", "index": 1})
    assert (identity.type, identity.index, identity.name, identity.is_chief) == ("worker", 1, "worker:1", False)
    assert identity.cluster == {"chief": ("a:1",), "worker": ("b:1", "c:1"), "ps": ("d:1",)}
    assert identity.addresses == {"chief": {0: "a:1"}, "worker": {0: "b:1", 1: "c:1"}, "ps": {0: "d:1"}}


def test_what_it_does_not_know_is_left_alone() -> None:
    """TF_CONFIG carries more than the task: environment, layer, the session's master."""
    text = json.dumps({"cluster": CLUSTER, "task": {"type": "ps", "index": 0, "trial": "1"}, "rpc_layer": "grpc"})
    assert parse_tf_config(text).name == "ps:0"


@pytest.mark.parametrize(
    ("cluster", "kind", "index", "is_chief"),
    [
        (CLUSTER, "chief", 0, True),
        ({"master": ["a:1"], "worker": ["b:1"]}, "master", 0, True),
        ({"master": ["a:1"], "worker": ["b:1"]}, "worker", 0, False),
        (CLUSTER, "worker", 0, False),
        (CLUSTER, "ps", 0, False),
        ({"worker": ["a:1", "b:1"], "ps": ["c:1"]}, "worker", 0, True),
        ({"worker": ["a:1", "b:1"], "ps": ["c:1"]}, "worker", 1, False),
        ({"worker": ["a:1"], "ps": ["c:1"]}, "ps", 0, False),
        ({"worker": ["a:1"], "chief": []}, "worker", 0, True),
        (CLUSTER, "evaluator", 0, False),
        (None, "evaluator", 0, False),
        (None, "worker", 0, True),
        ({}, None, 0, True),
    ],
)
def test_who_is_the_chief(cluster: Any, kind: str | None, index: int, is_chief: bool) -> None:
    """The chief or master; without such a job worker 0; a process on its own; never an evaluator."""
    assert parse(cluster, {"type": kind, "index": index}).is_chief is is_chief


def test_addresses_by_index() -> None:
    """A job may be an object, with indices as text and tasks left out."""
    identity = parse({"worker": {"2": "c:1", "0": "a:1"}, "ps": ["d:1"]}, {"type": "worker", "index": "2"})
    assert identity.cluster["worker"] == ("a:1", "", "c:1")
    assert identity.addresses["worker"] == {0: "a:1", 2: "c:1"}
    assert identity.name == "worker:2"


@pytest.mark.parametrize("environ", [{}, {"TF_CONFIG": ""}, {"TF_CONFIG": " \n"}])
def test_nothing_is_said(environ: dict[str, str]) -> None:
    """Without a TF_CONFIG there is no task."""
    assert task_from_environment(environ) is None


def test_the_environment_says_it() -> None:
    """The variable is read from the mapping given; an empty object is a process on its own."""
    text = json.dumps({"cluster": CLUSTER, "task": {"type": "chief", "index": 0}})
    assert task_from_environment({"TF_CONFIG": text}) == parse_tf_config(text)
    assert task_from_environment({"TF_CONFIG": "{}"}) == TaskIdentity()
    assert TaskIdentity().is_chief


@pytest.mark.parametrize(
    ("cluster", "task", "message"),
    [
        (["a:1"], None, "cluster is .*expected a JSON object"),
        (CLUSTER, "worker:0", "task is 'worker:0'; expected a JSON object"),
        (CLUSTER, None, r"task.type is missing; .*chief \(1\), worker \(2\), ps \(1\), or evaluator"),
        (CLUSTER, {"type": 3}, "task.type is 3"),
        (CLUSTER, {"type": "boss", "index": 0}, "task.type is 'boss'; expected one of the cluster's jobs"),
        (CLUSTER, {"type": "worker"}, "task.index is missing; .*which of the 2 worker tasks"),
        (CLUSTER, {"type": "worker", "index": 2}, "task.index is 2; expected one of the worker tasks.*: 0, 1"),
        (CLUSTER, {"type": "worker", "index": -1}, "task.index is -1; expected a whole number"),
        (CLUSTER, {"type": "worker", "index": 0.5}, "task.index is 0.5; expected a whole number"),
        (CLUSTER, {"type": "worker", "index": True}, "task.index is True; expected a whole number"),
        ({"worker": {"1": "b:1"}}, {"type": "worker", "index": 0}, "task.index is 0; .*: 1"),
        ({"worker": {"one": "b:1"}}, {"type": "worker", "index": 0}, "an index in cluster.worker is 'one'"),
        ({"worker": {"999999999": "b:1"}}, {"type": "worker", "index": 0}, "an index .* is 999999999; .*below 100,000"),
        ({"worker": "a:1,b:1"}, {"type": "worker", "index": 0}, "cluster.worker is 'a:1,b:1'; expected a list"),
        ({"worker": ["a:1", None]}, {"type": "worker", "index": 0}, r"cluster.worker\[1\] is missing; expected an add"),
        (
            {"chief": ["a:1", "b:1"]},
            {"type": "chief", "index": 0},
            "cluster is .chief:0, chief:1.; expected one chief at most",
        ),
        (
            {"chief": ["a:1"], "master": ["b:1"]},
            {"type": "chief"},
            "cluster is .chief:0, master:0.; expected one chief at most",
        ),
        (None, {"type": "worker", "index": 1}, "task is 'worker:1'; expected no task.*give it the whole cluster"),
        (None, {"type": "ps", "index": 0}, "task is 'ps:0'"),
    ],
)
def test_what_is_wrong_is_said(cluster: Any, task: Any, message: str) -> None:
    """What came, what was expected, what to do."""
    with pytest.raises(OptionsError, match=f"(?s)TF_CONFIG: {message}.*Correct it where the process is started"):
        parse(cluster, task)


@pytest.mark.parametrize("text", ["worker:0", "{", "[" * 100_000])
def test_what_is_no_json_is_said(text: str) -> None:
    """With its beginning, and an example of what would do."""
    with pytest.raises(OptionsError, match=r'TF_CONFIG is not JSON .*like {"cluster".* unset it'):
        task_from_environment({"TF_CONFIG": text})


@pytest.mark.parametrize("text", ["null", "3", "[]"])
def test_what_is_no_object_is_said(text: str) -> None:
    """Any other JSON is no configuration."""
    with pytest.raises(OptionsError, match=r"TF_CONFIG: the whole is .*expected a JSON object"):
        parse_tf_config(text)

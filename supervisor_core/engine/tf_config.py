"""`TaskIdentity`: which process of a cluster this is, from the environment variable ``TF_CONFIG``.

    {"cluster": {"chief": ["a:2222"], "worker": ["b:2222", "c:2222"], "ps": ["d:2222"]},
     "task": {"type": "worker", "index": 1}}

A job's addresses are a list, or an object of index -> address. ``master`` is the chief's older name; without
either, worker 0 is the chief. An ``evaluator`` belongs to no cluster. Other fields are ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from supervisor_core.base.errors import OptionsError

TF_CONFIG_VARIABLE = "TF_CONFIG"
"""Set by Kubernetes' TFJob and others."""

CHIEF_JOBS = ("chief", "master")
EVALUATOR_JOB = "evaluator"

_EXAMPLE = '{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}'
_MAX_TASKS = 100_000


@dataclass(frozen=True, kw_only=True)
class TaskIdentity:
    """One process of a cluster.

    Example:
        >>> identity = TaskIdentity(cluster={"worker": ("a:2222", "b:2222")}, type="worker", index=1)
        >>> identity.name, identity.is_chief, identity.addresses["worker"][1]
        ('worker:1', False, 'b:2222')
    """

    cluster: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Job -> its tasks' addresses in the order of their indices; ``""`` for a task that the cluster leaves out. Empty
    for a single process."""
    type: str | None = None
    """This process's job; None for a single process without one."""
    index: int = 0

    @property
    def name(self) -> str:
        """The task, ``worker:1``; ``worker:0`` for a single process."""
        return f"{self.type or 'worker'}:{self.index}"

    @property
    def is_chief(self) -> bool:
        """Whether this process initialises the model, saves and writes events."""
        if self.type == EVALUATOR_JOB:
            return False
        if not self.cluster or self.type in CHIEF_JOBS:
            return True
        return self.type == "worker" and self.index == 0 and not any(job in self.cluster for job in CHIEF_JOBS)

    @property
    def addresses(self) -> dict[str, dict[int, str]]:
        """The cluster as ``tf.train.ClusterSpec`` takes it: job -> index -> address, without the tasks left out."""
        return {
            job: {index: address for index, address in enumerate(tasks) if address}
            for job, tasks in self.cluster.items()
        }


def task_from_environment(environ: Mapping[str, str] = os.environ) -> TaskIdentity | None:
    """Return which process this is; None if ``TF_CONFIG`` is not set or empty.

    Raises:
        OptionsError: as `parse_tf_config`.
    """
    text = environ.get(TF_CONFIG_VARIABLE, "")
    return parse_tf_config(text) if text.strip() else None


def parse_tf_config(text: str) -> TaskIdentity:
    """Return which process a ``TF_CONFIG`` describes.

    Raises:
        OptionsError: if it is no JSON object, names no task of its cluster, or two chiefs.

    Example:
        >>> parse_tf_config('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}').name
        'worker:1'
    """
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionsError(
            f"{TF_CONFIG_VARIABLE} is not JSON ({error}): {text[:80]!r}. Expected an object like {_EXAMPLE}; "
            "correct it where the process is started, or unset it for a process on its own."
        ) from error
    config = _object(config, "the whole")
    cluster = _cluster(_object(config.get("cluster"), "cluster"))
    task = _object(config.get("task"), "task")
    kind = task.get("type")
    if kind is not None and (not isinstance(kind, str) or not kind):
        _refuse("task.type", kind, 'a job of the cluster, as "worker"')
    identity = TaskIdentity(cluster=cluster, type=kind, index=_index(task.get("index"), "task.index", missing=0))
    _check_task(identity, named="index" in task)
    return identity


def _check_task(identity: TaskIdentity, *, named: bool) -> None:
    kind, index, cluster = identity.type, identity.index, identity.cluster
    if kind == EVALUATOR_JOB:
        return
    if not cluster:
        if kind not in (None, "worker", *CHIEF_JOBS) or index != 0:
            _refuse(
                "task", identity.name, 'no task, or worker 0, where there is no "cluster"; give it the whole cluster'
            )
        return
    jobs = ", ".join(f"{job} ({len(tasks)})" for job, tasks in cluster.items())
    if kind is None:
        _refuse("task.type", None, f"which task of the cluster this process is: one of {jobs}, or {EVALUATOR_JOB}")
    if kind not in cluster:
        _refuse("task.type", kind, f"one of the cluster's jobs: {jobs}, or {EVALUATOR_JOB}")
    if not named and len(cluster[kind]) > 1:
        _refuse("task.index", None, f"which of the {len(cluster[kind])} {kind} tasks this process is")
    if index >= len(cluster[kind]) or not cluster[kind][index]:
        known = ", ".join(str(item) for item in list(identity.addresses[kind])[:20])
        _refuse("task.index", index, f"one of the {kind} tasks of the cluster: {known}")


def _cluster(jobs: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    cluster = {job: _tasks(job, tasks) for job, tasks in jobs.items()}
    cluster = {job: tasks for job, tasks in cluster.items() if tasks}
    chiefs = [f"{job}:{index}" for job in CHIEF_JOBS for index, _ in enumerate(cluster.get(job, ()))]
    if len(chiefs) > 1:
        _refuse("cluster", ", ".join(chiefs), "one chief at most; name the others workers")
    return cluster


def _tasks(job: str, tasks: Any) -> tuple[str, ...]:
    name = f"cluster.{job}"
    if isinstance(tasks, list):
        by_index = dict(enumerate(tasks))
    elif isinstance(tasks, dict):
        by_index = {_index(key, f"an index in {name}"): address for key, address in tasks.items()}
    else:
        _refuse(name, tasks, 'a list of addresses, as ["a:2222", "b:2222"], or an object of index -> address')
    for index, address in by_index.items():
        if not isinstance(address, str) or not address.strip():
            _refuse(f"{name}[{index}]", address, 'an address, as "host:2222"')
    return tuple(by_index.get(index, "") for index in range(max(by_index, default=-1) + 1))


def _index(value: Any, name: str, *, missing: int | None = None) -> int:
    if value is None and missing is not None:
        return missing
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MAX_TASKS:
        _refuse(name, value, f"a whole number from 0, below {_MAX_TASKS:,}")
    return int(value)


def _object(value: Any, name: str) -> Mapping[str, Any]:
    if value is None and name != "the whole":
        return {}
    if not isinstance(value, dict):
        _refuse(name, value, f"a JSON object, as in {_EXAMPLE}")
    return dict(value)


def _refuse(name: str, value: object, expected: str) -> NoReturn:
    came = "missing" if value is None else repr(value)[:80]
    raise OptionsError(
        f"{TF_CONFIG_VARIABLE}: {name} is {came}; expected {expected}. Correct it where the process is started."
    )

"""`unreachable_tasks`: which processes of a cluster do not answer, so that a wait can say whom it is for."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from supervisor_core.errors import OptionsError
from supervisor_core.supervision.tf_config import task_from_environment

ANSWER_SECS = 1.0
"""How long a process has to accept a connection, in seconds."""

_NAMED = 5
"""How many are named, of those that do not answer."""
_AT_ONCE = 256
"""How many are asked, of those that there are: one that hangs is enough to know."""
_THREADS = 64

_known: dict[str, str] = {}


def remember_cluster(addresses: Mapping[str, Mapping[int, str]]) -> None:
    """Keep in mind where this process's cluster is, for the time when something of it is waited for."""
    _known.clear()
    _known.update(_flat(addresses))


def unreachable_tasks(config: Any) -> str:
    """Return which of the cluster's processes accept no connection; a general text where nothing is known of them.

    Args:
        config: the session's ``ConfigProto``, for its device filters and its cluster; or None.
    """
    tasks = _tasks(config)
    silent = _silent(tasks) if tasks else []
    if silent:
        more = f" and {len(silent) - _NAMED} more" if len(silent) > _NAMED else ""
        return ", ".join(f"{name} ({tasks[name]})" for name in silent[:_NAMED]) + more + ": not to be reached"
    if tasks:
        return "the cluster: all its processes accept connections, and the session is not there yet"
    return "a process of the cluster that does not answer (set TF_CONFIG to name it)"


def _tasks(config: Any) -> dict[str, str]:
    """Return the tasks that a session with this configuration needs, name -> address."""
    tasks: dict[str, str] = {}
    if config is not None and config.HasField("cluster_def"):
        tasks = {f"{job.name}:{index}": at for job in config.cluster_def.job for index, at in job.tasks.items()}
    tasks = tasks or dict(_known)
    if not tasks:
        try:
            identity = task_from_environment()
        except OptionsError:  # whoever starts the server from it says so
            identity = None
        tasks = {} if identity is None else _flat(identity.addresses)
    filters = list(config.device_filters) if config is not None else []
    if filters:
        tasks = {name: address for name, address in tasks.items() if any(_is_in(name, each) for each in filters)}
    return dict(list(tasks.items())[:_AT_ONCE])


def _flat(addresses: Mapping[str, Mapping[int, str]]) -> dict[str, str]:
    return {f"{job}:{index}": address for job, tasks in addresses.items() for index, address in tasks.items()}


def _is_in(name: str, device_filter: str) -> bool:
    job, _, index = name.partition(":")
    parts = [part for part in device_filter.split("/") if part]
    return f"job:{job}" in parts and (f"task:{index}" in parts or not any(part.startswith("task:") for part in parts))


def _silent(tasks: Mapping[str, str]) -> list[str]:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="supervisor_reach") as threads:
        answers = list(threads.map(_accepts, tasks.values()))
    return [name for name, answer in zip(tasks, answers, strict=True) if not answer]


def _accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECS).close()
    except (OSError, ValueError):
        return False
    return True

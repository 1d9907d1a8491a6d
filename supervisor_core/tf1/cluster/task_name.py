"""`task_name`: what a worker is called among the processes of its cluster."""

from __future__ import annotations

import logging
import os
import re
import socket
from typing import Any

from supervisor_core.errors import OptionsError
from supervisor_core.options import Options
from supervisor_core.supervision.tf_config import task_from_environment

_LOG = logging.getLogger("supervisor_core")
_TASK = re.compile(r"/job:([^/]+)/(?:replica:\d+/)?task:(\d+)")
_SERVERS = "ps"


def task_name(options: Options, graph: Any) -> str:
    """Return a worker's name, ``worker:1``: as the options, TF_CONFIG or its graph say, or else ``host-pid``.

    A graph says it when all of its operations that are placed on any task but parameter servers' are placed on one.

    Args:
        options: for `Options.worker_name`.
        graph: the worker's graph, as far as it is built.
    """
    if options.worker_name is not None:
        return options.worker_name
    try:
        identity = task_from_environment()
    except OptionsError as error:  # the program may never look at it
        _LOG.warning("This worker's name is not known: %s", error)
        identity = None
    if identity is not None and identity.cluster:
        return identity.name
    devices = {op.device for op in graph.get_operations()}
    tasks = {(found[1], found[2]) for device in devices if (found := _TASK.search(device))}
    others = {f"{job}:{int(index)}" for job, index in tasks if job != _SERVERS}
    return others.pop() if len(others) == 1 else f"{socket.gethostname()}-{os.getpid()}"

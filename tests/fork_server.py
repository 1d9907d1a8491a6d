"""Imports modules once, and forks a process for each program that is to run: importing takes seconds each time.

Usage: fork_server.py DESCRIPTOR MODULE...; the descriptor is that of a sequenced-packet socket. A request is JSON:
``{"run": [PATH, ARGUMENT...], "environment": {}, "cwd": null, "network": null}`` with descriptors for standard input,
output and error, answered by the process's id. The path may be ``-c``, with the program as its argument, and the
network the name of one that ``ip netns`` made. ``{"poll": ID}`` is answered by the status of a process that has ended,
and null before. At the end of the socket the server ends.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import socket
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

CLONE_NEWNET = 0x40000000


def serve(channel: socket.socket) -> list[str] | None:
    """Fork as asked. Returns in each child, with what it is to run; None in the server, at its end."""
    gc.collect()
    gc.freeze()  # else each child looks through all that was imported when it ends
    channel.send(b"ready")
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 1 << 16, 3)
        if not message:
            return None
        request = json.loads(message)
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            channel.send(json.dumps(os.waitstatus_to_exitcode(status) if pid else None).encode())
            continue
        pid = os.fork()
        if not pid:
            channel.close()
            become(request, descriptors)
            return list(request["run"])
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(json.dumps(pid).encode())


def become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Take a child's descriptors, environment and network."""
    for number, target in zip(descriptors, (0, 1, 2), strict=True):
        os.dup2(number, target)
        os.close(number)
    os.environ.update(request["environment"])
    if request["cwd"] is not None:
        os.chdir(request["cwd"])
    if request["network"] is not None:
        space = os.open(os.path.join("/run/netns", request["network"]), os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(space, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns", request["network"])
        os.close(space)


def execute(run: list[str]) -> None:
    """Run a program as an interpreter does that was started with these arguments: its module stays to the very end."""
    main = ModuleType("__main__")
    if run[0] == "-c":
        source: str | bytes = run.pop(1)
        sys.path[0] = ""
    else:
        source = Path(run[0]).read_bytes()
        sys.path[0] = os.path.dirname(run[0])
        main.__file__ = run[0]
    sys.argv, sys.modules["__main__"] = run, main
    exec(compile(source, run[0], "exec"), main.__dict__)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        module, _, attribute = name.partition(":")
        getattr(import_module(module), attribute or "__name__")  # some attributes import more
    to_run = serve(socket.socket(fileno=int(sys.argv[1])))
    if to_run:
        execute(to_run)

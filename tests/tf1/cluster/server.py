"""Imports tensorflow once, and forks a process for each program that is to run: importing takes seconds each time.

Usage: server.py DESCRIPTOR, of a sequenced-packet socket. A request is JSON: ``{"run": [PATH, ARGUMENT...],
"environment": {}}`` with descriptors for standard input and output, answered by the process's id, or ``{"poll": ID}``,
answered by the status of a process that has ended, and null before. At the end of the socket the server ends.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import socket
import sys

import tensorflow as tf

import supervisor_core

assert tf.compat.v1 and supervisor_core.Supervisor  # loaded, though neither does anything here


def serve(channel: socket.socket) -> list[str] | None:
    """Fork as asked. Returns in each child, with what it is to run; None in the server, at its end."""
    gc.collect()
    gc.freeze()  # else each child looks through all that was imported when it ends
    channel.send(b"ready")
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 1 << 16, 2)
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
            for number, target in zip(descriptors, (0, 1), strict=True):
                os.dup2(number, target)
                os.close(number)
            os.dup2(1, 2)
            os.environ.update(request["environment"])
            return list(request["run"])
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(json.dumps(pid).encode())


if __name__ == "__main__":
    sys.argv = serve(socket.socket(fileno=int(sys.argv[1]))) or []
    if sys.argv:
        runpy.run_path(sys.argv[0], run_name="__main__")

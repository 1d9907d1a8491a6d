"""Whether a stack waits for other processes, in a collective operation, and what makes two stacks the same place.

A process that waits in a collective is not the cause of a hang: another one did not come. Python's frames show that
only for known libraries; what is not known counts as the program's own work.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256

from supervisor_core.process.stacks import FRAME, is_library, user_line

KEPT_FRAMES = 20
"""The number of innermost frames that a process publishes."""
MAX_FRAME = 300
"""Letters of one of them, the last ones."""

_AROUND = re.compile(
    r"/(torch/(_ops|_compile|utils/_contextlib|distributed/c10d_logger|_dynamo/eval_frame)\.py"
    r"|contextlib\.py|threading\.py|jax/_src/(traceback_util|profiler|util)\.py)$"
)
"""Files of frames that may be further in than the one which names the collective."""
_BACKWARD = re.compile(r"/torch/(_tensor|autograd/(__init__|graph))\.py$")
_DEVICE = re.compile(r"/jax/_src/(array|api|interpreters/pxla)\.py$")
"""Files in which JAX waits for an array, which may be the result of a collective."""
_COLLECTIVE = re.compile(
    r"/(torch/distributed/(distributed_c10d|_functional_collectives|rendezvous|elastic/.*|nn/functional|fsdp/.*)\.py"
    r"|torch/nn/(parallel/distributed|modules/_functions)\.py"
    r"|torch/distributed/(_composable|algorithms)/.*\.py"
    r"|deepspeed/comm/.*\.py|horovod/.*\.py"
    r"|jax/(experimental|_src)/multihost_utils\.py|jax/_src/distributed\.py"
    r"|tensorflow/python/client/session\.py"
    r"|supervisor_core/(torch|jax)/ranks\.py)$"
)


def waits_in(stack: Sequence[str]) -> str | None:
    """Return the operation in which a stack waits for other processes; None where it does not, or none is known.

    A backward pass is one: with several processes it ends when all have sent their gradients.

    Example:
        >>> waits_in(("/home/me/train.py:25 train", "/site-packages/torch/autograd/graph.py:8 _engine_run_backward"))
        'backward'
        >>> waits_in(("/home/me/train.py:14 stuck_in_user_code",)) is None
        True
    """
    for frame in reversed(stack):
        found = FRAME.fullmatch(frame.replace("\\", "/"))
        if found is None:
            return None
        file, function = found["file"], found["function"].rsplit(".", 1)[-1]
        if _AROUND.search(file):
            continue
        if _BACKWARD.search(file):
            return "backward" if "backward" in function else None
        if _DEVICE.search(file):
            return "device"
        is_collective = _COLLECTIVE.search(file) is not None
        return function.lstrip("_").removeprefix("distributed_") or None if is_collective else None
    return None


def digest(stack: Sequence[str]) -> str:
    """Return a digest that is the same for two stacks at one place: the same functions, and in the program's own files
    the same lines. Lines of libraries are left out: a library that waits in a loop is now at one, now at another.

    Example:
        >>> digest(("/a/train.py:25 train", "/usr/lib/python3.11/threading.py:327 wait")) == digest(
        ...     ("/a/train.py:25 train", "/usr/lib/python3.11/threading.py:331 wait")
        ... )
        True
    """
    text = "\n".join(_without_line(frame) if is_library(frame) else frame for frame in stack)
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _without_line(frame: str) -> str:
    found = FRAME.fullmatch(frame)
    return frame if found is None else f"{found['file']} {found['function']}"


def kept(stack: Sequence[str]) -> tuple[str, ...]:
    """Return the innermost frames of a stack, bounded in number and length, the program's own line among them."""
    frames = list(stack[-KEPT_FRAMES:])
    own = user_line(stack)
    if own is not None and own not in frames:
        frames[0] = own
    return tuple(frame[-MAX_FRAME:] for frame in frames)

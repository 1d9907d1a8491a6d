"""The Python stacks of a process's threads, as lines ``"file:line function"``, and the line of the program in them.

No source file is read: where a process hangs on a mount that also holds its sources, reading one would hang, too.
"""

from __future__ import annotations

import faulthandler
import os
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from hashlib import sha256
from types import FrameType
from typing import Literal

MAIN_THREAD = "MainThread"
LOADER_WORKER = "a worker of the loader"
"""The name, among a process's stacks, of the process for whose batch its main thread waits."""
MAX_FRAMES = 40
"""The number of frames to keep of a stack, the innermost."""
MAX_LOCATION = 120
"""Letters of a location; a function's qualified name has no bound."""

BLOCKED = "Native code holds the interpreter lock"
"""What a stall is, for people, in which no thread can run Python."""

Activity = Literal["busy", "waits"]
"""What a thread did for some seconds: it ran, or was ready to run, for at least half of them; or it slept for nine
tenths of them. Anything else is not known."""

FRAME = re.compile(r"(?P<file>.*):(?P<line>\d+) (?P<function>.*)", re.DOTALL)
"""A line of a stack."""

Stacks = Mapping[str, tuple[str, ...]]
"""Name of the thread -> its frames, outermost first."""

_LIBRARY = re.compile(r"[\\/](lib(64)?[\\/]python3[^\\/]*|site-packages|dist-packages|supervisor_core)[\\/]|^<frozen ")
"""Finds a frame of Python's library, of an installed package or of the supervisor."""
_SUPERVISOR = re.compile(r"[\\/]supervisor_core[\\/]")


_DUMPED_THREAD = re.compile(r"^(?:Current thread|Thread) 0x([0-9a-f]+) ")
_DUMPED_FRAME = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$')
_DUMPED_LETTER = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")


def python_stacks() -> dict[str, tuple[str, ...]]:
    """Return the Python stack of every thread: thread name -> ``"file:line function"``, outermost first.

    `faulthandler` reads them, in one call that holds the interpreter lock. It makes no frame object. Reading the
    frames of running threads by ``sys._current_frames`` and ``f_back`` makes some: then a collection of garbage may let
    the other thread go on, and its frame is freed while it is read (a crash), or the process hangs
    (python/cpython#106883), or what the frame held is destroyed in this thread.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident or 0
    names[main] = MAIN_THREAD  # whatever the program calls it
    try:
        found = _dumped()
    except (OSError, AttributeError):  # no more file descriptors; not Linux
        found = {}
    if main not in found:  # nor where there are more than 100 threads
        found = {ident: _lines(frame) for ident, frame in sys._current_frames().items()}
    stacks: dict[str, tuple[str, ...]] = {}
    for ident, lines in found.items():
        name = names.get(ident, f"thread {ident}")
        stacks[name if name not in stacks else f"{name} ({ident})"] = lines
    return stacks


def main_stack() -> tuple[str, ...]:
    """Return the Python stack of the main thread, as in `python_stacks`."""
    return python_stacks().get(MAIN_THREAD, ())


def running_main_stack() -> tuple[str, ...]:
    """Return `main_stack` where `faulthandler` can tell it, and never walk the frames of a thread that may run."""
    try:
        return _dumped().get(threading.main_thread().ident or 0, ())
    except (OSError, AttributeError):
        return ()


def _dumped() -> dict[int, tuple[str, ...]]:
    """Return the stacks by the threads' ids."""
    descriptor = os.memfd_create("stacks")
    try:
        faulthandler.dump_traceback(descriptor, all_threads=True)
        data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)
    found: dict[int, list[str]] = {}
    lines: list[str] = []
    for line in data.decode("ascii", "replace").split("\n"):
        if thread := _DUMPED_THREAD.match(line):
            lines = found.setdefault(int(thread[1], 16), [])
        elif (frame := _DUMPED_FRAME.match(line)) and len(lines) < MAX_FRAMES:
            number = 0 if frame[2] == "???" else int(frame[2])
            lines.append(_DUMPED_LETTER.sub(_letter, f"{frame[1]}:{number} {frame[3]}"))
    return {ident: tuple(reversed(inner)) for ident, inner in found.items()}


def _letter(escaped: re.Match[str]) -> str:
    return chr(int(escaped[escaped.lastindex or 0], 16))


def _lines(frame: FrameType | None) -> tuple[str, ...]:
    lines: list[str] = []
    while frame is not None and len(lines) < MAX_FRAMES:
        lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno or 0} {frame.f_code.co_name}")
        frame = frame.f_back
    return tuple(reversed(lines))


def user_line(stack: Sequence[str]) -> str | None:
    """Return the innermost line of a stack that is the program's own, or else the innermost; None of no stack.

    Example:
        >>> user_line(("/home/me/train.py:88 step", "/usr/lib/python3.11/threading.py:327 wait"))
        '/home/me/train.py:88 step'
    """
    own = [line for line in stack if not _LIBRARY.search(line)]
    return own[-1] if own else stack[-1] if stack else None


_FETCH = re.compile(r"[\\/]torch[\\/]utils[\\/]data[\\/]dataloader\.py:\d+ (\w+\.)?(_try)?_get_data$")
"""Finds where a process waits for a worker of its ``DataLoader``."""


def waits_for_loader(stacks: Stacks) -> bool:
    """Return whether the main thread waits for a batch of a ``DataLoader`` with workers."""
    return any(map(_FETCH.search, stacks.get(MAIN_THREAD, ())))


def place_of_hang(stacks: Stacks) -> tuple[str, str | None]:
    """Return the thread that a process without progress waits for, and its line of the program: those of a worker of
    the loader where the main thread waits for its batch.

    Example:
        >>> place_of_hang({"MainThread": ("/home/me/train.py:8 step",), "a worker of the loader": ("/d.py:3 decode",)})
        ('a worker of the loader', '/d.py:3 decode')
    """
    thread = LOADER_WORKER if LOADER_WORKER in stacks else MAIN_THREAD
    return thread, user_line(stacks.get(thread, ()))


def is_library(line: str) -> bool:
    """Return whether a line of a stack is of Python's library, of an installed package or of the supervisor."""
    return _LIBRARY.search(line) is not None


def in_order(stacks: Stacks) -> list[str]:
    """Return the names of the threads: the main one first, the supervisor's own last."""
    return sorted(stacks, key=lambda name: (name != MAIN_THREAD, name != MAIN_THREAD and is_supervisors(stacks[name])))


def is_supervisors(stack: Sequence[str]) -> bool:
    """Return whether a thread is one of the supervisor's own: it runs its code, and none of the program's."""
    return any(map(_SUPERVISOR.search, stack)) and all(map(_LIBRARY.search, stack))


def location(line: str) -> str:
    """Return a line of a stack for a message or a label: without directories and control characters, in one line.

    A location stays as it is.

    Example:
        >>> location("/home/me/train.py:88 step")
        'train.py:88 in step'
    """
    found = FRAME.fullmatch(line)
    text = line
    if found is not None:
        file = re.split(r"[\\/]", found["file"])[-1]
        text = f"{file}:{found['line']} in {found['function'].removeprefix('in ')}"
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= MAX_LOCATION else text[: MAX_LOCATION - 3] + "..."


def whereabouts(thread: str, at: str | None, activity: Activity | None) -> str:
    """Return where a thread is and what it does there, for people.

    Example:
        >>> whereabouts("MainThread", "train.py:88 in step", "waits")
        'MainThread waits at train.py:88 in step'
        >>> whereabouts("MainThread", None, "busy")
        'MainThread is busy'
        >>> whereabouts("a worker of the loader", "data.py:31 in decode", "waits")
        'a worker of the loader hangs at data.py:31 in decode'
    """
    if thread == LOADER_WORKER:  # the activity is the main thread's
        return f"{thread} hangs" if at is None else f"{thread} hangs at {at}"
    does = "is" if activity is None else "is busy" if activity == "busy" else "waits"
    if at is None:
        return thread if activity is None else f"{thread} {does}"
    return f"{thread} {does} at {at}"


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

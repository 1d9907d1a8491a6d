"""What is seen of another process from outside, without stopping it.

`outside_stacks`: its Python stacks, read from its memory by py-spy, a program of its own, which is installed with this
package where it has wheels. The kernel decides who may read the memory of a process.

`thread_states`: what the kernel says of each of its threads. That needs no permission to trace it.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from supervisor_core.base.install import PY_SPY, pip_install
from supervisor_core.process.identity import read_kernel
from supervisor_core.process.stacks import LOADER_WORKER, MAIN_THREAD, MAX_FRAMES, Stacks, waits_for_loader

PERMISSION = (
    "the kernel does not let this user read that process: run as root or as the same user. Besides, "
    "kernel.yama.ptrace_scope must be 0 (or 1, for a program under tb-supervisor run), and a container needs the "
    "capability SYS_PTRACE"
)
MAX_THREADS = 1000
MAX_WORKERS, WORKERS_SECS = 32, 3.0
"""How many workers of a loader are looked at, and for how long in all."""
_WORKER = re.compile(r"[\\/]torch[\\/]utils[\\/]data[\\/]_utils[\\/]worker\.py:\d+ _worker_loop$")
_MAKES_BATCH = re.compile(r"[\\/]torch[\\/]utils[\\/]data[\\/]_utils[\\/]fetch\.py:\d+ ")
END_SECS = 1.0
"""How long a py-spy that was killed may take to end. One that waits for a device or a mount cannot be killed."""
_MAX_BYTES = 16 << 20
"""How much py-spy may print. Each frame is an object of some 300 bytes, with the name of its file."""
MEMORY_BYTES = 512 << 20
"""How much memory py-spy may map, on Linux: of a program with TensorFlow it maps 30 MiB."""
TRACER_VARIABLE = "SUPERVISOR_TRACER_PID"
"""Environment variable with the process that may read this one's memory, and those that it starts."""
_PR_SET_PTRACER = 0x59616D61
_left_behind: set[int] = set()


@dataclass(frozen=True, kw_only=True)
class OutsideStacks:
    """What could be read."""

    stacks: Stacks = field(default_factory=dict)
    """As of `supervisor_core.process.stacks.python_stacks`."""
    threads: dict[str, int] = field(default_factory=dict)
    """Name of the thread -> the kernel's id."""
    holds_lock: str | None = None
    """The thread that holds the interpreter's lock; None if none does."""
    problem: str | None = None
    """Why there are no stacks, and what to do."""


def outside_stacks(pid: int, *, timeout_secs: float = 10.0) -> OutsideStacks:
    """Return the stacks of a Python process. Raises nothing, and waits for no longer than it may: all that could hang
    (the mount with py-spy, py-spy itself) is in a thread of its own, which is left behind then.

    Args:
        timeout_secs: how long py-spy may take; `END_SECS` more if it has to be killed.
    """
    found: list[OutsideStacks] = []
    thread = threading.Thread(
        target=lambda: found.append(_dump(pid, timeout_secs)), name="supervisor_py-spy", daemon=True
    )
    try:
        thread.start()
    except RuntimeError as error:
        return OutsideStacks(problem=f"py-spy cannot be run: {error}")
    thread.join(timeout_secs + END_SECS)
    if found:
        seen = found[0]
        return replace(seen, stacks={**seen.stacks, **loader_workers(pid, seen.stacks)})
    return OutsideStacks(problem=f"py-spy did not end within {timeout_secs:.0f} s, nor when it was killed")


def loader_workers(pid: int, stacks: Stacks) -> dict[str, tuple[str, ...]]:
    """Return the stacks of the workers that make a batch for a process which waits for one; none of another process.

    Args:
        stacks: those of its own threads.
    """
    found: dict[str, tuple[str, ...]] = {}
    until = time.monotonic() + WORKERS_SECS
    children = _children(pid)[:MAX_WORKERS] if waits_for_loader(stacks) else []
    for child in children:
        seen = _dump(child, max(0.1, until - time.monotonic())).stacks.get(MAIN_THREAD, ())
        own = seen[max((at for at, line in enumerate(seen) if _WORKER.search(line)), default=len(seen)) + 1 :]
        if any(map(_MAKES_BATCH.search, own)):  # what is before is the trainer's, from which it was forked
            found[f"{LOADER_WORKER} (pid {child})" if found else LOADER_WORKER] = own
        if time.monotonic() > until:
            break
    return found


def _children(pid: int) -> list[int]:
    """Return the processes that a process has started, and still run: Linux only."""
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    return sorted(found)


def no_py_spy() -> str:
    """Return what to say where py-spy is missing."""
    return f"py-spy is not installed; to install it: {pip_install(PY_SPY)}"


def _dump(pid: int, timeout_secs: float) -> OutsideStacks:
    program = find_py_spy()
    if program is None:
        return OutsideStacks(problem=no_py_spy())
    command = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    until = time.monotonic() + timeout_secs
    output: bytes | None = None
    problem = ""
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # killed with everything that it has started
        ) as process:
            try:
                _limit_memory(process.pid)
                output, errors = _outputs(process, until)
                process.wait(max(0.0, until - time.monotonic()))
            except _TooLong:
                problem = f"py-spy printed more than {_MAX_BYTES >> 20} MiB: {_TOO_LARGE}"
            except (TimeoutError, subprocess.TimeoutExpired):
                problem = f"py-spy did not end within {timeout_secs:.0f} s"
            if problem:
                _left_behind.add(process.pid)
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    except OSError as error:
        return OutsideStacks(problem=f"{program} cannot be run: {error.strerror}")
    if problem or output is None:
        _left_behind.discard(process.pid)
        return OutsideStacks(problem=problem)
    return OutsideStacks(problem=_problem(errors.decode("utf-8", "replace"))) if process.returncode else parse(output)


_TOO_LARGE = "the stacks of that process are too deep, or the names in them too long, to be read"


class _TooLong(Exception):  # noqa: N818
    """A process has printed more than `_MAX_BYTES`."""


def _limit_memory(pid: int) -> None:
    """Let py-spy map no more than `MEMORY_BYTES`: it holds all frames, whose number and names are the program's."""
    with suppress(ImportError, AttributeError, OSError):  # not Linux; has ended; runs as root by its file's mode
        import resource

        resource.prlimit(pid, resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def _outputs(process: subprocess.Popen[bytes], until: float) -> tuple[bytes, bytes]:
    """Return what a process prints, and its errors.

    Raises:
        TimeoutError: if it has not closed both by then.
        _TooLong: if it prints more than `_MAX_BYTES`.
    """
    assert process.stdout is not None and process.stderr is not None
    texts = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    with selectors.DefaultSelector() as selector:
        for descriptor in texts:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, until - time.monotonic()))
            if not ready or time.monotonic() > until:
                raise TimeoutError
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                texts[key.fd] += data
                if sum(map(len, texts.values())) > _MAX_BYTES:
                    raise _TooLong
                if not data:
                    selector.unregister(key.fd)
    output, errors = texts.values()
    return bytes(output), bytes(errors)


def left_behind() -> frozenset[int]:
    """Return the processes of py-spy that were killed and have not ended."""
    return frozenset(_left_behind)


def allow_tracer(environment: Mapping[str, str] = os.environ) -> None:
    """Allow the process in `TRACER_VARIABLE` to read this one's memory, where Yama would refuse it (scope 1)."""
    value = environment.get(TRACER_VARIABLE, "")
    if value.isascii() and value.isdigit() and 0 < int(value[:10]) < 1 << 31:
        set_tracer(int(value))


def set_tracer(pid: int) -> None:
    """Allow one process, and those that it starts, to read this one's memory; no other any longer."""
    import ctypes

    with suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)


def find_py_spy() -> str | None:
    """Return the path of py-spy: of this Python's environment, or else on the ``PATH``; None without one."""
    beside = os.path.join(os.path.dirname(sys.executable or ""), "py-spy")
    return beside if os.access(beside, os.X_OK) else shutil.which("py-spy")


def parse(output: bytes) -> OutsideStacks:
    """Return what ``py-spy dump --json`` printed."""
    try:
        threads = json.loads(output)
    except (ValueError, RecursionError):
        threads = None
    if not isinstance(threads, list):
        return OutsideStacks(problem="py-spy printed something else than threads")
    stacks: dict[str, tuple[str, ...]] = {}
    ids: dict[str, int] = {}
    holder: str | None = None
    for thread in threads[:MAX_THREADS]:
        if not isinstance(thread, dict) or not isinstance(frames := thread.get("frames"), list):
            continue
        id = thread.get("os_thread_id")
        # The program has not imported threading, or py-spy has not found its names; it may not find an id either.
        is_main = id == thread.get("pid") or (id is None and len(threads) == 1)
        unnamed = MAIN_THREAD if is_main else "a thread without a name" if id is None else f"thread {id}"
        name = str(thread.get("thread_name") or unnamed)
        name = name if name not in stacks else f"{name} ({id})"
        inner = (_line(frame) for frame in frames[:MAX_FRAMES] if isinstance(frame, dict))
        stacks[name] = tuple(inner)[::-1]
        if isinstance(id, int) or (is_main and isinstance(id := thread.get("pid"), int)):
            ids[name] = id
        holder = name if thread.get("owns_gil") is True else holder
    if not stacks:
        return OutsideStacks(problem="py-spy found no thread of Python")
    return OutsideStacks(stacks=stacks, threads=ids, holds_lock=holder)


def _line(frame: dict[str, Any]) -> str:
    return f"{frame.get('filename')}:{frame.get('line')} {frame.get('name')}"


def _problem(text: str) -> str:
    if "Permission" in text or "os error 1)" in text or "os error 13)" in text:
        return PERMISSION
    if "No such process" in text or "os error 3)" in text or "No such file" in text:
        return "there is no such process, or it has just ended"
    if "memory allocation of" in text or "os error 12)" in text:
        return f"py-spy needs more than {MEMORY_BYTES >> 20} MiB of memory: {_TOO_LARGE}"
    first = next((line for line in text.splitlines() if line.strip()), "no reason given")
    return f"py-spy failed: {first.removeprefix('Error: ')}"


_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting for I/O, cannot be interrupted",
    "T": "stopped",
    "t": "stopped by a debugger",
    "Z": "ended",
    "X": "ended",
    "I": "idle",
}


@dataclass(frozen=True, kw_only=True)
class ThreadState:
    """One thread, as the kernel sees it."""

    id: int
    """The kernel's id of the thread; of the first thread, that of the process."""
    name: str
    """At most 15 letters; threads have their process's name until they set one."""
    state: str
    """One letter, as in ``/proc/PID/stat``: R running, S sleeping, D waiting for I/O, T stopped."""
    waits_in: str | None
    """The kernel's function in which it sleeps; None if it runs, and where the system does not say."""

    @property
    def text(self) -> str:
        """The state, and where it sleeps, for people."""
        where = "" if self.waits_in is None else f", in the kernel's {self.waits_in}"
        return f"{_STATES.get(self.state, self.state)}{where}"


def thread_states(pid: int, root: str = "/proc") -> tuple[ThreadState, ...]:
    """Return the threads of a process, its first one first; none of a process that is gone, or without ``/proc``."""
    try:
        ids = sorted(int(name) for name in os.listdir(f"{root}/{pid}/task") if name.isdecimal())
    except OSError:
        return ()
    found = (_thread(f"{root}/{pid}/task/{each}", each) for each in ids[:MAX_THREADS])
    return tuple(sorted((each for each in found if each is not None), key=lambda each: each.id != pid))


def _thread(path: str, id: int) -> ThreadState | None:
    before, found, after = read_kernel(f"{path}/stat").decode("utf-8", "replace").rpartition(")")
    state = after.split()[:1]
    if not found or not state:
        return None
    name = before.partition("(")[2]
    wchan = read_kernel(f"{path}/wchan").decode("utf-8", "replace").strip()
    return ThreadState(id=id, name=name, state=state[0], waits_in=None if wchan in ("", "0") else wchan)

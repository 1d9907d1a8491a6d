"""A `DataLoader`'s workers outlive the trainer's stop signals, which mostly go to a whole group of processes.

A worker that dies first takes the trainer with it: PyTorch raises an error in the middle of its step, and the step is
lost. So a worker goes on until the loop or the trainer has ended, or the trainer has had the time it has for its end.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from multiprocessing.util import Finalize
from typing import Any

import torch
from torch.utils.data import get_worker_info

from supervisor_core.process.outside import TRACER_VARIABLE, allow_tracer
from supervisor_core.training.variables import comparable_state, generators_within

_CHECK_SECS = 0.1
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def outlive_signals(loader: Any, most_secs: float) -> None:
    """Have the workers of a loader go on at SIGTERM, Ctrl-C, SIGHUP and SIGQUIT; call it before they start.

    Args:
        loader: a ``DataLoader``, or one of the same kind; anything else is left as it is.
        most_secs: how long a worker goes on after SIGTERM, at most, in seconds.
    """
    if getattr(loader, "num_workers", 0) and hasattr(loader, "worker_init_fn"):
        given = loader.worker_init_fn
        if not isinstance(given, Outliving):
            loader.worker_init_fn = Outliving(given, most_secs)


def release(loader: Any) -> None:
    """Let the workers of a loader end at SIGTERM at once again: the loop has ended."""
    if isinstance(outliving := getattr(loader, "worker_init_fn", None), Outliving):
        outliving.released.fill_(1)


def iterate(loader: Any) -> Iterator[Any]:
    """Return ``iter(loader)``; a worker that it starts holds the signals back until it outlives them."""
    if not isinstance(getattr(loader, "worker_init_fn", None), Outliving):
        return iter(loader)
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # a forked worker begins with this thread's mask
    try:
        return iter(loader)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


class Outliving:
    """A ``worker_init_fn``: has the worker go on, calls the program's own, then notes the random states (`Draws`).

    Args:
        given: the program's; None for none.
        most_secs: see `outlive_signals`.
    """

    def __init__(self, given: Callable[[int], object] | None, most_secs: float) -> None:
        self._given = given
        self._most_secs = most_secs
        self.released = torch.zeros(1, dtype=torch.uint8)
        """Shared with the workers: 1 once they need not outlive a signal any more."""
        with suppress(RuntimeError, OSError):  # without shared memory they always outlive it
            self.released.share_memory_()
        # Persistent workers live until the process exits; multiprocessing then sends them SIGTERM, and waits for them.
        Finalize(None, self.released.fill_, (1,), exitpriority=0)

    def __call__(self, worker: int) -> None:
        """Called in the worker, after PyTorch has set its handlers."""
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)  # written to inside of native code, too
        for signum in _SIGNALS:
            signal.signal(signum, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        tracer = {TRACER_VARIABLE: str(os.getppid()), **os.environ}  # the trainer reads the stacks of one that hangs
        allow_tracer(tracer)
        arguments = (read, os.getppid(), self._most_secs, self.released)
        threading.Thread(target=_end_after, args=arguments, name="worker-end", daemon=True).start()
        if self._given is not None:
            self._given(worker)
        note_states()


def _end_after(pipe: int, trainer: int, most_secs: float, released: torch.Tensor) -> None:
    while os.read(pipe, 1) != bytes([signal.SIGTERM]):
        pass
    until, pause = time.monotonic() + most_secs, threading.Event()
    while not released[0] and os.getppid() == trainer and time.monotonic() < until:
        pause.wait(_CHECK_SECS)
    os._exit(0)


FIRST = 100
"""Batches that are looked at one by one in the trainer."""
EVERY = 100
"""After them one batch in this number is looked at."""
_DREW, _LOOKED = 0, 1


def _numpy_state() -> object:
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return None
    name, keys, *rest = numpy.random.get_state()
    return name, keys.tobytes(), *rest


def _torch_state() -> object:
    return torch.get_rng_state().numpy().tobytes()


SOURCES: tuple[Callable[[], object], ...] = (random.getstate, _numpy_state, _torch_state)
"""Each returns a random state of this process, to be compared."""


def process_states() -> tuple[object, ...]:
    """Return the random states that a dataset may draw from, to be compared."""
    return tuple(source() for source in SOURCES)


_states_of_worker: Callable[[], object] | None = None
_noted: object = None


def note_states() -> None:
    """Note the random states of this worker, its dataset's own among them; called before its first batch."""
    global _states_of_worker, _noted  # a worker is a process of its own
    info = get_worker_info()
    generators = [] if info is None else [generator for _, generator in generators_within(info.dataset)]
    _states_of_worker = lambda: (process_states(), *map(comparable_state, generators))  # noqa: E731
    _noted = _states_of_worker()


class _Watched:
    """A ``collate_fn`` that looks whether making the batch has changed a random state of the worker.

    Args:
        given: the loader's own.
        seen: the shared bytes.
    """

    def __init__(self, given: Callable[[Any], Any], seen: torch.Tensor) -> None:
        self.given = given
        self.seen = seen

    def __call__(self, samples: Any) -> Any:
        batch = self.given(samples)
        if _states_of_worker is not None and not self.seen[_DREW]:
            if _states_of_worker() != _noted:
                self.seen[_DREW] = 1
            self.seen[_LOOKED] = 1
        return batch

    def __getattr__(self, name: str) -> Any:
        if name in ("given", "seen") or name.startswith("__"):  # it is being unpickled
            raise AttributeError(name)
        return getattr(self.given, name)


class Draws:
    """What is known of whether the data draw random numbers when a batch is made: in the workers, and in this process.

    Args:
        loader: its workers are watched, if it has any; call it before they start.
    """

    def __init__(self, loader: Any) -> None:
        self._seen: torch.Tensor | None = None
        self._known: dict[str, bool] = {}
        self._fetched = 0
        if not getattr(loader, "num_workers", 0) or not callable(getattr(loader, "collate_fn", None)):
            return
        if not isinstance(loader.collate_fn, _Watched):
            try:
                loader.collate_fn = _Watched(loader.collate_fn, torch.zeros(2, dtype=torch.uint8).share_memory_())
            except (RuntimeError, OSError, AttributeError, ValueError):
                return  # no shared memory, or a loader that cannot be changed: not known
        self._seen = loader.collate_fn.seen

    @property
    def in_workers(self) -> bool | None:
        """Whether the workers drew some; None where they were not watched."""
        return self.state_dict().get("workers")

    @property
    def here(self) -> bool | None:
        """Whether this process drew some in `fetch`; None where it was not called."""
        return self._known.get("here")

    def state_dict(self) -> dict[str, bool]:
        """Return what is known."""
        if self._seen is not None and self._seen[_LOOKED]:
            self._known["workers"] = self._known.get("workers", False) or bool(self._seen[_DREW])
        return dict(self._known)

    def load_state_dict(self, known: Mapping[str, bool]) -> None:
        """Go on with what was known at a save."""
        self._known = dict(known)
        if self._seen is not None:
            self._seen.zero_()

    def fetch(self, iterator: Iterator[Any]) -> Any:
        """Return an iterator's next batch, and look whether this process's random states have changed."""
        self._fetched += 1
        if self.here or (self._fetched > FIRST and self._fetched % EVERY):
            return next(iterator)
        before = process_states()
        batch = next(iterator)
        self._known["here"] = process_states() != before
        return batch

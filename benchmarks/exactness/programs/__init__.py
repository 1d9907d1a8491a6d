"""The programs: each trains a small model of digits, under one system, and says what it computes.

    at COUNT                    what was restored: the model had been trained on COUNT batches
    verdict REASONS             a list of sentences, as JSON; null where nothing was restored
    batch COUNT IDS LOSS        the COUNT-th batch of the run: its samples' numbers, in order, and the bits of its loss
    end COUNT DIGEST            of all weights, averages included

The model itself counts the batches that it was trained on, so COUNT comes back with the weights, whoever saves them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SAMPLES = 76
EPOCHS = 3
BATCH = 8
PER_EPOCH = -(-SAMPLES // BATCH)
"""Batches; the last one is smaller."""


PAUSE_SECS = 0.05


@dataclass(frozen=True, kw_only=True)
class Asked:
    """How a program trains."""

    system: str
    """Who saves and resumes; "none": nothing."""
    directory: str
    options: dict[str, Any] = field(default_factory=dict)
    """How it trains; the same for all of its sessions."""
    save_every: int = 4
    interrupted_at: int | None = None
    """At which batch; None: not at all."""
    how: str = "kill"
    """A kill in the body of the loop; a "SIGTERM"; or "moment": whoever reads what is said kills it."""


def digits() -> tuple[Any, Any]:
    """Return features and labels."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return (data.data[:SAMPLES] / 16.0).astype("float32"), data.target[:SAMPLES].astype("int64")


def say(*words: object) -> None:
    """Say a line on standard output, at once and whole."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def say_batch(count: int, ids: Iterable[int], loss: float) -> None:
    """Say what the count-th batch was."""
    say("batch", count, ",".join(map(str, ids)), float(loss).hex())


def say_verdict(exactness: Any) -> None:
    """Say the verdict of this project on a resume."""
    say("verdict", json.dumps(None if exactness is None else list(exactness.reasons)))


def say_logged_reasons() -> None:
    """Say what the log names after a resume's first step, when values are compared."""

    def look(record: logging.LogRecord) -> bool:
        if "resume is not exact" in record.getMessage():
            say("verdict", json.dumps([record.getMessage()]))
        return True

    logging.getLogger("supervisor_core").addFilter(look)


def say_end(count: int, arrays: Iterable[Any]) -> None:
    """Say what the weights are; arrays of numpy."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(array.tobytes())
    say("end", count, found.hexdigest()[:16])


class Interruption:
    """Interrupts the program at a batch, once something was saved.

    Args:
        asked: at which batch, and how.
        has_saved: returns whether there is a checkpoint to resume from.
    """

    def __init__(self, asked: Asked, has_saved: Callable[[], bool]) -> None:
        self._at = asked.interrupted_at
        self._how = asked.how
        self._has_saved = has_saved

    def look(self, count: int) -> None:
        """Interrupt if this is the batch."""
        if self._at is None:
            return
        if self._how != "SIGTERM" and count > PER_EPOCH:
            time.sleep(
                PAUSE_SECS
            )  # steps this quick leave the saver behind: a kill would find an early checkpoint only
        if count < self._at:
            return
        self._at = None
        deadline = time.monotonic() + 120.0
        while not self._has_saved() and time.monotonic() < deadline:
            time.sleep(0.005)
        if self._how == "moment":
            say("kill")
        else:
            os.kill(os.getpid(), signal.SIGTERM if self._how == "SIGTERM" else signal.SIGKILL)


def is_any(directory: str, pattern: str) -> Callable[[], bool]:
    """Return what says whether a file of this pattern is below the directory; not that of a save under way."""
    return lambda: any(".saving-" not in path.parent.name for path in Path(directory).glob(pattern))

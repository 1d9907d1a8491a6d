"""A second training, under ``tb-supervisor run``: it hangs with its interpreter blocked, and is brought back."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.demo.inspection import TB_SUPERVISOR, reported

HANG_SECS, STOP_SECS = 15, 2
"""How long it may make no progress, and how long it has to end by itself: a blocked interpreter never does."""
END_SECS = 10.0
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True, kw_only=True)
class HangSeen:
    """What was seen of it."""

    exit_status: int | None = None
    """Of ``tb-supervisor run``; None if it did not end in time."""
    causes: tuple[str, ...] = ()
    """Why each launch ended, as ``tb-supervisor inspect`` reports it."""
    texts: tuple[str, ...] = ()
    """The same in words."""
    hung_at: int | None = None
    """The step that it had reached."""
    resumed_at: int | None = None
    last_step: int | None = None


class HangingTraining:
    """Runs beside the other sessions: nearly all of its time is waiting. A ``with`` block, after which it is gone.

    Args:
        command: starts the training, which hangs the first time.
        run: its logdir.
        output: the file that gets what it prints.
        directory: where to run the command.
    """

    def __init__(self, command: Sequence[str], *, run: Path, output: Path, directory: Path) -> None:
        self._run = run
        options = ["--logdir", str(run), "--max-backoff", "1s"]
        options += ["--hang-timeout", f"{HANG_SECS}s", "--stop-timeout", f"{STOP_SECS}s"]
        with output.open("wb") as file:
            self._process = subprocess.Popen(
                [*TB_SUPERVISOR, "run", *options, "--", *command],
                cwd=directory,
                env={**os.environ, **_QUIET},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def finish(self, secs: float) -> HangSeen:
        """Wait for its end, at most this many seconds; return what was seen."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(secs)
        inspected = reported("inspect", self._run)
        if inspected is None:
            return HangSeen(exit_status=self._process.returncode)
        return _seen(inspected, self._process.returncode)

    def __enter__(self) -> HangingTraining:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(END_SECS)
            except subprocess.TimeoutExpired:
                self._process.kill()  # its keeper kills the rest
                self._process.wait()


def _seen(inspected: dict[str, Any], status: int | None) -> HangSeen:
    launches = [launch for launch in inspected["launches"] if launch["ended"] is not None]
    restarts = inspected["restarts"]
    return HangSeen(
        exit_status=status,
        causes=tuple(launch["cause"] for launch in launches),
        texts=tuple(launch["text"] for launch in launches),
        hung_at=launches[0]["step"] if launches else None,
        resumed_at=restarts[0]["to_step"] if restarts else None,
        last_step=inspected["step"],
    )

"""`Trainer`: a training in a process of its own, and what it prints."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

REAP_SECS = 10.0
"""How long a killed process is waited for through `subprocess`, in seconds; then the system is asked itself."""

_METRICS_URL = re.compile(r"Metrics are served at (\S+)")
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}


class Trainer:
    """One process that trains; all that it prints goes to a file.

    A process group of its own, so that Ctrl-C reaches it only through `kill`. Use it in a ``with`` block, after which
    the process is gone in any case.

    Args:
        command: what to run; prints JSON objects to stdout, one to a line, and its log to stderr.
        output: the file that gets both.
        directory: where to run it.
        environ: variables of its environment, besides this process's own.
    """

    def __init__(
        self, command: Sequence[str], output: Path, directory: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        self.output = output
        self.said: dict[str, Any] = {}
        """Every fact of the JSON objects so far, the latest of each name."""
        self.metrics_url: str | None = None
        """Where it serves its metrics, once its log says so."""
        self._file = output.open("w", encoding="utf-8")
        self._file_lock = threading.Lock()
        try:
            self._process = subprocess.Popen(
                command,
                cwd=directory,
                env={**os.environ, **_QUIET, **(environ or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
        except OSError:
            self._file.close()
            raise
        self._readers = [
            threading.Thread(target=self._read, args=(stream, note), daemon=True)
            for stream, note in ((self._process.stdout, self._note_fact), (self._process.stderr, self._note_log))
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def wait(self, secs: float) -> int | None:
        """Wait for the process to end, at most this many seconds; return its exit status, None while it runs.

        The status is negative for a signal: -9 for SIGKILL. When it has ended, all that it printed has been read.
        """
        try:
            status = self._process.wait(secs)
        except subprocess.TimeoutExpired:
            return None
        for reader in self._readers:
            reader.join(timeout=5.0)  # a grandchild that outlives it may hold the pipe
        return status

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def last_words(self, lines: int = 12) -> str:
        """Return the end of what it printed."""
        with contextlib.suppress(OSError):
            return "\n".join(self.output.read_text(encoding="utf-8").splitlines()[-lines:])
        return ""

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # and what it may have started
        if self.wait(REAP_SECS) is None:  # a Ctrl-C within Popen's wait may leave its lock taken: it reaps no more
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        self._file.close()

    def _read(self, stream: IO[str], note: Any) -> None:
        with stream:
            for line in stream:
                note(line)
                with self._file_lock:
                    if not self._file.closed:
                        self._file.write(line)
                        self._file.flush()

    def _note_fact(self, line: str) -> None:
        with contextlib.suppress(ValueError):  # another program's line
            facts = json.loads(line)
            if isinstance(facts, Mapping):
                self.said = {**self.said, **facts}

    def _note_log(self, line: str) -> None:
        found = _METRICS_URL.search(line)
        if found is not None:
            self.metrics_url = found[1]

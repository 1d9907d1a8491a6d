"""TensorBoard on the demo's files, until Ctrl-C."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

GRACE_SECS = 10.0
"""How long TensorBoard may take to end."""

_URL = re.compile(r"http://\S+")


def tab_of(url: str, run: str) -> str:
    """Return the address of the Supervisor tab with one run open, on the TensorBoard at ``url``."""
    return f"{url.rstrip('/')}/#supervisor&p.supervisor.s={quote(f'run={quote(run)}')}"


def serve_board(logdir: Path, announce: Callable[[str], None]) -> int:
    """Serve TensorBoard on a free port of 127.0.0.1 until it is interrupted or ends by itself.

    Args:
        logdir: what to show.
        announce: called with the address as soon as it answers.

    Returns:
        0 after an interrupt, else TensorBoard's own exit status.
    """
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8"
    ) as board:
        said = []
        try:
            for line in board.stderr or ():
                found = _URL.search(line)
                if "TensorBoard" in line and found is not None:
                    announce(found[0])
                said.append(line)
            status = board.wait()
        except KeyboardInterrupt:
            return 0
        finally:
            board.terminate()
            try:
                board.wait(GRACE_SECS)
            except subprocess.TimeoutExpired:
                board.kill()
    sys.stderr.writelines(said[-5:])
    return status

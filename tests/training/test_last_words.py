"""What a training says when its last step cannot be saved."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

HUNG_DISK = """
import os, signal, sys, threading
import numpy as np
import supervisor_core
from supervisor_core.engine import deadline
deadline.RESERVE_SHARE, deadline.RESERVE_SECS = 1.0, 20.0  # for the last records, on a loaded machine

class Model:
    def state_dict(self):
        return {"weight": np.zeros(8)}
    def load_state_dict(self, state):
        pass

options = supervisor_core.Options(signal_grace_secs=22)
state = {"model": Model()}
with supervisor_core.supervise(sys.argv[1], state=state, save_secs=None, save_steps=4, options=options) as run:
    for step in run.steps(1000):
        if step == 5:
            run.wait_until_saved()
            os.fsync = lambda fd: threading.Event().wait()
        if step == 10:
            os.kill(os.getpid(), signal.SIGTERM)
"""


def test_the_newest_checkpoint_is_said_in_words(tmp_path: Path) -> None:
    """Where the last one cannot be saved, as its disk hangs: with its path and its step, and not as a tuple."""
    program = tmp_path / "program.py"
    program.write_text(HUNG_DISK)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, str(program), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert done.returncode == -signal.SIGTERM, done.stderr
    newest = f"The newest checkpoint is {tmp_path}/run/checkpoints/ckpt-4 (step 4)."
    assert newest in done.stderr and "('" not in done.stderr, done.stderr

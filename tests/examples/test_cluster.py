"""`python -m examples.cluster`, as a newcomer runs it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from supervisor_core.run.watch.logdir_watch import LogdirWatch

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    find_spec("tensorflow") is None or find_spec("sklearn") is None, reason="trains: needs tensorflow and scikit-learn"
)
@pytest.mark.timeout(900)
def test_a_cluster_whose_chief_is_killed_learns_to_its_end(tmp_path: Path) -> None:
    """It starts all, starts the chief again, which loses nothing, and ends when all have ended well."""
    command = [sys.executable, "-m", "examples.cluster", "--logdir", str(tmp_path / "run"), "--steps", "2000"]
    with subprocess.Popen(
        [*command, "--workers", "1"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as example:
        assert example.stdout is not None
        lines: list[str] = []
        killed = False
        try:
            for line in example.stdout:
                lines.append(line)
                chief = re.search(r"chief:0 is process (\d+)", "".join(lines))
                if "Saved checkpoint" in line and chief and not killed:
                    killed = True
                    subprocess.run(["kill", "-9", chief[1]], check=True)
        finally:
            if example.poll() is None:
                example.send_signal(signal.SIGINT)
        text = "".join(lines)
        assert example.wait() == 0, text
    assert "chief:0 ended with -9: it is started again" in text
    assert "test accuracy" in text
    run = LogdirWatch(str(tmp_path / "run")).refresh().runs["."].run
    assert (run.state, [session.adopted for session in run.sessions]) == ("completed", [False, True])

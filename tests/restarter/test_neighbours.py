"""Another local user cannot switch off that a hang is seen; where it cannot be seen, that is said. As root only."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.restarter.conftest import training

MOUNTS = ["unshare", "--mount"]
may = os.geteuid() == 0 and shutil.which("unshare") and not subprocess.run([*MOUNTS, "true"], check=False).returncode
pytestmark = pytest.mark.skipif(not may, reason="only root can mount a /dev/shm of its own and act as another user")


def run(tmp_path: Path, run_command: list[str], prepare: str, *options: str, **variables: str) -> str:
    """What `tb-supervisor run` says of a training, in a namespace of mounts where something was done before."""
    command = [*run_command, "--logdir", str(tmp_path / "logs"), *options, "--", *training(tmp_path, 20, "hangs")]
    environment = {
        name: value for name, value in os.environ.items() if name not in ("SUPERVISOR_RUNTIME_DIR", "XDG_RUNTIME_DIR")
    }
    script = f'set -e; mount -t tmpfs -o mode=1777 none /dev/shm; {prepare}; exec "$@"'
    done = subprocess.run(
        [*MOUNTS, "sh", "-c", script, "sh", *command],
        capture_output=True, text=True, timeout=120, env={**environment, **variables}, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("taken", ["mkdir -m 777", "ln -s /tmp"])
def test_who_makes_the_directory_first_does_not_keep_a_hang_from_being_seen(
    tmp_path: Path, run_command: list[str], taken: str
) -> None:
    """The training hangs once, is ended and started again, though nobody has taken the directory's name."""
    prepare = f"setpriv --reuid 65534 --regid 65534 --clear-groups {taken} /dev/shm/tb-supervisor-0"
    said = run(tmp_path, run_command, prepare, "--stop-timeout", "1s", "--hang-timeout", "1s", "--max-backoff", "1ms")
    assert "launch 1 hangs: no progress in phase evaluating" in said and "launch 2 has ended: status 0" in said
    assert "progress pages" not in said

"""Every reader goes through a logdir of hostile runs within 512 MiB and a minute, and reads the honest runs exactly."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

LIMIT_BYTES = 512 << 20
TIMEOUT_SECS = 120

EXPORTER = r"""
import json, sys
from supervisor_core.exporter.exporter import Exporter
from supervisor_core.metrics.render import TEXT
from supervisor_core.watch.logdir_watch import LogdirWatch
watch = LogdirWatch(sys.argv[1], kept_ticks=100)
exporter = Exporter([watch])
exporter.refresh()
snapshot = watch.refresh()
page = exporter.scrape(TEXT).decode()
print(json.dumps({
    "runs": {name: [run.run.step, run.run.state, run.read_ok] for name, run in snapshot.runs.items()},
    "lines": page.count("\n"),
    "steps": [line for line in page.splitlines() if line in (
        'supervisor_global_step{run="a-honest"} 42.0', 'supervisor_global_step{run="z-honest"} 42.0'
    )],
}))
"""
START = """
import json, os, sys
from supervisor_core.checkpoint.lease import LogdirLease
from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.errors import CheckpointError
for name in sorted(os.listdir(sys.argv[1])):
    logdir = os.path.join(sys.argv[1], name)
    try:
        CheckpointStore(logdir).newest_usable(start_over=True)
    except CheckpointError:
        pass
    lease = LogdirLease(logdir)
    lease.acquire("a")
    lease.release("completed")
print("started")
"""


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory, module_at: Callable[[str], ModuleType]) -> Path:
    """The hostile logdir."""
    path = tmp_path_factory.mktemp("hostile") / "logs"
    path.mkdir()
    module_at("hostile/make_corpus.py").make(path)
    return path


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a reader within the limits; stop it where it exceeds them."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT_BYTES, LIMIT_BYTES))

    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECS,
        env=environment,
        preexec_fn=limit,
        check=False,
    )


def test_the_exporter(logdir: Path) -> None:
    """The honest runs are exact and alive, the page is of bounded length, and doubled links give few runs."""
    done = run("-c", EXPORTER, str(logdir))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["runs"]["a-honest"] == found["runs"]["z-honest"] == [42, "running", True]
    assert len(found["steps"]) == 2, found
    assert len(found["runs"]) < 150
    assert found["lines"] < 5_000
    assert not found["runs"]["many-threads"][2]
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_the_command(logdir: Path, command: str) -> None:
    """It reads to the end, names the honest runs, and writes nothing that a terminal obeys."""
    done = run("-c", "from supervisor_core.cli import main; main()", command, str(logdir))
    assert done.returncode in (0, 1), done.stderr
    assert "a-honest" in done.stdout
    assert "z-honest" in done.stdout
    assert "Traceback" not in done.stderr
    assert not {"\x1b", "\x07"} & set(done.stdout + done.stderr)


def test_a_start(logdir: Path) -> None:
    """A session comes to know what it can resume from, and takes the lease or goes on without it."""
    done = run("-c", START, str(logdir))
    assert (done.returncode, done.stdout) == (0, "started\n"), done.stderr

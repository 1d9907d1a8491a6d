"""Every reader goes through a logdir of hostile runs within 512 MiB and two minutes of computing, and reads the honest
runs exactly.

The limits are the kernel's: on writable memory that is no file's (``RLIMIT_DATA``), and on the processor's time, which
does not depend on what else the machine does. The exporter, the command and the start of a session have them from their
first instruction. The tab and a TensorFlow trainer set them themselves, 512 MiB above what they have when all is
imported; the trainer after a first session, whose pools of threads are as good as imported.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest
from forked import ForkServer

pytestmark = pytest.mark.timeout(300)
LIMIT_BYTES = 512 << 20
LIMIT_SECS = 120
TIMEOUT_SECS = 280
"""By the clock, on a machine that is busy."""

EXPORTER = r"""
import json, sys
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.render import TEXT
from supervisor_core.run.watch.logdir_watch import LogdirWatch
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
from supervisor_core.engine.logdir_hold import LogdirHold
from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.base.errors import CheckpointError
for name in sorted(os.listdir(sys.argv[1])):
    logdir = os.path.join(sys.argv[1], name)
    try:
        CheckpointStore(logdir).newest_usable(start_over=True)
    except CheckpointError:
        pass
    hold = LogdirHold(logdir)
    hold.acquire("a")
    hold.release()
print("started")
"""


LIMITED = """
import resource
def limit():
    with open("/proc/self/status") as file:
        (taken,) = [int(line.split()[1]) << 10 for line in file if line.startswith("VmData:")]
    resource.setrlimit(resource.RLIMIT_DATA, (taken + (512 << 20),) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
"""
TAB = (
    LIMITED
    + r"""
import argparse, json, sys, time
from tensorboard.backend.application import TensorBoardWSGI
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client
from tb_plugin.backend import Backend
from tb_plugin.plugin import SupervisorPlugin
limit()
plugin = SupervisorPlugin(TBContext(logdir=sys.argv[1], flags=argparse.Namespace(supervisor_refresh_secs=3600.0)))
client = Client(TensorBoardWSGI([plugin], ""))
asked = {}
def get(route, **arguments):
    while True:
        answer = client.get("/data/plugin/supervisor/" + route, query_string=arguments)
        if answer.status_code != 503 or answer.get_json()["reason"] != "starting":
            break
        time.sleep(0.05)  # as a browser that asks again
    asked[answer.status_code] = asked.get(answer.status_code, 0) + 1
    return answer
while (runs := get("runs").get_json())["reading"] is not None:
    time.sleep(0.05)
rows = {row["run"]: row for row in runs["runs"]}
for name in rows:
    for route in ("run", "threads", "workers", "checkpoints", "checkpoint_marks", "stalls", "tags"):
        found = get(route, run=name)
    for tag in found.get_json()["tags"][:1]:
        get("scalars", run=name, tag=tag["tag"])
page = get("metrics").get_data(as_text=True)
print(json.dumps({
    "asked": asked,
    "runs": {name: [row["step"], row["state"], row["problem"]] for name, row in rows.items()},
    "loss": {name: [len(get("scalars", run=name, tag="loss").data) > 0] for name in ("a-honest", "z-honest")},
    "metrics": page.count('supervisor_global_step{run="z-honest"} 42.0'),
}))
"""
)
TRAINER = (
    LIMITED
    + r"""
import json, logging, os, sys, time
import tensorflow.compat.v1 as tf
from supervisor_core import Supervisor
from supervisor_core.base.errors import SupervisorError
def train(logdir):
    with tf.Graph().as_default():
        step = tf.train.get_or_create_global_step()
        train_op = tf.assign_add(step, 1)
        supervisor = Supervisor(logdir=logdir, save_model_secs=600, save_summaries_secs=0)
        with supervisor.managed_session() as session:
            done = int(session.run(train_op))
        supervisor.stop()
    return done
top = sys.argv[1]
train(sys.argv[2])
limit()
found = {}
for name in sorted(os.listdir(top)):
    try:
        found[name] = train(os.path.join(top, name))
    except (SupervisorError, OSError, tf.errors.OpError) as error:
        found[name] = type(error).__name__
found["again"] = train(sys.argv[2])
print(json.dumps(found))
"""
)


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory, module_at: Callable[[str], ModuleType]) -> Path:
    """The hostile logdir."""
    path = tmp_path_factory.mktemp("hostile") / "logs"
    path.mkdir()
    module_at("hostile/make_corpus.py").make(path)
    return path


def run(*command: str, limited: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a reader within the limits; stop it where it exceeds them. One that limits itself is not ``limited``."""

    def limit() -> None:
        if limited:
            resource.setrlimit(resource.RLIMIT_DATA, (LIMIT_BYTES, LIMIT_BYTES))
            resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_SECS, LIMIT_SECS))

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
    """A session comes to know what it can resume from, and holds the logdir or goes on without."""
    done = run("-c", START, str(logdir))
    assert (done.returncode, done.stdout) == (0, "started\n"), done.stderr


def test_the_tab(logdir: Path) -> None:
    """Every route answers for every run, and the honest runs are exact, behind TensorBoard's own router."""
    done = run("-c", TAB, str(logdir), limited=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["asked"].keys() == {"200"}, done.stderr
    assert found["runs"]["a-honest"] == found["runs"]["z-honest"] == [42, "running", None]
    assert found["runs"]["many-threads"][2] is not None
    assert found["loss"] == {"a-honest": [True], "z-honest": [True]}
    assert found["metrics"] == 1
    assert not {"\x1b", "\x07"} & set(done.stderr)


def test_a_trainer(tmp_path: Path, module_at: Callable[[str], ModuleType], fork_server: ForkServer) -> None:
    """A training starts in every hostile run's directory, or is refused with an error of its own; those that it does
    not start in are untouched, and a run that it had before goes on where it stood."""
    pytest.importorskip("tensorflow")
    top = tmp_path / "logs"
    top.mkdir()
    module_at("hostile/make_corpus.py").make(top)
    outside = tmp_path / "outside"
    shutil.move(top / "z-honest", outside)
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    log = tmp_path / "log"
    with (
        log.open("wb") as file,
        closing(fork_server.start(["-c", TRAINER, str(top), str(tmp_path / "own")], stderr=file.fileno())) as process,
    ):
        assert process.wait(TIMEOUT_SECS) == 0, log.read_text()[-4000:]
        found = json.loads(process.stdout.read())
    assert found.pop("again") == 2
    assert found.pop("a-honest") == 1
    assert {name: result for name, result in found.items() if result not in (1, "NoUsableCheckpointError")} == {}
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == before
    assert not {"\x1b", "\x07"} & set(log.read_text())

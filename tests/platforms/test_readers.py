"""What reads a logdir works without what macOS and Windows lack; the rest says what it needs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SYSTEMS = ("win32", "darwin")
AGES = ("at", "checkpoint_age_secs", "free_bytes", "generation")
CLI = "from supervisor_core.cli import main; main()"

TRAINING = """
import sys
import numpy as np
from supervisor_core.training import supervise

class Model:
    weights = np.zeros(1000, np.float32)
    def state_dict(self):
        return {"weights": self.weights}
    def load_state_dict(self, state):
        self.weights = state["weights"]

model, last = Model(), int(sys.argv[2])
with supervise(sys.argv[1], state={"model": model}, save_steps=10) as run:
    for step in run.steps(last):
        model.weights = model.weights + 1
        run.log("loss", 1 / (step + 1))
        if step == 15:
            print("trains", flush=True)
"""

TAB = """
import json, sys
from types import SimpleNamespace
from tensorboard.plugins import base_plugin
from werkzeug.test import Client
from supervisor_core.base.tensorboard_tab import SupervisorLoader
plugin = SupervisorLoader().load(base_plugin.TBContext(logdir=sys.argv[1], flags=SimpleNamespace()))
app = Client(plugin.get_plugin_apps()["/*"])
answers = {}
for route in sys.argv[2:]:
    while (answer := app.get("/data/plugin/supervisor/" + route)).status_code == 503:
        pass  # it is being read: each request waits for that
    answers[route] = [answer.status_code, answer.get_json()]
print(json.dumps(answers))
plugin.close()
"""


def start(system: str | None, program: str, *arguments: object) -> subprocess.Popen[str]:
    """Run a program as on another system; as on this one with None."""
    first = ["-c", program] if system is None else ["-m", "tests.platforms.foreign", system, program]
    command = [sys.executable, *first, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def done(system: str | None, program: str, *arguments: object) -> tuple[int, str, str]:
    """Status, output and errors of a program that has ended."""
    with start(system, program, *arguments) as process:
        output, errors = process.communicate()
    return process.returncode, output, errors


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A completed run."""
    directory = tmp_path_factory.mktemp("runs")
    status, _, errors = done(None, TRAINING, directory / "a", 20)
    assert status == 0, errors
    return directory


def without_ages(value: Any) -> Any:
    """JSON without what depends on when it was asked for."""
    if isinstance(value, dict):
        return {name: without_ages(item) for name, item in value.items() if name not in AGES}
    return [without_ages(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_command_says_the_same_there(system: str, command: str, logdir: Path) -> None:
    """All of it, as JSON: states, steps, checkpoints, what was verified."""
    here = done(None, CLI, command, "--json", logdir)
    there = done(system, CLI, command, "--json", logdir)
    assert (there[0], there[2]) == (here[0], here[2]) == (0, "")
    assert without_ages(json.loads(there[1])) == without_ages(json.loads(here[1]))
    assert '"step": 20' in there[1] or '"last_step": 20' in there[1]


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_report_is_written_there(system: str, logdir: Path, tmp_path: Path) -> None:
    """One page, which has the run; the frontend must be built."""
    page = tmp_path / "report.html"
    status, _, errors = done(system, CLI, "report", logdir, "--run", "a", "--html", page)
    assert status == 0, errors
    assert page.read_text("utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_exporter_serves_and_stops_there(system: str, logdir: Path) -> None:
    """A scrape has the run's step; SIGTERM ends it with status 0."""
    with start(system, CLI, "exporter", logdir, "--web.listen-address", "127.0.0.1:0") as process:
        assert process.stderr is not None
        url = ""
        for line in process.stderr:
            if found := re.search(r"Serving (http\S+)", line):
                url = found[1]
            if "ready" in line:
                break
        with urllib.request.urlopen(url) as answer:
            metrics = answer.read().decode()
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    assert 'supervisor_global_step{run="a"} 20.0' in metrics.splitlines()


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_tab_answers_the_same_there(system: str, logdir: Path) -> None:
    """The list of runs, and the page of one."""
    routes = ("runs", "run?run=a")
    here, there = (done(each, TAB, logdir, *routes) for each in (None, system))
    assert there[0] == here[0] == 0, there[2]
    answers = json.loads(there[1])
    assert [answers[route][0] for route in routes] == [200, 200]
    assert without_ages(answers) == without_ages(json.loads(here[1]))


def test_a_link_in_a_checkpoint_is_not_followed_on_windows(logdir: Path, tmp_path: Path) -> None:
    """Where no open can refuse a link, it is looked for before."""
    copy = tmp_path / "runs"
    shutil.copytree(logdir, copy)
    (file,) = copy.glob("a/checkpoints/ckpt-20/tree.json")
    file.rename(tmp_path / "elsewhere.json")
    file.symlink_to(tmp_path / "elsewhere.json")
    status, output, _ = done("win32", CLI, "verify", copy)
    assert status == 1 and "is a symbolic link" in output, output


@pytest.mark.parametrize(
    ("system", "words", "text"),
    [
        ("win32", ("run", "/runs/a", "--", "true"), "tb-supervisor run works on Linux; this is Windows."),
        ("darwin", ("run", "/runs/a", "--", "true"), "tb-supervisor run works on Linux; this is macOS."),
        ("win32", ("stacks", "1"), "tb-supervisor stacks works on Linux and macOS; this is Windows."),
    ],
)
def test_a_command_that_does_not_work_there_says_so(system: str, words: tuple[str, ...], text: str) -> None:
    """In one line, with status 2; the help is there all the same."""
    assert done(system, CLI, *words) == (2, "", f"Error: {text}\n")
    assert done(system, CLI, words[0], "--help")[0] == 0


def test_a_training_on_windows_says_what_it_needs() -> None:
    """Instead of a module that is missing."""
    status, _, errors = done("win32", "import supervisor_core; supervisor_core.supervise")
    assert status == 1
    assert (
        errors.strip()
        .splitlines()[-1]
        .startswith("ImportError: supervisor_core.supervise needs Linux or macOS; on Windows there is Linux in WSL.")
    )


def test_free_bytes_are_known_on_windows(tmp_path: Path) -> None:
    """A finding says when the next checkpoints do not fit."""
    program = "import sys; from supervisor_core.base.systems import free_bytes; print(free_bytes(sys.argv[1]) > 0)"
    assert done("win32", program, tmp_path)[1] == "True\n"


def test_a_training_on_macos_stops_and_resumes(tmp_path: Path) -> None:
    """SIGTERM saves the step; the next session goes on from there."""
    with start("darwin", TRAINING, tmp_path / "a", 10**9) as process:
        assert process.stdout is not None and process.stdout.readline() == "trains\n"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
    assert process.returncode == -signal.SIGTERM, errors
    (run,) = json.loads(done(None, CLI, "inspect", "--json", tmp_path)[1])["runs"]
    reached = run["last_step"]
    assert run["state"] == "stopped" and reached > 15
    status, _, errors = done("darwin", TRAINING, tmp_path / "a", reached + 1)
    assert status == 0, errors
    (run,) = json.loads(done(None, CLI, "inspect", "--json", tmp_path)[1])["runs"]
    assert run["state"] == "completed" and len(run["sessions"]) == 2
    assert run["sessions"][1]["restored_checkpoint"].endswith(f"ckpt-{reached}")


def test_what_the_systems_lack_is_taken_away() -> None:
    """The tests above could fail."""
    looked = "import os, signal, sys; print(sys.platform, hasattr(os, 'fork'), os.path.exists('/proc/self'))"
    assert done("win32", looked)[1] == "win32 False False\n"
    assert done("darwin", looked)[1] == "darwin True False\n"
    assert "No module named 'fcntl'" in done("win32", "import fcntl")[2] or "halted" in done("win32", "import fcntl")[2]
    assert "is opened as text" in done("win32", "import os; os.open(__import__('tempfile').mktemp(), os.O_CREAT)")[2]

"""The tab in a real TensorBoard, in a process of its own, in each of the ways in which TensorBoard reads."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from supervisor_core.metrics.listener import SECURITY_HEADERS
from tests.story import run_file
from tests.tb_plugin.conftest import HOSTILE_NAMES

pytestmark = pytest.mark.timeout(300)  # TensorBoard imports TensorFlow where there is one

PATIENCE_SECS = 120.0
NOTHING_SPECIAL = ""
WITHOUT_TENSORFLOW = "import sys; sys.modules['tensorflow'] = None"
DIRECTORY_NAMES = tuple(name for name in HOSTILE_NAMES if "/" not in name and len(name.encode()) < 256)

_URL = re.compile(r"TensorBoard \S+ at (http://\S+)")


class Board:
    """A TensorBoard that serves."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []
        self.url = ""
        self._serving = threading.Event()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def wait(self) -> None:
        """Return once it serves."""
        self._serving.wait(PATIENCE_SECS)
        assert self.url, "".join(self.said)

    def close(self) -> None:
        """Kill it if it is still there, and read what it said to the end."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._listener.join()

    def _listen(self) -> None:
        for line in self.process.stderr or ():
            self.said.append(line)
            found = _URL.search(line)
            if found:
                self.url = found[1]
                self._serving.set()
        self._serving.set()

    def fetch(self, route: str, **arguments: Any) -> tuple[int, Any, bytes]:
        """Status, headers and body of a route of the tab's."""
        query = "?" + urllib.parse.urlencode(arguments) if arguments else ""
        return self._fetch(f"data/plugin/supervisor/{route}{query}")

    def answer(self, route: str, **arguments: Any) -> tuple[int, Any, bytes]:
        """The same, once what it is of has been read: on a busy machine that may take longer than a request waits."""
        found: tuple[int, Any, bytes] = self.until(
            lambda: self.fetch(route, **arguments), lambda answer: answer[0] != 503
        )
        return found

    def json(self, route: str, **arguments: Any) -> Any:
        """A route's answer once it is a good one."""
        return self.until(lambda: self.fetch(route, **arguments), lambda answer: answer[0] == 200, json_of)

    def runs(self, count: int) -> dict[str, Any]:
        """The overview's lines by run, once there are so many."""
        whole = self.until(
            lambda: self.json("runs"), lambda answer: answer["reading"] is None and len(answer["runs"]) >= count
        )
        return {row["run"]: row for row in whole["runs"]}

    def listing(self) -> dict[str, Any]:
        """What TensorBoard's list of plugins has of the tab."""
        listed: dict[str, Any] = json.loads(self._fetch("data/plugins_listing")[2])["supervisor"]
        return listed

    def until(
        self, look: Callable[[], Any], good: Callable[[Any], bool], then: Callable[[Any], Any] = lambda seen: seen
    ) -> Any:
        """Look until it is good."""
        deadline = time.monotonic() + PATIENCE_SECS
        while not good(seen := look()):
            assert time.monotonic() < deadline, seen
            assert self.process.poll() is None, "".join(self.said)
        return then(seen)

    def end(self, signal_number: int = signal.SIGTERM) -> int:
        """End it; return its status."""
        self.process.send_signal(signal_number)
        return self.process.wait(PATIENCE_SECS)

    def _fetch(self, path: str) -> tuple[int, Any, bytes]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=PATIENCE_SECS) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()


def json_of(answer: tuple[int, Any, bytes]) -> Any:
    """The body of an answer, as JSON."""
    return json.loads(answer[2])


@contextmanager
def serving(directory: Path, *arguments: str, before: str = WITHOUT_TENSORFLOW) -> Iterator[Board]:
    """A TensorBoard with these arguments; Python runs some lines before it."""
    shim = directory / "shim"
    shim.mkdir(exist_ok=True)
    (shim / "sitecustomize.py").write_text(before)
    command = [sys.executable, "-m", "tensorboard.main", "--host", "127.0.0.1", "--port", "0", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(shim)}
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        board = Board(process)
        try:
            board.wait()
            yield board
        finally:
            board.close()


@pytest.fixture(scope="module")
def writing() -> ModuleType:
    """The module that writes events files, from the tests of the watch."""
    return run_file


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory, writing: ModuleType) -> Path:
    """A run that was killed and restarted, one of another writer, and runs with names of all kinds."""
    directory = tmp_path_factory.mktemp("logdir")
    began = time.time() - 1000
    first = writing.RunFile(directory / "digits", began, "s1").ready("digits")
    for step in range(1, 131):
        first.scalar("loss", step, began + step)
    first.beat(began + 130, steps=130)
    second = writing.RunFile(directory / "digits", began + 200, "s2")
    second.ready("digits", attempt=2, restored_checkpoint="model.ckpt-100", restored_step=100, previous_outcome="lost")
    for step in range(101, 201):
        second.scalar("loss", step, began + 200 + step - 100)
    second.beat(began + 300, steps=200).saved(began + 301, "model.ckpt-200").stop(began + 302)
    for name in ("other writer", *DIRECTORY_NAMES):
        other = writing.RunFile(directory / name, began, "x")
        for step in range(3):
            other.scalar(f"tag of {name[:100]}", step, began + step)
    return directory


WAYS = {"rust": ("--load_fast=true",), "python": ("--load_fast=false",)}


@pytest.fixture(scope="module", params=WAYS)
def board(request: pytest.FixtureRequest, logdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """A TensorBoard on these runs, in one of the ways in which it reads; ends as asked, without a complaint."""
    if request.param == "rust" and find_spec("tensorboard_data_server") is None:
        pytest.skip("TensorBoard's data server is not installed")
    arguments = ("--logdir", str(logdir), "--supervisor_refresh_secs=0.2", *WAYS[request.param])
    with serving(tmp_path_factory.mktemp(request.param), *arguments) as found:
        yield found
        assert found.end() == 0
        found.close()
        log = "".join(found.said)
        assert "Traceback" not in log
        assert "In 3.0, this warning will become an error" not in log


def test_the_tab_is_there(board: Board) -> None:
    """TensorBoard lists the tab with a module of ours to load, and shows it as soon as any run was found."""
    listed = board.until(board.listing, lambda found: found["enabled"])
    assert listed["tab_name"] == "Supervisor"
    assert listed["loading_mechanism"] == {"type": "IFRAME", "module_path": "/data/plugin/supervisor/index.js"}
    status, headers, body = board.fetch("index.js")
    assert (status, headers["Content-Type"]) == (200, "text/javascript; charset=utf-8")
    assert b"render" in body


def test_every_run_has_tensorboards_own_name(board: Board) -> None:
    """The overview's names are those that TensorBoard shows, whatever they hold."""
    runs = board.runs(2 + len(DIRECTORY_NAMES))
    assert set(runs) >= {"digits", "other writer", *DIRECTORY_NAMES}
    theirs = board.until(lambda: json.loads(board._fetch("data/runs")[2]), lambda names: len(names) >= len(runs))
    assert set(theirs) == set(runs)


def test_refusals_go_through_tensorboard(board: Board) -> None:
    """Statuses, reasons and headers reach the client as the plugin gave them."""
    board.runs(2)
    for route, arguments, expected in (
        ("run", {"run": "no such run"}, 404),
        ("run", {}, 400),
        ("scalars", {"run": "digits", "tag": "nothing"}, 404),
        ("scalars", {"run": "digits", "tag": "loss", "pixels": "0"}, 400),
        ("no/such/route", {}, 404),
    ):
        status, headers, body = board.answer(route, **arguments)
        assert status == expected
        assert "error" in json.loads(body)
        assert {name: headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS
        assert headers["Cache-Control"] == "no-store"
    request = urllib.request.Request(board.url + "data/plugin/supervisor/runs", data=b"{}", method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=PATIENCE_SECS)
    with refused.value:
        assert refused.value.code == 405


def test_groups_and_a_path_prefix(logdir: Path, tmp_path: Path, writing: ModuleType) -> None:
    """With --logdir_spec the runs have TensorBoard's names, and everything works below --path_prefix."""
    writing.RunFile(tmp_path / "alone", session="x").scalar("loss", 1, 1_700_000_000.0)
    arguments = ("--logdir_spec", f"mine:{logdir},own:{tmp_path / 'alone'}", "--path_prefix=/behind/proxy")
    with serving(tmp_path, *arguments) as board:
        assert board.url.endswith("/behind/proxy/")
        runs = board.runs(3 + len(DIRECTORY_NAMES))
        theirs = board.until(lambda: json.loads(board._fetch("data/runs")[2]), lambda names: len(names) == len(runs))
        assert set(theirs) == set(runs)
        assert {"mine/digits", "own/."} <= set(runs)
        assert board.listing()["loading_mechanism"]["module_path"].startswith("/behind/proxy/data/plugin/")
        assert board.json("tags", run="own/.")["tags"][0]["tag"] == "loss"
        assert board.end(signal.SIGINT) in (0, -signal.SIGINT, 130)


@pytest.mark.skipif(find_spec("fsspec") is None, reason="fsspec is not installed")
def test_a_remote_logdir(logdir: Path, tmp_path: Path) -> None:
    """What fsspec can open is read, and named as TensorBoard names it."""
    with serving(tmp_path, "--logdir", f"file://{logdir}") as board:
        assert "digits" in board.runs(2)
        assert board.json("tags", run="digits")["tags"][0]["points"] == 230


def test_an_empty_logdir_leaves_tensorboard_to_itself(tmp_path: Path) -> None:
    """With nothing to show the tab is not active, and says so when it is opened all the same; then a run turns up."""
    (tmp_path / "runs").mkdir()
    with serving(tmp_path, "--logdir", str(tmp_path / "runs"), "--supervisor_refresh_secs=0.2") as board:
        board.until(lambda: board.json("runs"), lambda answer: answer["reading"] is None)
        assert board.json("runs")["runs"] == []
        assert board.listing()["enabled"] is False
        assert board.fetch("run", run="a")[0] == 404
        assert board.fetch("metrics")[0] == 200


def test_it_ends_while_it_reads(tmp_path: Path) -> None:
    """Neither thread keeps TensorBoard from ending, in the midst of whatever they do."""
    stuck = f"{WITHOUT_TENSORFLOW}\nimport os, threading\nscandir = os.scandir\n" + (
        "@staticmethod\n"  # as a builtin it is no method of the class that pathlib of Python 3.10 puts it into
        "def stuck(path='.'):\n"
        "    if threading.current_thread().name in ('supervisor-index', 'supervisor-scalars'):\n"
        "        threading.Event().wait()\n"
        "    return scandir(path)\n"
        "os.scandir = stuck\n"
    )
    with serving(tmp_path, "--logdir", str(tmp_path), before=stuck) as board:
        assert board.json("runs")["reading"] == {"done": 0, "total": 0}
        assert board.fetch("run", run="a")[0] == 503
        assert board.end() == 0


@pytest.mark.skipif(find_spec("tensorflow") is None, reason="tensorflow is not installed")
def test_with_tensorflow(logdir: Path, tmp_path: Path) -> None:
    """A TensorBoard that has TensorFlow shows the same; the plugin does not need it."""
    with serving(tmp_path, "--logdir", str(logdir), before=NOTHING_SPECIAL) as board:
        assert "digits" in board.runs(2)
        assert board.json("run", run="digits")["restarts"][0]["rewind_steps"] == 30

"""`tb-supervisor exporter`: from the command line to a scrape, to the signal that ends it; and wrong input."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from forked import ForkServer

from supervisor_core.events import EventsWriter
from tests.cases import each

Run = Callable[..., Result]

COMMAND = ["-c", "from supervisor_core.cli import main; main()", "exporter", "--web.listen-address", ":0"]


class Running:
    """The command in a process of its own, with its log."""

    def __init__(self, server: ForkServer, *arguments: str | Path) -> None:
        self.process = server.start([*COMMAND, *map(str, arguments)], dict(os.environ), stderr=subprocess.STDOUT)
        self.log = ""

    def wait_for(self, said: str) -> str:
        """Read the log up to a line in which an expression is found; return what its group matched."""
        for line in self.process.stdout:
            self.log += line
            if found := re.search(said, line):
                return found[1] if found.groups() else found[0]
        raise AssertionError(f"the exporter ended without {said!r}: {self.log}")

    def end(self, signum: int) -> int:
        """Send a signal and return the status; the log is read to its end."""
        self.process.send_signal(signum)
        self.log += self.process.stdout.read()
        return self.process.wait()


@pytest.fixture
def start(command_server: ForkServer) -> Iterator[Callable[..., Running]]:
    """Returns a function that starts the command; what still runs in the end is killed."""
    started: list[Running] = []

    def begin(*arguments: str | Path) -> Running:
        started.append(Running(command_server, *arguments))
        return started[-1]

    yield begin
    for running in started:
        running.process.close()


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    """A logdir with the runs a and b."""
    for name in ("a", "b"):
        with EventsWriter(str(tmp_path / "logs" / name)) as writer:
            writer.scalar("loss", 1.0, 7)
    return tmp_path / "logs"


@each("signum", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_signalled(start: Callable[..., Running], logdir: Path, signum: int) -> None:
    """The runs are served where the log says; SIGTERM and SIGINT end it with status 0 and without noise."""
    running = start("--logdir", logdir, "--exclude", "b")
    url = running.wait_for(r"Serving (http://127\.0\.0\.1:\d+/metrics)$")
    running.wait_for(r"Looked at 1 runs .* ready$")
    with urllib.request.urlopen(url) as answer:
        body = answer.read().decode()
    assert 'supervisor_global_step{run="a"} 7.0\n' in body
    assert 'run="b"' not in body
    assert running.end(signum) == 0
    assert "Traceback" not in running.log
    assert "WARNING" not in running.log


def test_a_logdir_that_comes_later(start: Callable[..., Running], logdir: Path, tmp_path: Path) -> None:
    """A logdir that does not exist is said and waited for; as soon as it is there its runs are served."""
    running = start("--logdir", tmp_path / "later", "--refresh-interval", "0.1")
    running.wait_for("WARNING .*later does not exist. .* Waiting for it")
    url = running.wait_for(r"Serving (\S+)")
    running.wait_for("WARNING .*later does not exist")
    logdir.rename(tmp_path / "later")
    running.wait_for("Looked at 2 runs")
    with urllib.request.urlopen(url) as answer:
        assert f'supervisor_exporter_runs{{logdir="{tmp_path / "later"}"}} 2.0\n' in answer.read().decode()


def test_a_port_in_use(run: Run, logdir: Path) -> None:
    """An address that cannot be had ends it with one line and status 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = run("exporter", "--logdir", logdir, "--web.listen-address", address)
    said = (
        f"Error: Cannot listen on {address}: Address already in use. Give another address with --web.listen-address.\n"
    )
    assert (result.exit_code, result.stderr) == (1, said)


@each(
    "arguments, said",
    [
        (["--web.listen-address", "nonsense"], "The metrics address is 'nonsense'; expected 'host:port'"),
        (["--web.listen-address", ":99999"], "the port from 0"),
        (["--web.telemetry-path", "metrics"], "The telemetry path is 'metrics'; expected one like /metrics"),
        (["--web.telemetry-path", "/-/ready"], "not below /-/"),
        (
            ["--web.allowed-host", "a:80"],
            "--web.allowed-host is 'a:80'; expected a name like",
        ),
        (["--shard", "3/3"], "'3/3': of 3 shards the first is 0 and the last 2, not 3."),
        (["--shard", "3"], "'3': expected I/N like 0/4, or the name of a pod like exporter-0/4."),
        (["--web.config.file", "{file}"], "The web configuration {file} cannot be used: Expected `object`, got `str`"),
        (
            ["--web.config.file", "/no/such"],
            "The web configuration /no/such cannot be used: /no/such cannot be read: No such file",
        ),
    ],
)
def test_wrong_input(run: Run, logdir: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    """What cannot be used is said in one line, with status 2."""
    file = tmp_path / "file"
    file.write_text("x")
    given = [argument.format(file=file) for argument in arguments]
    result = run("exporter", "--logdir", logdir, *given)
    assert result.exit_code == 2
    assert said.format(file=file) in result.stderr
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1


SERVING = "supervisor_core.metrics.web, supervisor_core.run.watch.logdir_watch, supervisor_core.engine.signal_watch"


@each(
    "modules, heavy",
    [
        ("supervisor_core.cli.exporter", ("tensorflow", "tensorboard", "numpy", "prometheus_client", "yaml", "bcrypt")),
        (SERVING, ("tensorflow", "tensorboard", "yaml", "bcrypt")),
    ],
)
def test_little_is_loaded(modules: str, heavy: tuple[str, ...]) -> None:
    """Neither asking for help nor importing the command loads what only serving needs; serving loads no framework
    either, and no YAML without a web configuration."""
    code = f"import sys, {modules}\nprint([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""What CI does about a test that fails by chance, and about a worker that dies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

CHANCE = """
import pathlib
import pytest

def fails_in(name, *runs):
    '''Fail in these runs of the test.'''
    counter = pathlib.Path(f"{name}.runs")
    run = int(counter.read_text()) + 1 if counter.exists() else 1
    counter.write_text(str(run))
    assert run not in runs, f"{name} failed in run {run}"

def test_fine(): pass
"""
REAL = "@pytest.mark.real\ndef test_{0}(): fails_in('{0}', {1})\n"
OTHER = "def test_{0}(): fails_in('{0}', {1})\n"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Returns a function that runs tests with `chance.py`, and returns status, closing line and what was printed."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = -p xdist.plugin -p chance --strict-markers --max-worker-restart=0\n"
    )

    def start(tests: str, *options: str, ci: str = "true", start: str = CHANCE) -> tuple[int, str, str]:
        (tmp_path / "test_it.py").write_text(start + tests)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CI": ci, "UNSTABLE_TESTS": str(tmp_path / "unstable")}
        environment.pop("RUN_AGAIN", None)
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
        with (tmp_path / "printed").open("w+") as output:  # no pipe, which a child would keep
            done = subprocess.run(command, cwd=tmp_path, env=environment, stdout=output, check=False, timeout=100)
            output.seek(0)
            printed = output.read()
        return done.returncode, printed.rstrip().rpartition("\n")[2], printed

    return start


@pytest.mark.parametrize("options", [(), ("-n", "2", "--dist", "loadfile")])
def test_a_real_test_that_passes_twice_more_is_named_and_the_run_passes(
    run: Run, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """The text of its first failure is printed, and its name is noted for the runs of CI that follow."""
    status, closing, printed = run(REAL.format("race", 1), *options)
    assert (status, closing.strip("= ").partition(" in ")[0]) == (0, "1 passed, 1 unstable")
    assert "\nunstable: test_it.py::test_race\n" in printed and "race failed in run 1" in printed
    assert (tmp_path / "race.runs").read_text() == "3"
    assert (tmp_path / "unstable").read_text() == "test_it.py::test_race\n"


@pytest.mark.parametrize(
    ("tests", "ci", "runs", "closing"),
    [
        (REAL.format("race", "1, 3"), "true", {"race": 3}, "1 failed, 1 passed"),
        (REAL.format("race", "1, 2"), "true", {"race": 2}, "1 failed, 1 passed"),
        (REAL.format("race", "1"), "", {"race": 1}, "1 failed, 1 passed"),
        (OTHER.format("wrong", "1"), "true", {"wrong": 1}, "1 failed, 1 passed"),
        (REAL.format("race", "1") + OTHER.format("wrong", "1"), "true", {"race": 1, "wrong": 1}, "2 failed, 1 passed"),
        ("".join(REAL.format(name, "1") for name in "abcd"), "true", dict.fromkeys("abcd", 1), "4 failed, 1 passed"),
        (
            "@pytest.mark.real\ndef test_x():\n    try: fails_in('x', 1)\n    except AssertionError: raise\n"
            "    pytest.skip('no port')\n",
            "true",
            {"x": 2},
            "1 failed, 1 passed",
        ),
    ],
    ids=["third", "second", "not in CI", "not real", "one not real", "four", "skipped"],
)
def test_the_run_fails(run: Run, tmp_path: Path, tests: str, ci: str, runs: dict[str, int], closing: str) -> None:
    """It fails if a run of the two fails, outside of CI, for another test, and for more than three."""
    status, last, printed = run(tests, ci=ci)
    assert (status, last.strip("= ").partition(" in ")[0]) == (1, closing), printed
    assert {name: int((tmp_path / f"{name}.runs").read_text()) for name in runs} == runs
    assert not (tmp_path / "unstable").exists() or not (tmp_path / "unstable").read_text()


DIES = """
import os, signal, threading
def test_first(): pass
def test_dies():
    {fork}
    os.kill(os.getpid(), signal.SIGSEGV)
"""
FORK = """if os.fork() == 0:
        while not os.path.exists("ended"): threading.Event().wait(0.1)
        os._exit(0)"""


@pytest.mark.parametrize("fork", ["pass", FORK], ids=["alone", "with a child"])
def test_a_worker_that_dies_names_its_test_and_ends_the_run(run: Run, tmp_path: Path, fork: str) -> None:
    """The run fails, also while a child of the worker lives."""
    for number in range(4):
        (tmp_path / f"test_other{number}.py").write_text("def test_fine(): pass\n")
    options = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-p", "no:faulthandler")
    status, closing, printed = run("", *options, start=DIES.format(fork=fork))
    (tmp_path / "ended").touch()
    assert status == 1 and " failed" in closing  # once or twice: another worker may have been given the file
    assert "crashed while running 'test_it.py::test_dies'" in printed


def test_a_failure_shows_no_repr_of_its_arguments(run: Run, pytestconfig: pytest.Config) -> None:
    """A ``repr`` of TensorFlow's once took the process down that showed a failure."""
    options = [option for option in pytestconfig.getini("addopts") if option.startswith("--tb")]
    start = """
import os, pytest
class Foreign:
    def __repr__(self): os._exit(70)
@pytest.fixture
def foreign(): return Foreign()
def checked(foreign): raise OSError("this failed")
def test_it(foreign):
    local = foreign
    checked(local)
"""
    status, closing, printed = run("", *options, start=start)
    assert (status, "1 failed" in closing, "this failed" in printed) == (1, True, True), printed


def test_every_file_that_is_marked_exists(pytestconfig: pytest.Config) -> None:
    """A file that was renamed must not lose its marks."""
    conftest = next(
        plugin
        for plugin in pytestconfig.pluginmanager.get_plugins()
        if getattr(plugin, "__file__", None) == str(Path(__file__).parent / "conftest.py")
    )
    names = {*conftest.LONG, *conftest.FIRST, *conftest.REAL}
    assert [name for name in names if not (Path(__file__).parents[1] / name).exists()] == []

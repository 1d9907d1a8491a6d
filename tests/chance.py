"""A test with real processes, browsers, ranks or clocks may fail by chance. CI, and only CI, runs it twice more.

When all other tests have ended, each failed test that is marked ``real`` is run twice more, by itself. If both runs
pass, the test is *unstable*: it is printed with the text of its failure, and does not make the run fail. With more than
`MOST` unstable tests the run fails. No other test is ever run again, nor is one that took its worker down.

Several runs of pytest are counted together if ``UNSTABLE_TESTS`` names a file: each adds its unstable tests.

A worker that dies ends the run (``--max-worker-restart=0`` in pyproject.toml: with ``--dist loadfile`` pytest-xdist
fails to replace it, and waits for ever). Its death is seen when the pipe of its results is closed, so children that
tests fork do not keep that pipe.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

MOST = 3
SECS = 600.0
"""For one more run; tests have a timeout of their own."""


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker. In a worker, keep the pipe of its results from the children that tests fork."""
    config.addinivalue_line(
        "markers", "real: has real processes, browsers, ranks or clocks; CI runs it again if it fails"
    )
    if hasattr(config, "workerinput"):
        plugins = config.pluginmanager.get_plugins()
        worker = next(plugin for plugin in plugins if type(plugin).__name__ == "WorkerInteractor")
        pipe, nothing = worker.channel.gateway._io.outfile.fileno(), os.open(os.devnull, os.O_RDWR)

        def close_pipe() -> None:
            with suppress(OSError):  # a child that closed all that it had, and forks
                os.dup2(nothing, pipe, inheritable=False)

        os.register_at_fork(after_in_child=close_pipe)


@pytest.hookimpl(trylast=True)  # the workers have ended, so nothing else runs
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Run failed tests again, and let the run pass if that is what they do."""
    config, reporter = session.config, session.config.pluginmanager.get_plugin("terminalreporter")
    is_only_run = "RUN_AGAIN" not in os.environ and not hasattr(config, "workerinput")
    has_ended = session.exitstatus == pytest.ExitCode.TESTS_FAILED and not (session.shouldfail or session.shouldstop)
    if os.environ.get("CI") != "true" or not is_only_run or not has_ended:
        return
    reports = [*reporter.stats.get("failed", ()), *reporter.stats.get("error", ())]
    names = list(dict.fromkeys(report.nodeid for report in reports))
    noted = Path(os.environ.get("UNSTABLE_TESTS", os.devnull))
    earlier = noted.read_text().split("\n")[:-1] if noted.exists() else []
    reporter.ensure_newline()
    if not all("real" in getattr(report, "keywords", ()) for report in reports):
        reporter.write_line("No failed test is run again: not all of them are marked real.")
    elif len(earlier) + len(names) > MOST:
        reporter.write_line(f"No failed test is run again: more than {MOST} are {', '.join([*earlier, *names])}.")
    else:
        unstable = {name for name in names if all(_passes(config, name, number) for number in (2, 3))}
        with noted.open("a") as file:
            file.writelines(f"{name}\n" for name in unstable)
        for kind in ("failed", "error"):
            failures = reporter.stats.pop(kind, [])
            for report in failures:
                reporter.stats.setdefault("unstable" if report.nodeid in unstable else kind, []).append(report)
        if unstable == set(names):
            session.testsfailed, session.exitstatus = 0, pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each unstable test with the text of its failure."""
    for report in terminalreporter.stats.get("unstable", ()):
        terminalreporter.write_sep("_", f"unstable: {report.nodeid}", yellow=True)
        terminalreporter.write_line(report.longreprtext)
        for title, text in report.sections:
            terminalreporter.write_line(f"--- {title} ---\n{text}")
        terminalreporter.write_line(f"unstable: {report.nodeid}")


def _passes(config: pytest.Config, name: str, number: int) -> bool:
    """Whether a test passes in a pytest of its own. It writes to a file: what it leaves behind may keep a pipe open."""
    long = ["--long"] if config.getoption("long", False) else []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *long, name]
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reporter.write_line(f"Run {number} of {name}, by itself:")
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            cwd=config.rootpath,
            env={**os.environ, "RUN_AGAIN": "true"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            status = process.wait(SECS)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        output.seek(0)
        text = output.read()
    passed = status == 0 and text.rstrip().rpartition("\n")[2].startswith("1 passed")  # not skipped
    reporter.write_line("It passed." if passed else f"It did not pass (exit status {status}):\n{text}")
    return passed

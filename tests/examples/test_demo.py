from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from examples.demo.story import again
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.render import TEXT
from supervisor_core.process.progress_page import page_of_session
from supervisor_core.run.watch.liveness import chief_path
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tb_plugin.index import Index
from tb_plugin.logdirs import logdirs_of
from tb_plugin.run_data import details

pytestmark = pytest.mark.timeout(900)
ROOT = Path(__file__).parents[2]
needs_training = pytest.mark.skipif(
    find_spec("tensorflow") is None or find_spec("sklearn") is None, reason="trains: needs tensorflow and scikit-learn"
)


FROZEN_SECS = 7.0
"""Longer than a process may be silent before a record says so."""


SAME = (
    *("run", "state", "step", "first_step", "max_step", "steps_lost", "steps_lost_most"),
    *("recoveries", "silences", "at_risk", "goodput", "advice"),
)
"""What inspect and the tab both show of a run, by the same names."""


@dataclass(frozen=True)
class Demo:
    """A demo that was watched to its end, and of which one session was frozen for a while."""

    logdir: Path
    status: int
    output: str
    frozen: str
    """That session: on a fast machine the first one may be over before it can be frozen."""

    def figure(self, name: str) -> str:
        """One of the run's figures, as printed."""
        (line,) = [line for line in self.output.splitlines() if f"│ {name} " in line]
        return line.split("│")[2].strip()


def is_over(pid: int) -> bool:
    """Whether a process has ended, waited for or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def is_watched(live: dict[str, Any]) -> bool:
    """Whether a session trains, and its monitor has looked at it once: before that it sees no pause."""
    page = page_of_session(live["page"], live["session"]) if live["phase"] == "training" and live["page"] else None
    return page is not None and page.ticks > 1


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The demo, as one types it; meanwhile SIGSTOP and SIGCONT come for the first session that is seen training."""
    directory = tmp_path_factory.mktemp("demo")
    logdir, output = directory / "logs", directory / "output"
    command = [sys.executable, "-m", "examples.demo", "--once", "--steps", "1500", "--logdir", str(logdir)]
    with output.open("wb") as file, subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file) as process:

        def until(holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
            while process.poll() is None:
                with suppress(OSError, ValueError):
                    live: dict[str, Any] = json.loads(Path(chief_path(logdir / "digits")).read_bytes())
                    if holds(live):
                        return live
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.05)
            pytest.fail(output.read_text())

        over: set[str] = set()
        while True:
            live = until(lambda live: live["session"] not in over and is_watched(live))
            pid, frozen = live["pid"], live["session"]
            with suppress(OSError):
                os.kill(pid, signal.SIGSTOP)
                stopped = time.monotonic()
                try:
                    until(lambda _, pid=pid, at=stopped: is_over(pid) or time.monotonic() - at > FROZEN_SECS + 1.0)
                    if not is_over(pid):
                        break
                finally:
                    os.kill(pid, signal.SIGCONT)
            over.add(frozen)  # the demo has killed it, just before or while it was frozen
        process.wait()
    return Demo(logdir, process.returncode, output.read_text(), frozen)


@needs_training
def test_the_demo_sees_every_promise_kept(demo: Demo) -> None:
    """Killed, resumed, stopped, finished, one brought back: status 0, each promise seen, figures, files."""
    assert demo.status == 0, demo.output
    lines = demo.output.splitlines()
    assert "All checks passed." in lines
    assert not any("│ NO" in line for line in lines)
    for name, value in (("sessions", "3"), ("restarts", "2"), ("recomputed steps after SIGTERM", "0")):
        assert demo.figure(name) == value
    for words in (
        "killed with SIGKILL at step",
        "sent SIGTERM at step",
        "hung at step 400",
        "test accuracy",
        "tensorboard --logdir",
    ):
        assert words in demo.output
    assert lines[-1] == "The run as a page, for any browser: build/demo/report.html"
    assert "<title>digits - Supervisor report</title>" in (ROOT / "build" / "demo" / "report.html").read_text()
    lines = demo.output.split("What to type next:\n")[1].splitlines()[:3]
    for line in lines[1:]:
        subprocess.run(line, shell=True, cwd=ROOT, env={"PATH": os.defpath}, stdout=subprocess.PIPE, check=True)
    assert len(list((demo.logdir / "digits").glob("events.out.tfevents.*"))) == 3
    assert sorted(path.name for path in demo.logdir.glob("session-*.txt")) == [f"session-{n}.txt" for n in (1, 2, 3)]


@needs_training
def test_demo_inspect_tab_trainer_and_exporter_agree(demo: Demo) -> None:
    """Five sources, one run that was frozen, killed, stopped and finished: each number that several of them have is the
    same in all; what cannot be known exactly has bounds that hold for each."""
    command = [
        sys.executable,
        "-c",
        "from supervisor_core.cli import main; main()",
        "inspect",
        str(demo.logdir),
        "--json",
    ]
    runs = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["runs"]
    (inspected,) = [found for found in runs if found["run"] == "digits"]
    index = Index(logdirs_of(str(demo.logdir), None), 60.0, LogdirWatch)
    index.refresh()
    tab = json.loads(details(index.view(), index.view().runs["digits"]))
    exporter = Exporter([LogdirWatch(str(demo.logdir), include="digits")])
    exporter.refresh()
    exported = samples(exporter.scrape(TEXT).decode())
    trained = samples((demo.logdir / "session-3.prom").read_text())

    assert {name: tab[name] for name in SAME} == {name: inspected[name] for name in SAME}
    for part in ("sessions", "restarts"):
        for shown, other in zip(inspected[part], tab[part], strict=True):
            assert shown.items() <= other.items()
    good = [saved for saved in inspected["checkpoints"] if saved["ok"]]
    assert (tab["checkpoints"]["count"], tab["checkpoints"]["failed"]) == (len(good), 0)
    assert tab["checkpoints"]["newest_good"] == good[-1]
    assert len(good) == int(demo.figure("checkpoints written"))

    last, restarts = inspected["sessions"][-1], inspected["restarts"]
    assert [session["outcome"] for session in inspected["sessions"]] == ["lost", "signal", "completed"]
    for source in (trained, exported):
        assert source["supervisor_active"] == 0
        assert source["supervisor_global_step"] == inspected["step"] == last["last_step"] == 1500
        assert source["supervisor_steps_total"] == 1500 - last["first_step"] == 1500 - restarts[-1]["to_step"]
        assert source["supervisor_sessions_total"] == len(inspected["sessions"]) == int(demo.figure("sessions"))
        assert source["supervisor_restarts_total", "lost"] == source["supervisor_restarts_total", "signal"] == 1
        assert len(restarts) == int(demo.figure("restarts")) == 2
        assert source["supervisor_checkpoint_last_success_step"] == good[-1]["step"]
        assert source["supervisor_checkpoint_last_success_timestamp_seconds"] == pytest.approx(good[-1]["at"], abs=1.0)
        assert source["supervisor_checkpoint_saves_total"] == sum(saved["step"] > last["first_step"] for saved in good)
        assert source["supervisor_checkpoint_failures_total"] == 0
        assert source["supervisor_session_start_timestamp_seconds"] == pytest.approx(last["started"], abs=1e-3)
        assert source["supervisor_steps_lost_total"] <= inspected["steps_lost"] <= inspected["steps_lost_most"]
        assert "supervisor_checkpoint_recommended_interval_seconds" not in source  # too few failures
    assert exported["supervisor_steps_lost_total"] == inspected["steps_lost"]
    for activity, secs in inspected["goodput"]["secs"].items():
        if activity not in ("productive", "at_risk"):  # a counter of these stands still until steps are made up for
            spent = exported.get(("supervisor_run_time_seconds_total", activity), 0.0)  # without those of no time
            assert spent == pytest.approx(secs, abs=0.5), activity
    assert exported["supervisor_goodput_ratio"] == round(inspected["goodput"]["ratio"], 6)
    assert inspected["advice"]["recommended_interval_secs"] is None

    for signal_name, restart in zip(("SIGKILL", "SIGTERM"), restarts, strict=True):
        steps = again(restart["rewind_steps"], restart["rewind_steps_most"])
        assert demo.figure(f"recomputed steps after {signal_name}") == steps

    # Of the frozen one: a slow machine may make others fall silent, too.
    mine = [each for each in inspected["silences"] if each["session"] == demo.frozen]
    silent = [each for each in mine if each["secs"] > FROZEN_SECS - 1]
    assert silent
    # Time is in one bucket only: what a save blocked of the silence is in its bucket.
    spent = inspected["goodput"]["secs"]
    assert spent["silent"] + spent["unproductive_checkpoint_save"] >= silent[0]["secs"]
    assert inspected["at_risk"] is None
    assert sum(inspected["goodput"]["secs"].values()) == pytest.approx(inspected["goodput"]["wall_secs"])


def samples(page: str) -> dict[Any, float]:
    """A page's samples of the run, by their name; those of a reason or an activity by name and that."""
    return {
        (sample.name, *part)
        if (part := [sample.labels[n] for n in ("reason", "activity") if n in sample.labels])
        else sample.name: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


@needs_training
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_training_behind(tmp_path: Path, signum: signal.Signals) -> None:
    """Ctrl-C or SIGTERM ends the demo with 128 and the signal's number, and takes the training with it."""
    # A shell that runs the tests in the background has SIGINT ignored, and children inherit that.
    source = (
        "import runpy, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "runpy.run_module('examples.demo', run_name='__main__')"
    )
    command = [sys.executable, "-u", "-c", source, "--once", "--logdir", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        started = next(line for line in process.stdout if " imports TensorFlow" in line)
        process.send_signal(signum)
        rest = process.stdout.read()
    assert process.returncode == 128 + signum
    assert f"Interrupted. The files are in {tmp_path}" in rest
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.split()[1]), 0)

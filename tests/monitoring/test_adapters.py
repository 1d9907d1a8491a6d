"""Trainings of all adapters, as who is on call sees them: alerts through real servers, metrics, runs."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from monitoring_end_to_end import HOLDS, LOST, STALLED, Trainer, alerting
from monitoring_servers import Prometheus, Webhook, wait_until

from supervisor_core.run.watch.logdir_watch import LogdirWatch

BUDGET_SECS = 20
PATIENCE_SECS = 300.0
"""Five frameworks are imported at the same time."""
NEEDS = {"keras": "jax", "torch": "torch", "lightning": "lightning", "transformers": "accelerate", "jax": "optax"}
"""Each adapter, and what its program imports besides."""

Trainers = dict[str, Trainer]


@pytest.fixture
def trainers(tmp_path: Path) -> Iterator[Trainers]:
    """One training of each adapter, not begun yet."""
    for name, besides in NEEDS.items():
        for module in (name, besides):
            if find_spec(module) is None:
                pytest.skip(f"{module} is not installed: make test-frameworks has it")
    program = str(Path(__file__).with_name("adapters_program.py"))

    def launcher(name: str) -> Callable[..., subprocess.Popen[str]]:
        def launch(*arguments: str) -> subprocess.Popen[str]:
            with (tmp_path / f"{name}.log").open("ab") as log:
                return subprocess.Popen(
                    [sys.executable, program, name, *arguments],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                )  # fmt: skip

        return launch

    started = {name: Trainer(launcher(name), tmp_path / "logs" / name, BUDGET_SECS) for name in NEEDS}
    yield started
    for trainer in started.values():
        trainer.close()


@pytest.fixture
def all_seen(
    tool: Callable[[str], str], tmp_path: Path, webhook: Webhook, trainers: Trainers, exporter: str
) -> Iterator[Prometheus]:
    """The Prometheus that scrapes all of them and the exporter."""
    targets = {name: trainer.address for name, trainer in trainers.items()} | {"exporter": exporter}
    # All die at once here, and each is to page.
    with alerting(tool, tmp_path, webhook, targets, options=[*HOLDS, "--many=100"]) as server:
        yield server


def families(address: str) -> set[str]:
    """Return the names of the metrics that a training serves."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as page:
        return set(re.findall(r"^# TYPE (supervisor_\w+)", page.read().decode(), re.MULTILINE))


@pytest.mark.timeout(900)
def test_each_adapter_is_seen(all_seen: Prometheus, trainers: Trainers, webhook: Webhook, tmp_path: Path) -> None:
    """A step that hangs, and a death: exactly these alerts arrive, of each training, and resolve. All serve the same
    metrics; and the restart, what it cost, the checkpoints and the threads of each are known."""

    def arrive(status: str, alert: str) -> None:
        found = sorted(webhook.next(PATIENCE_SECS) for _ in trainers)
        assert found == sorted((status, alert, name) for name in trainers)

    def each(act: Callable[[Trainer], object]) -> None:
        for trainer in trainers.values():
            act(trainer)

    def begin() -> None:
        each(Trainer.begin)
        each(lambda trainer: trainer.expect("training"))

    begin()
    for name in trainers:
        for job in (name, "exporter"):
            saved = f'supervisor_checkpoint_last_success_step{{job="{job}",run="{name}"}}'
            wait_until(lambda saved=saved: all_seen.value(saved), f"a checkpoint of {name} from {job}", PATIENCE_SECS)
    served = {name: families(trainer.address) for name, trainer in trainers.items()}
    assert {name for name in served if served[name] != served["torch"]} == set(), served

    def hold() -> None:
        each(lambda trainer: trainer.command("hold"))
        each(lambda trainer: trainer.expect("held"))

    hold()
    arrive("firing", STALLED)
    each(lambda trainer: trainer.command("go"))
    arrive("resolved", STALLED)

    hold()  # so that each has steps that no checkpoint has
    each(lambda trainer: trainer.send(signal.SIGKILL))
    arrive("firing", LOST)
    each(Trainer.close)
    begin()
    arrive("resolved", LOST)

    each(lambda trainer: trainer.command("stop"))
    each(lambda trainer: trainer.expect("stopped"))
    wait_until(lambda: not all_seen.query("ALERTS"), "silence")
    assert webhook.rest() == []

    watch = LogdirWatch(str(tmp_path / "logs"))
    shown = {item.run.name: item.run for item in watch.refresh().runs.values()}
    assert set(shown) == set(trainers)
    for name, run in shown.items():
        first, second = run.sessions
        assert (first.outcome, second.outcome) == ("lost", "requested"), name
        (restart,) = run.restarts
        assert restart.rewind_steps is not None and restart.downtime_secs is not None, name
        assert first.restored_step is None and second.restored_step == restart.to_step, name
        assert second.resume_exact is not None, name
        assert {saved.ok for saved in run.checkpoints} == {True} and run.checkpoints[-1].step == second.last_step, name
        assert all(saved.bytes and saved.secs is not None for saved in run.checkpoints), name
        assert {thread.state for thread in run.threads if thread.session == second.id} == {"stopped"}, name
        assert run.goodput.ratio is not None and run.goodput.secs["wasted_progress_from_disruption"] > 0, name

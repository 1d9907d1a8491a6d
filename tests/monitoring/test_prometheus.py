"""A real Prometheus scrapes a run of which all is known, and an exporter: no panel and no rule goes without data."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator

import pytest
from monitoring_servers import Prometheus, as_asked, queries_of, wait_until

from supervisor_core.base.options import Options
from supervisor_core.engine.recorder import StopInfo
from supervisor_core.engine.service import ServiceRegistry
from supervisor_core.engine.session_recorder import SessionRecorder
from supervisor_core.events.file_writer import FileWriter
from supervisor_core.events.telemetry import HeartbeatRecord, NoticeRecord, ThreadStatus, WorkerStatus
from supervisor_core.metrics.collector import RunCollector
from supervisor_core.metrics.config_files import dashboard, rule_groups, to_yaml
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.server import MetricsServer
from supervisor_core.metrics.web import Web
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.distribution import Distribution
from supervisor_core.run.model.run import Session
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.run.status import CheckpointStatus, RunStatus
from supervisor_core.run.watch.logdir_watch import LogdirWatch

GROUPS = rule_groups(Thresholds(interval_secs=1))["groups"]
for rule in (rule for group in GROUPS for rule in group["rules"]):
    rule["expr"] = rule["expr"].replace(" offset 1m", " offset 2s")  # what a fleet is recorded by, each second
RULES = [rule for group in GROUPS for rule in group["rules"]]
RECORDED = [rule["record"] for rule in RULES if "record" in rule]
ONLY_IN_NEED = {"supervisor_exporter_shards"}
"""Served of shards only."""


def everything(tick: int) -> RunStatus:
    """A run that trains, with everything known that can be known; its counters go on from scrape to scrape."""
    now = time.time()
    steps = Distribution(bounds=(0.1, 1.0), counts=(9 * tick, tick, 0), sum=float(tick))
    saves = Distribution(bounds=(1.0, 10.0), counts=(tick, tick, 0), sum=2.0 * tick)
    return RunStatus(
        run="everything",
        active=True,
        state="running",
        session=Session(
            session="3f2a",
            ended_at=None,
            outcome="running",
            inferred=False,
            phase="training",
            steps=tick,
            steps_per_sec=8.25,
            last_progress_at=now,
            progress_timeout_secs=300.0,
            saves=tick,
            save_failures=1,
            save_secs=saves,
            blocked_secs=saves,
            reported_secs={"productive": 3000.5 + tick, "program_startup": 12.0},
            beat=HeartbeatRecord(session="3f2a"),
            attempt=3,
            started_at=now - 3600,
            checkpoint_interval_secs=600.0,
            versions={"supervisor": "0.1.0"},
        ),
        labels={"team": "vision", "user": "ada"},
        session_seen_at=now,
        restarts={"lost": 1, "signal": 1},
        global_step=12_345 + tick,
        last_step_at=now,
        step_secs=steps,
        checkpoint=CheckpointStatus(
            recommended_interval_secs=420.0,
            present_interval_secs=600.0,
            last_success=Checkpoint(session="", at=now - 90, step=11_600, bytes=104_857_600, secs=2.0),
        ),
        threads=(ThreadStatus(name="checkpoint", state="idle", ticks=7, last_tick_at=now - 90),),
        workers=(WorkerStatus(name="worker:1", state="running", steps=tick, last_seen_at=now - 3),),
        steps_lost=130,
        events_failing=False,
        loss_finite=False,
        run_activity_secs={"productive": 9000.5 + tick, "infrastructure_recovery_from_disruption": 60.0},
        failures={("node-1", "lost"): tick},
        lost_process_secs={"stall": 8.0 * tick},
        goodput=0.875,
        info={"logdir": "/data/everything"},
        notices=(NoticeRecord(session="3f2a", severity="info", text="warmed up", count=1, since=now, at=now),),
    )


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the run is that the exporter reads."""
    return str(tmp_path_factory.mktemp("logs") / "everything")


@pytest.fixture(scope="module")
def exported(logdir: str) -> Iterator[SessionRecorder]:
    """The session that the exporter reads. It is open: an end that is seen after the trainer's last answer counts more
    than that answer."""
    with FileWriter(logdir) as writer:
        options = Options(run_name="everything")
        run = SessionRecorder(logdir=logdir, facade="test", options=options, writer=writer, services=ServiceRegistry())
        run.begin()
        run.ready()
        try:
            yield run
        finally:
            run.end(StopInfo(reason="completed"))


@pytest.fixture(scope="module")
def prometheus(
    tool: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory, logdir: str, exported: SessionRecorder
) -> Iterator[Prometheus]:
    """A Prometheus with the rules as they are shipped, which scrapes both every second."""
    directory = tmp_path_factory.mktemp("prometheus")
    ticks = itertools.count(1)
    exporter = Exporter([LogdirWatch(logdir)], interval_secs=1.0)
    with MetricsServer(RunCollector(lambda: [everything(next(ticks))]), ":0") as trainer, Web(exporter, ":0") as web:
        exporter.start()
        assert trainer.address is not None
        server = Prometheus(
            tool("prometheus"),
            directory,
            targets={"training": trainer.address, "exporter": web.address},
            rules=to_yaml({"groups": [{**group, "interval": "1s"} for group in GROUPS]}),
        )
        try:
            yield server
        finally:
            server.close()
            exporter.stop()


@pytest.mark.parametrize("fleet", [False, True], ids=["run", "fleet"])
def test_every_panel_has_data(prometheus: Prometheus, fleet: bool) -> None:
    """Every query of the dashboard, its annotations included, finds something to show."""
    for query in queries_of(dashboard(fleet=fleet), "everything"):
        prometheus.data(query)


def test_the_run_can_be_chosen(prometheus: Prometheus) -> None:
    """The dashboard's variable lists the run: the metric that it asks for the label has it."""
    (query,) = (item["query"]["query"] for item in dashboard()["templating"]["list"] if item["name"] == "run")
    match = re.fullmatch(r"label_values\((.+), run\)", as_asked(query, "everything"))
    assert match is not None
    assert wait_until(lambda: prometheus.query(match[1]), query)[0]["metric"]["run"] == "everything"


@pytest.mark.parametrize("name", [name for name in RECORDED if name not in ONLY_IN_NEED])
def test_every_recording_has_data(prometheus: Prometheus, name: str) -> None:
    """What is recorded has a value, one per run."""
    if name.startswith(("shard:", "fleet:")):  # not one per run
        prometheus.data(name)
        return
    found = prometheus.data(name)
    assert len(found) == 1 or name == "run:supervisor_finding:known"


def test_what_alerts_ask_for_has_data(prometheus: Prometheus) -> None:
    """Every series that an alert's expression names is there; no expression fails, and two are true."""
    named = {
        name for rule in RULES if "alert" in rule for name in re.findall(r"\b[a-z]*:?supervisor_[\w:]+", rule["expr"])
    }
    for name in sorted(named - ONLY_IN_NEED):
        prometheus.data(name)
    assert [rule["health"] for rule in prometheus.rules()] == ["ok"] * len(RULES)
    # One that is true is true the next time, too; after a scrape that a busy machine has missed, none is for long.
    expected = {"SupervisorLossNotFinite", "SupervisorRunDuplicated"}  # two sessions of one name run here
    wait_until(lambda: {rule["name"] for rule in prometheus.rules() if rule.get("alerts")} == expected, "the alerts")


def test_both_are_scraped(prometheus: Prometheus) -> None:
    """Prometheus takes all that either serves."""
    for job in ("training", "exporter"):
        assert wait_until(lambda job=job: prometheus.value(f'up{{job="{job}"}}'), job) == 1


def test_the_state_of_a_run_is_that_of_the_source_that_knows_most(
    prometheus: Prometheus, exported: SessionRecorder
) -> None:
    """The trainer says that it runs, the exporter that it has completed: the panel and the table show one state."""
    exported.end(StopInfo(reason="completed"))
    wait_until(lambda: prometheus.query('supervisor_run_state{job="exporter",state="completed"} == 1'), "its end")
    (panel,) = [panel for panel in dashboard()["panels"] if panel["title"] == "Run state"]
    options = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
    (running,) = [int(number) for number, option in options.items() if option["text"] == "running"]
    # The exporter's alone where a busy machine has just missed a scrape of the trainer.
    query = as_asked(panel["targets"][0]["expr"], "everything")
    wait_until(lambda: prometheus.data(query) == [running], "the trainer's state")

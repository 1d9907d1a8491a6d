"""The exporter at work: what a scrape shows of runs that train, end, die and vanish, and of storage that breaks."""

from __future__ import annotations

import errno
import logging
import re
import shutil
import threading
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from supervisor_core.base.shard import RunShard
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.render import OPENMETRICS, TEXT
from supervisor_core.metrics.table import EXPORTER_METRICS
from supervisor_core.run.fold.bounds import MAX_THREADS
from supervisor_core.run.model.snapshot import LogdirSnapshot
from supervisor_core.run.watch.logdir_watch import LogdirWatch


def of(logdir: Path, name: str) -> str:
    """A series that the exporter serves of a logdir."""
    return f'supervisor_exporter_{name}{{logdir="{logdir}"}}'


def test_each_run_s_directory_is_served(tmp_path: Path, writing, clock, exporter_of, samples_of) -> None:
    """The label `logdir` of a run's facts is its directory, whatever it is called and whoever wrote it."""
    writing.RunFile(tmp_path / "a" / "it's").ready(run="digits").beat(clock.now - 5)
    writing.RunFile(tmp_path / "b").scalar("loss", 1, clock.now - 5)
    writing.RunFile(tmp_path).scalar("loss", 1, clock.now - 5)
    page = exporter_of(tmp_path).scrape(TEXT).decode()
    facts = re.findall(r'^supervisor_run_info\{.*?logdir="(.*?)".*?,run="(.*?)"', page, re.MULTILINE)
    assert facts == [
        (str(tmp_path), tmp_path.name),
        (f"{tmp_path}/a/it's", "digits"),
        (f"{tmp_path}/b", "b"),
    ]


def test_runs_come_and_go(tmp_path: Path, writing, clock, exporter_of, samples_of) -> None:
    """A run is served from the refresh after it appears until the one after it is gone."""
    writing.RunFile(tmp_path / "a")
    exporter = exporter_of(tmp_path)

    def served() -> set[str]:
        exporter.refresh()
        read = {name: f'supervisor_exporter_run_read_success{{logdir="{tmp_path}",run="{name}"}}' for name in "ab"}
        return {name for name in read if read[name] in samples()}

    def samples() -> dict[str, float]:
        return samples_of(exporter.scrape(TEXT))

    assert served() == {"a"}
    writing.RunFile(tmp_path / "b")
    assert served() == {"a", "b"}
    shutil.rmtree(tmp_path / "a")
    assert served() == {"b"}
    assert samples()[of(tmp_path, "runs")] == 1


def test_no_name_in_telemetry_takes_a_label(tmp_path: Path, writing, clock, exporter_of, samples_of) -> None:
    """A run that calls itself as another is served, by its own name or its directory's, is called by its directory."""
    writing.RunFile(tmp_path / "a").ready(run="digits").stop(clock.now)
    writing.RunFile(tmp_path / "b").ready(run="b").stop(clock.now)
    exporter = exporter_of(tmp_path)
    for name, claimed in (("0", "digits"), ("1", "b")):
        writing.RunFile(tmp_path / name).ready(run=claimed).stop(clock.now)
        exporter.refresh()
    active = {name for name in samples_of(exporter.scrape(TEXT)) if name.startswith("supervisor_active")}
    assert active == {f'supervisor_active{{run="{run}"}}' for run in ("digits", "b", "0", "1")}


def test_several_logdirs(tmp_path: Path, writing, clock, exporter_of, samples_of) -> None:
    """The logdir distinguishes runs of the same name; a logdir itself may be a run."""
    for place in ("one/a", "two/a", "three"):
        writing.RunFile(tmp_path / place)
    exporter = exporter_of(*(tmp_path / name for name in ("one", "two", "three")))
    names = [name for name in samples_of(exporter.scrape(TEXT)) if "run_read_success" in name]
    assert names == [
        f'supervisor_exporter_run_read_success{{logdir="{tmp_path / logdir}",run="{run}"}}'
        for logdir, run in (("one", "one/a"), ("two", "two/a"), ("three", "three"))
    ]


def test_every_metric_of_its_own_is_served(tmp_path: Path, writing, clock, exporter_of) -> None:
    """A scrape has each of the exporter's metrics, with the type, unit and labels of the table, in both formats."""
    too_many = tuple({"name": f"thread {number}", "state": "idle"} for number in range(MAX_THREADS + 1))
    writing.RunFile(tmp_path / "a").ready().beat(clock.now - 5, steps=50, threads=too_many)
    exporter = exporter_of(tmp_path)
    exporter.shard = RunShard(0, 1)
    for format, parse in ((TEXT, text_string_to_metric_families), (OPENMETRICS, openmetrics_families)):
        families = {family.name: family for family in parse(exporter.scrape(format).decode())}
        for metric in EXPORTER_METRICS:
            name = metric.name
            if metric.type == "counter" or format.openmetrics:
                name = name.removesuffix("_total").removesuffix("_info")
            family = families[name]
            assert family.documentation == metric.help
            assert family.type == ("gauge" if metric.type == "info" and not format.openmetrics else metric.type)
            labels = ("python", "version") if metric.type == "info" else metric.labels
            assert [sorted(sample.labels) for sample in family.samples] == [sorted(labels)]


def test_promtool_has_nothing_to_say(tmp_path: Path, writing, clock, exporter_of, promtool) -> None:
    """Prometheus's own linter finds neither an error nor a breach of its conventions in a whole scrape."""
    writing.RunFile(tmp_path / "a").ready().beat(clock.now - 5, steps=50).saved(clock.now - 4, "/x/m-50")
    writing.RunFile(tmp_path / "b").scalar("loss", 7, clock.now - 5000)
    assert promtool("check", "metrics", given=exporter_of(tmp_path).scrape(TEXT).decode()) == ""


def test_events_without_a_time(tmp_path: Path, writing, exporter_of, samples_of) -> None:
    """Of a run whose writer gave its events no time there is no timestamp, rather than one of 1970."""
    writing.RunFile(tmp_path / "a", started_at=0.0).scalar("loss", 7, 0.0)
    samples = samples_of(exporter_of(tmp_path).scrape(TEXT))
    assert samples['supervisor_global_step{run="a"}'] == 7
    assert not [name for name in samples if "last_event" in name]


def test_before_the_first_refresh(tmp_path: Path, clock, samples_of) -> None:
    """Until the runs have been looked at the exporter is not ready, and claims neither runs nor a refresh."""
    exporter = Exporter([LogdirWatch(str(tmp_path), clock=clock)], clock=clock)
    names = set(samples_of(exporter.scrape(OPENMETRICS)))
    assert not exporter.ready
    assert "process_cpu_seconds_total" in names
    assert {name.partition("{")[0] for name in names if not name.startswith("process_")} == {
        "supervisor_scrape_success",
        "supervisor_exporter_refresh_failures_total",
        "supervisor_exporter_scrape_duration_seconds",
        "supervisor_exporter_build_info",
    }
    exporter.refresh()
    assert exporter.ready
    assert samples_of(exporter.scrape(OPENMETRICS))[of(tmp_path, "last_refresh_timestamp_seconds")] == clock.now


def test_a_scrape_reads_no_file(tmp_path: Path, writing, clock, storage) -> None:
    """However many runs there are, a scrape asks nothing of the storage."""
    for index in range(100):
        directory = tmp_path / f"{index % 10}" / f"{index}"
        directory.mkdir(parents=True)
        (directory / "events.out.tfevents.1.h").touch()
    exporter = Exporter([LogdirWatch(str(tmp_path), filesystem=storage, clock=clock)], clock=clock)
    exporter.refresh()
    assert len(storage.calls) > 100
    storage.calls.clear()
    for format in (TEXT, OPENMETRICS):
        for gzip in (False, True):
            assert exporter.scrape(format, gzip=gzip)
    assert storage.calls == []


def test_storage_that_fails_is_counted_and_said(
    tmp_path: Path, writing, clock, storage, samples_of, caplog: pytest.LogCaptureFixture
) -> None:
    """Failures of the storage are counted at each refresh and logged once; the runs stay; so is the recovery."""
    file = writing.RunFile(tmp_path / "a").ready().beat(clock.now, steps=5)
    exporter = Exporter([LogdirWatch(str(tmp_path), filesystem=storage, clock=clock)], clock=clock)
    exporter.refresh()

    def broken(operation: str, path: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    storage.fault = broken
    file.beat(clock.now, steps=6)
    for _ in range(3):
        exporter.refresh()
    samples = samples_of(exporter.scrape(TEXT))
    assert samples[of(tmp_path, "refresh_failures_total")] == 3
    assert samples[f'supervisor_exporter_run_read_success{{logdir="{tmp_path}",run="a"}}'] == 0
    assert samples['supervisor_global_step{run="a"}'] == 5
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == len(set(warned)) > 0
    storage.fault = None
    with caplog.at_level(logging.INFO):
        exporter.refresh()
    assert caplog.records[-1].getMessage() == "Everything can be read again"
    samples = samples_of(exporter.scrape(TEXT))
    assert samples[f'supervisor_exporter_run_read_success{{logdir="{tmp_path}",run="a"}}'] == 1
    assert samples['supervisor_global_step{run="a"}'] == 6


def test_the_log_has_a_bound(
    tmp_path: Path, writing, clock, exporter_of, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more new problems the first are logged, and how many more there are; of those, none the next time."""
    monkeypatch.setattr("supervisor_core.run.watch.problem_log.MAX_LOGGED", 3)
    for number in range(5):
        writing.RunFile(tmp_path / str(number)).ready().beat(clock.now, steps=5)
    exporter = exporter_of(tmp_path)
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    exporter.refresh()
    exporter.refresh()
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 4 and said[-1] == "... and 2 more problems, which are not logged"


def test_a_logdir_that_is_missing_costs_no_other(tmp_path: Path, writing, clock, exporter_of, samples_of) -> None:
    """One logdir that does not exist is a failure of each refresh; the runs of the others are served."""
    writing.RunFile(tmp_path / "logs" / "a")
    samples = samples_of(exporter_of(tmp_path / "none", tmp_path / "logs").scrape(TEXT))
    assert [samples[of(tmp_path / name, "refresh_failures_total")] for name in ("none", "logs")] == [1, 0]
    assert [samples.get(of(tmp_path / name, "runs")) for name in ("none", "logs")] == [None, 1]


def test_a_run_that_cannot_be_shown_costs_no_other(
    tmp_path: Path, writing, clock, exporter_of, samples_of, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault in what is made of one run leaves the others served, and is counted."""
    from supervisor_core.metrics import exporter as module

    show = module.run_status

    def fragile(run, now, *, label, forget_after_secs):
        if label == "bad":
            raise RuntimeError("cannot be")
        return show(run, now, label=label, forget_after_secs=forget_after_secs)

    monkeypatch.setattr(module, "run_status", fragile)
    for name in ("good", "bad"):
        writing.RunFile(tmp_path / name)
    samples = samples_of(exporter_of(tmp_path).scrape(TEXT))
    assert f'supervisor_exporter_run_read_success{{logdir="{tmp_path}",run="good"}}' in samples
    assert samples[of(tmp_path, "runs")] == 1
    assert samples[of(tmp_path, "refresh_failures_total")] == 1


def test_only_what_changed_is_written_again(
    tmp_path: Path, writing, clock, exporter_of, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refresh writes the runs that have changed, and no others."""
    from supervisor_core.metrics import exporter as module

    for name in ("a", "b"):
        writing.RunFile(tmp_path / name).ready().stop(clock.now)
    exporter = exporter_of(tmp_path)
    written = []
    write = module.write_run
    monkeypatch.setattr(module, "write_run", lambda status, *how: written.append(status.run) or write(status, *how))
    exporter.refresh()
    assert written == []
    writing.RunFile(tmp_path / "b", session="s2", started_at=clock.now).ready()
    exporter.refresh()
    assert written == ["b"]


class Breaking:
    """A watch whose second refresh raises, which no refresh may do; the third sets ``again``."""

    logdir = "/logs"

    def __init__(self) -> None:
        self.calls = 0
        self.again = threading.Event()

    def refresh(self, on_progress: object = None) -> LogdirSnapshot:
        self.calls += 1
        if self.calls == 2:
            raise RuntimeError("never happens")
        if self.calls > 2:
            self.again.set()
        return LogdirSnapshot(logdir=self.logdir, at=0.0)

    def close(self) -> None:
        """There is no cache."""


def test_the_thread_survives_everything(samples_of, caplog: pytest.LogCaptureFixture) -> None:
    """Even a refresh that breaks altogether is logged and counted, and followed by the next."""
    watch = Breaking()
    exporter = Exporter([watch], interval_secs=0.001)
    exporter.start()
    assert watch.again.wait(60)
    exporter.stop()
    assert "A refresh of /logs has failed" in caplog.text
    assert samples_of(exporter.scrape(TEXT))[of(Path("/logs"), "refresh_failures_total")] == 1
    assert exporter.ready


def test_stopping_is_at_once(tmp_path: Path, begun_threads) -> None:
    """A stop does not wait for the next refresh, nor need it have been started."""
    idle = Exporter([LogdirWatch(str(tmp_path))], interval_secs=86_400)
    idle.stop()
    exporter = Exporter([LogdirWatch(str(tmp_path))], interval_secs=86_400)
    exporter.start()
    exporter.stop()
    assert begun_threads("exporter-refresh") == []


def test_a_copy_below_another_logdir_has_no_state_of_its_own(
    tmp_path: Path, writing, exporter_of, samples_of, clock
) -> None:
    """A mirror by rsync: it takes no label from the original, nothing is active in it, and it is not missed."""
    file = writing.RunFile(tmp_path / "logs" / "run").ready(run="digits").beat(clock.now - 5, steps=5)
    shutil.copytree(tmp_path / "logs", tmp_path / "mirror")
    clock.now += 60
    file.beat(clock.now - 1, steps=9)
    exporter: Exporter = exporter_of(tmp_path / "logs", tmp_path / "mirror")
    samples = samples_of(exporter.scrape(TEXT))
    assert samples['supervisor_run_state{run="digits",state="running"}'] == 1
    assert samples['supervisor_run_state{run="run",state="copy"}'] == 1
    original, copy = tmp_path / "logs" / "run", tmp_path / "mirror" / "run"
    assert samples[f'supervisor_run_info{{copy_of="{original}",logdir="{copy}",run="run"}}'] == 1
    assert not [
        series
        for series in samples
        if series.startswith(("supervisor_active", "supervisor_stalled")) and 'run="run"' in series
    ]
    shutil.rmtree(tmp_path / "mirror" / "run")
    exporter.refresh()
    assert not [series for series in samples_of(exporter.scrape(TEXT)) if 'run="run"' in series]

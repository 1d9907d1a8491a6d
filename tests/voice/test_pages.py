"""The rules page for a run exactly where a finding of severity *page* holds: promtool sees what an exporter serves."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from supervisor_core.metrics.config_files import rule_groups
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.render import TEXT
from supervisor_core.run.judge.finding import KINDS, SEVERITIES
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tests.story.stories import STORIES

STEP, SPAN = 60, 90 * 60
"""Seconds between two looks, and how long Prometheus has been watching."""

Told = tuple[Path, float, dict[str, Any]]


@dataclass
class Replay:
    """An events file that is written again, record by record, at the records' own times."""

    source: Path
    target: Path
    records: list[tuple[float, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        data, at, latest = self.source.read_bytes(), 0, 0.0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            (wall,) = struct.unpack_from("<d", data, at + 13)
            latest = max(latest, wall)
            days_ahead = max(0, round((latest - self.source.stat().st_mtime) / 86400.0))  # by its clock
            self.records.append((latest - days_ahead * 86400.0, data[at : at + length + 16]))
            at += length + 16
        self.records.reverse()

    def until(self, wall: float) -> None:
        """Write what was written by then."""
        due: list[bytes] = []
        while self.records and self.records[-1][0] <= wall:
            due.append(self.records.pop()[1])
        if due:
            self.target.parent.mkdir(parents=True, exist_ok=True)
            with self.target.open("ab") as file:
                file.write(b"".join(due))


def _samples(page: str) -> Iterator[tuple[str, float]]:
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name.endswith("_bucket") or not sample.name.startswith("supervisor_"):
                continue
            labels = {"job": "exporter", "instance": "e", **sample.labels}
            yield (
                f"{sample.name}{{{','.join(f'{name}={_quoted(text)}' for name, text in labels.items())}}}",
                sample.value,
            )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


@pytest.fixture(scope="module")
def served(told: Told, tmp_path_factory: pytest.TempPathFactory, clock_at: Callable[[float], Any]) -> Any:
    """What an exporter serves while all stories happen again, by series; and what is to be said in the end."""
    logdir, now, _ = told
    copy, clock = tmp_path_factory.mktemp("replayed"), clock_at(now - SPAN)
    replays = [Replay(path, copy / path.relative_to(logdir)) for path in logdir.rglob("events.out.tfevents.*")]
    watch = LogdirWatch(str(copy), clock=clock)
    exporter = Exporter([watch], clock=clock)
    values: dict[str, list[str]] = {}
    for look in range(SPAN // STEP + 1):
        clock.now = now - SPAN + look * STEP
        for replay in replays:
            replay.until(clock.now)
        exporter.refresh()
        for name, value in _samples(exporter.scrape(TEXT).decode()):
            known = values.setdefault(name, [])
            known += ["stale" if known else "_"] * (look - len(known))
            is_time = "_timestamp_seconds{" in name  # promtool's clock begins at 0
            known.append(f"{value - (now - SPAN) if is_time else value:.6f}")
    snapshot = watch.refresh()
    said = {name: findings(watched, clock.now) for name, watched in snapshot.runs.items()}
    for known in values.values():
        known += ["stale"] * (SPAN // STEP + 1 - len(known))
    return {name: " ".join(each) for name, each in values.items()}, said


@pytest.mark.timeout(600)
def test_the_rules_page_where_a_finding_does(served: Any, rules_test: Callable[..., str], tmp_path: Path) -> None:
    """Of each story the same alerts page as findings do; of no other."""
    series, said = served
    queries = []
    for name in STORIES:
        alerts = {KINDS[each.kind].alert: 1 for each in said[name] if each.severity == "page"}
        firing = f'ALERTS{{alertstate="firing",severity="critical",run="{name}"}}'
        expected: Mapping[str, float] = {f'{{alertname="{alert}"}}': 1 for alert in sorted(filter(None, alerts))}
        queries.append((f"count by (alertname) ({firing})", SPAN, expected))
    rules = rule_groups(Thresholds(interval_secs=STEP))
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        rule.pop("keep_firing_for", None)
    told = rules_test(tmp_path, series, STEP, rules=rules, queries=queries, check=False)
    assert "SUCCESS" in told, "\n".join(re.findall(r"(?:run=.*|alertname=.*|got:.*|exp:.*)", told)) or told


def test_an_alert_says_what_the_finding_says(served: Any, rules_test: Callable[..., str], tmp_path: Path) -> None:
    """The sentence stands in the alert's description, and what the alert says to do first after it."""
    series, said = served
    of_run = {name: each for name, each in series.items() if 'run="hangs at a line"' in name}
    alert = "SupervisorTrainingStalled"
    told = rules_test(
        tmp_path,
        of_run,
        STEP,
        rules=rule_groups(Thresholds(interval_secs=STEP)),
        alerts=[(alert, SPAN, [])],
        check=False,
    )
    text = said["hangs at a line"][0].text
    assert f"hangs at a line: {text}" in told.replace('\\"', '"')


def test_kinds_and_alerts_agree() -> None:
    """A kind that has an alert has its severity."""
    severities = {
        rule["alert"]: rule["labels"]["severity"]
        for group in rule_groups()["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    severities["SupervisorNotice"] = "warning"  # the program gives it
    known = {kind.alert: SEVERITIES[kind.severity] for kind in KINDS.values() if kind.alert is not None}
    assert known == {alert: severities[alert] for alert in known}

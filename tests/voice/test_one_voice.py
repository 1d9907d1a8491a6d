"""What is known of a run is said once: every view says the same sentences of the same stories."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.log import printable
from supervisor_core.cli.inspect import run_object
from supervisor_core.cli.look import SeenRun
from supervisor_core.cli.overview import overview
from supervisor_core.cli.text import finding_lines, with_age
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.render import TEXT
from supervisor_core.run.judge import held
from supervisor_core.run.judge.finding import KINDS, Finding
from supervisor_core.run.judge.finding_subject import MOST_CHARACTERS
from supervisor_core.run.judge.findings import findings, standing
from supervisor_core.run.judge.held import MOMENTS
from supervisor_core.run.judge.history import MADE_OF_ENDS, history
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tb_plugin.fleet_timeline import happened, timeline_columns
from tb_plugin.index import Index
from tb_plugin.logdirs import Logdir
from tb_plugin.report import report_page
from tb_plugin.run_data import details
from tests.story.scene import BEGAN, Scene
from tests.story.stories import STORIES, Scripted

PRESENT: Any = {"kept_ticks": 1, "all_saves": False}
"""What the readers of many runs keep: the exporter, the tab, who sends messages."""

Told = tuple[Path, float, dict[str, Any]]


@pytest.fixture(scope="module")
def said(told: Told, clock_at: Callable[[float], Any]) -> Mapping[str, tuple[Finding, ...]]:
    """What is said of each run."""
    logdir, now, _ = told
    snapshot = LogdirWatch(str(logdir), clock=clock_at(now)).refresh()
    return {name: findings(watched, now) for name, watched in snapshot.runs.items()}


def test_all_kinds_have_an_order() -> None:
    """The worst kinds stand first, so that the order of kinds is that of severities."""
    severities = [kind.severity for kind in KINDS.values()]
    assert severities == sorted(severities, key=("page", "warn", "info").index)


def test_every_kind_is_documented() -> None:
    """docs/model.md has a row for each kind, and no other."""
    text = (Path(__file__).parents[2] / "docs" / "model.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (page|warn|info) \| (?:\[`(\w+)`\]\(.*?\))? ?\| (.*) \|$", text, re.MULTILINE)
    assert rows == [(name, kind.severity, kind.alert or "", kind.when) for name, kind in KINDS.items()]


@pytest.mark.parametrize("name", STORIES)
def test_what_is_said(said: Mapping[str, tuple[Finding, ...]], name: str) -> None:
    """Of each story what is to be said, the worst first, and nothing else."""
    story = STORIES[name]
    assert tuple(f"{each.severity} {each.kind}" for each in said[name]) == story.says
    assert story.words in (said[name][0].text if said[name] else "")
    assert not [each for each in said[name] if each.severity != "info" and each.action is None]


def test_after_nan_a_restart_is_led_to_the_last_good_checkpoint(said: Mapping[str, tuple[Finding, ...]]) -> None:
    """By itself it would take the newest one, which is in doubt."""
    lost, nan = said["was killed with NaN"]
    assert nan.is_command and nan.action is not None and nan.action.startswith("tb-supervisor rewind -- '")
    assert f"({nan.action})" in (lost.action or "")
    for name in ("has a loss that is NaN", "has had NaN for hours", "has NaN that its saves do not know"):
        (alive,) = said[name]
        assert (alive.action or "").startswith("Stop the training, then rewind it (tb-supervisor rewind -- '")
    for found in said["was killed with NaN, its checkpoint elsewhere"]:
        assert "ewind it to a checkpoint outside of the run's directory" in (found.action or "")
        assert "tb-supervisor" not in (found.action or "") and found.evidence.get("path") != nan.evidence["path"]


def test_the_exporter_says_it(
    told: Told,
    said: Mapping[str, tuple[Finding, ...]],
    clock_at: Callable[[float], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As metrics: kind and severity, and the sentence and action word for word."""
    logdir, now, _ = told
    clock = clock_at(now)
    monkeypatch.setattr(held, "HOLDS", {})  # at once
    exporter = Exporter([LogdirWatch(str(logdir), clock=clock, **PRESENT)], clock=clock)
    exporter.refresh()
    page = exporter.scrape(TEXT).decode()
    for name, found in said.items():
        run = f'run="{name}"'
        values = re.findall(
            rf'^supervisor_finding\{{.*(kind="\w+"),.*{run},(severity="\w+").*\}} 1.0$', page, re.MULTILINE
        )
        found = [each for each in found if each.kind not in held.QUIET]
        found = [each for each in found if each.severity == KINDS[each.kind].severity or each.severity != "info"]
        assert sorted(values) == sorted((f'kind="{each.kind}"', f'severity="{each.severity}"') for each in found)
        for each in found:
            text = printable(each.text).replace("\\", "\\\\").replace('"', '\\"')
            action = printable(each.action or "").replace("\\", "\\\\").replace('"', '\\"')
            labels = f'action="{action}",' if action else ""
            line = f'{labels}kind="{each.kind}",{run},severity="{each.severity}",text="{text}"'
            assert f"supervisor_finding_text_info{{{line}}} 1.0\n" in page


def test_the_command_says_it(
    told: Told, said: Mapping[str, tuple[Finding, ...]], clock_at: Callable[[float], Any]
) -> None:
    """``inspect``: the worst in the run's row, where it is more than an info; all in the head of the run, each with its
    cost and with what to do in one line."""
    logdir, now, _ = told
    snapshot = LogdirWatch(str(logdir), clock=clock_at(now), **PRESENT).refresh()
    seen = [SeenRun(watched, said[name]) for name, watched in snapshot.runs.items()]
    lines = [line.plain for line in overview(seen, now)]
    need = [each for each in seen if each.standing == "needs_you"]
    assert lines[0].startswith(f"{len(need)} need you")
    for each in seen:
        (row,) = [line for line in lines if line.startswith(f"{each.run.name}  ")]
        reasons = [with_age(found, now) for found in each.findings[:1] if found.severity != "info"]
        assert row.endswith(*reasons) if reasons else "(for " not in row
        assert bool(reasons) == (each in need)
        head = "\n".join(line.plain for line in finding_lines(each.findings, now))
        for found in each.findings:
            assert printable(found.text) in head and printable(found.cost or "") in head
            answers_itself = (found.action or "").startswith("tb-supervisor inspect ")
            assert found.action is None or (f"  do: {printable(found.action)}" in head.splitlines()) != answers_itself


def test_a_command_works_from_another_directory(
    told: Told, clock_at: Callable[[float], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the logdir was given by a relative path; of a run that is there, and of one that is gone."""
    logdir, now, _ = told
    monkeypatch.chdir(logdir.parent)
    whole, relative = (
        LogdirWatch(path, clock=clock_at(now)).refresh().runs for path in (str(logdir), f"{logdir.name}/")
    )
    for name, watched in whole.items():
        for gone in ({}, {"unreachable": True, "problem": "it is gone"}):
            actions = [
                [found.action for found in findings(replace(each, **gone), now)] for each in (watched, relative[name])
            ]
            assert actions[0] == actions[1], name


def _spoken(found: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(found[name] for name in ("kind", "severity", "text", "cost", "action", "is_command", "alert"))


def _meant(found: Finding) -> tuple[Any, ...]:
    """What a finding says, as every view is to say it."""
    return (found.kind, found.severity, found.text, found.cost, found.action, found.is_command, found.alert)


def test_json_says_it(told: Told, said: Mapping[str, tuple[Finding, ...]], clock_at: Callable[[float], Any]) -> None:
    """``inspect --json`` has all of each run."""
    logdir, now, _ = told
    snapshot = LogdirWatch(str(logdir), clock=clock_at(now), **PRESENT).refresh()
    for name, watched in snapshot.runs.items():
        found = run_object(SeenRun(watched, findings(watched, now)), now)["findings"]
        assert [_spoken(each) for each in found] == [_meant(each) for each in said[name]], name


def test_the_tab_says_it(told: Told, said: Mapping[str, tuple[Finding, ...]], clock_at: Callable[[float], Any]) -> None:
    """Each line of the list has the worst, each run's page all of them; it needs somebody if an alert says so."""
    logdir, now, _ = told
    index = Index([Logdir(str(logdir))], 5.0, lambda path: LogdirWatch(path, clock=clock_at(now), **PRESENT))
    index.refresh()
    view = index.view()
    for name, found in said.items():
        page = json.loads(details(view, view.runs[name]))["findings"]
        assert [_spoken(each) for each in page] == [_meant(each) for each in found], name
        line = json.loads(view.runs[name].line)
        assert line["finding"] == (page[0] if page else None)
        counted = [*view.runs[name].held, *(each for each in found if each.severity == "info")]
        assert line["standing"] == standing(view.runs[name].watched.run.state, counted)


def test_all_agree_when_a_run_needs_somebody(tmp_path: Path, clock_at: Callable[[float], Any]) -> None:
    """The tab's list, the exporter and what messages say, at each look of some minutes; TensorBoard rests
    meanwhile, as nobody looks at it, and counts that as no absence."""
    clock = clock_at(BEGAN)
    go_on = [story.write(tmp_path / name, BEGAN) for name, story in STORIES.items()]
    exporter = Exporter([LogdirWatch(str(tmp_path), clock=clock, **PRESENT)], clock=clock)
    index = Index([Logdir(str(tmp_path))], 5.0, lambda path: LogdirWatch(path, clock=clock, **PRESENT), clock)
    scene, said, seen = Scene(tmp_path, BEGAN), dict[str, str](), set[int]()
    for minute in range(12):
        clock.now = BEGAN + 60.0 * minute
        for writer in go_on:
            writer(clock.now)
        exporter.refresh()
        for event in scene.look(clock.now):
            if event.what == "begins" and event.severity != "info":
                said[f"{event.run} {event.kind}"] = event.run
            said.pop(f"{event.run} {event.kind}" if event.what == "is_over" else "", None)
        once = {*MOMENTS, "notice"}  # they are said, and are never over
        held = {run for run, found in exporter.findings() if found.severity != "info" and found.kind not in once}
        assert held == set(said.values())
        if not 3 < minute < 10:
            if minute == 10:
                index._wake()
            index.refresh()
            need = {name for name, run in index.view().runs.items() if run.standing == "needs_you"}
            assert need == {run for run, found in exporter.findings() if found.severity != "info"}
        seen.add(len(held))
    assert len(seen) > 3


@pytest.fixture(scope="module")
def looks(told: Told, clock_at: Callable[[float], Any]) -> tuple[Mapping[str, WatchedRun], Index, str]:
    """The runs as a watch, the tab and the exporter see them."""
    logdir, now, _ = told
    clock = clock_at(now)
    index = Index([Logdir(str(logdir))], 5.0, lambda path: LogdirWatch(path, clock=clock, **PRESENT))
    index.refresh()
    exporter = Exporter([LogdirWatch(str(logdir), clock=clock, **PRESENT)], clock=clock)
    exporter.refresh()
    return LogdirWatch(str(logdir), clock=clock, **PRESENT).refresh().runs, index, exporter.scrape(TEXT).decode()


@pytest.mark.parametrize(
    ("name", "bucket"),
    [
        ("cannot save any more", "at_risk"),
        ("had one failed save", "at_risk"),
        ("was killed with a full disk", "at_risk"),
        ("has a loss that is NaN", "wasted_progress_from_disruption"),
        ("was killed with NaN", "wasted_progress_from_disruption"),
        ("was killed", "infrastructure_recovery_from_disruption"),
    ],
)
def test_everybody_has_one_goodput(
    told: Told, looks: tuple[Mapping[str, WatchedRun], Index, str], name: str, bucket: str
) -> None:
    """What is in no checkpoint while saves fail, or was trained after the loss was not finite, is not productive; the
    ratio is that of the run until its last sign of life. ``inspect``, tab and exporter have the same."""
    runs, index, page = looks
    watched, now = runs[name], told[1]
    goodput = watched.run.goodput
    assert goodput.secs[bucket] > 30.0 and goodput.ratio is not None
    down = goodput.secs["infrastructure_recovery_from_disruption"]
    assert goodput.ratio == pytest.approx(goodput.secs["productive"] / (goodput.wall_secs - down))
    said = run_object(SeenRun(watched, findings(watched, now)), now)["goodput"]
    tab = json.loads(details(index.view(), index.view().runs[name]))["goodput"]
    assert said["ratio"] == pytest.approx(goodput.ratio) and tab["secs"] == said["secs"]
    (value,) = re.findall(rf'^supervisor_goodput_ratio\{{.*run="{name}".*\}} (\S+)$', page, re.M)
    assert float(value) == pytest.approx(goodput.ratio)


def test_the_timeline_says_it(told: Told, clock_at: Callable[[float], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that needs somebody has an incident in its lane, and a sentence: its finding's, or of what happened."""
    logdir, now, _ = told
    monkeypatch.setattr(held, "HOLDS", {})  # at once
    index = Index([Logdir(str(logdir))], 5.0, lambda path: LogdirWatch(path, clock=clock_at(now), **PRESENT))
    index.refresh()
    view = index.view()
    _, header = timeline_columns(view, -math.inf, math.inf)
    drawn = dict(zip(header["runs"], header["incidents"], strict=True))
    sentences = happened(view, 0.0, now + 1)["sentences"]
    need = {name: run for name, run in view.runs.items() if run.standing == "needs_you"}
    assert len(need) > 30
    for name, run in need.items():
        texts = [each["text"] for each in sentences if name in each["runs"]]
        assert drawn[name] and texts, name
        (worst,) = run.held[:1]
        if worst.kind not in {"notice", *(item.kind for item in history(run.run))} | MADE_OF_ENDS:
            assert any(worst.text.removesuffix(".") in text for text in texts), name
    failed = [found.text for found in history(view.runs["cannot write"].run)]
    assert failed == [
        "could not save (7 saves failed) on trainer-0: OSError: [Errno 28] No space left on device; none has "
        "succeeded since"
    ]


def test_the_report_says_it(
    told: Told, said: Mapping[str, tuple[Finding, ...]], clock_at: Callable[[float], Any], tmp_path: Path
) -> None:
    """The page that is sent to a colleague has all of them."""
    logdir, now, _ = told
    (tmp_path / "index.js").write_text('export { render } from "./tab-ABCD2345.js";')
    (tmp_path / "tab-ABCD2345.js").write_text("")
    snapshot = LogdirWatch(str(logdir), clock=clock_at(now), **PRESENT).refresh()
    for name, found in said.items():
        made = report_page(name, snapshot.runs[name], now, str(logdir), tmp_path).page.decode()
        (text,) = re.findall(r'id="supervisor-report">([^<]*)</script>', made)
        page = json.loads(text)["answers"]["run"]["findings"]
        assert [_spoken(each) for each in page] == [_meant(each) for each in found], name


def test_what_a_writer_made_long_is_cut(tmp_path: Path) -> None:
    """No name fills a page: of hosts, signals and errors a finding says so much."""
    now = time.time()
    session = Scripted(tmp_path / "cluster", now - 7200)
    for name in ("worker:1", "worker:2", "worker:3"):
        session.worker(name, "lost")
        session.cluster[name] |= {"host": "h" * 4_000, "error": "e" * 4_000}
    session.train(7190)
    Scripted(tmp_path / "stopped", now - 7200).train(3600).stop("signal", signal="s" * 4_000)
    runs = LogdirWatch(str(tmp_path)).refresh().runs.values()
    said = [each.text for watched in runs for each in findings(watched, now)]
    assert len(said) == 2 and all(MOST_CHARACTERS < len(text) < MOST_CHARACTERS + 10 for text in said)

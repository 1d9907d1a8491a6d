"""A report: what is in the page, that it is bounded, and that nothing in it can be markup."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import json
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from supervisor_core.base.log import printable
from supervisor_core.events.writer import EventsWriter
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.run import Stall
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tb_plugin import report
from tb_plugin.report import MOST_BYTES, NotBuiltError, Report, report_page
from tests.cases import each
from tests.tb_plugin.conftest import HOSTILE_NAMES, NOW, Bench, FakeSource, a_rich_run, a_run, a_session, watched

SCRIPT = "export function render() { return '\N{SNOWMAN}'; }"


@pytest.fixture
def frontend(tmp_path: Path) -> Path:
    """A frontend as a build leaves it."""
    directory = tmp_path / "static"
    directory.mkdir()
    (directory / "index.js").write_text('export { render } from "./tab-ABCD2345.js";\n')
    (directory / "tab-ABCD2345.js").write_text(SCRIPT, encoding="utf-8")
    return directory


def values_of(made: Report) -> Any:
    """The JSON in a page."""
    (text,) = re.findall(rb'<script type="application/json" id="supervisor-report">([^<]*)</script>', made.page)
    return json.loads(text)


def columns_of(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the columns of an answer in base64."""
    body = base64.b64decode(text)
    (length,) = struct.unpack_from("<I", body)
    header = json.loads(body[4 : 4 + length])
    numbers = np.frombuffer(body, "<f8", offset=4 + length).reshape(len(header["columns"]), header["length"])
    return header, dict(zip(header["columns"], numbers, strict=True))


def write_scalars(run: Path, tags: int, points: int) -> WatchedRun:
    """A run of another program's, with this many tags of this many points, evenly apart: they are thinned by time."""
    with EventsWriter(run) as writer:
        for step in range(points):
            for tag in range(tags):
                writer.scalar(f"tag-{tag:03d}", float(step % 7), step, NOW - points + step)
    return LogdirWatch(str(run)).refresh().runs["."]


def test_a_report_has_what_the_routes_answer(bench: Any, frontend: Path) -> None:
    """Word for word: of a run with some of everything the page holds what a running tab asks for."""
    run = watched(a_rich_run())
    tab: Bench = bench(run)
    tab.sources["/runs/a"] = FakeSource()
    made = report_page("a", run, NOW, "/runs", frontend)
    assert made.left_out == ()
    values = values_of(made)
    assert (values["run"], values["at"], values["left_out"]) == ("a", NOW, [])
    answers = values["answers"]
    for route in ("threads", "workers", "stalls", "checkpoints", "tags"):
        assert answers[route] == tab.json(route, run="a"), route
    same = {**tab.json("run", run="a"), "generation": 1}
    assert answers["run"] == same
    assert answers["runs"]["runs"] == tab.json("runs")["runs"]
    assert base64.b64decode(values["marks"]) == tab.get("checkpoint_marks", run="a", pixels=512).data


def test_a_curve_has_every_point_where_these_are_few(tmp_path: Path, frontend: Path) -> None:
    """4,096 points are all there, in whatever order they are asked for."""
    run = write_scalars(tmp_path / "run", 2, 50)
    values = values_of(report_page(".", run, NOW, str(tmp_path), frontend))
    assert [tag["tag"] for tag in values["answers"]["tags"]["tags"]] == ["tag-000", "tag-001"]
    header, columns = columns_of(values["scalars"]["tag-001"])
    assert (header["points"], header["thinned"]) == (50, False)
    assert columns["value"].tolist() == [float(step % 7) for step in range(50)]


def test_curves_share_what_is_left_of_the_bound(
    tmp_path: Path, frontend: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many long curves are thinned further, all to the same number of columns, and the page says so."""
    run = write_scalars(tmp_path / "run", 20, 2000)
    monkeypatch.setattr(report, "MOST_BYTES", 400_000)
    made = report_page(".", run, NOW, str(tmp_path), frontend)
    assert len(made.page) <= 400_000
    curves = values_of(made)["scalars"]
    assert len(curves) == 20
    headers = [columns_of(curve)[0] for curve in curves.values()]
    assert {header["points"] for header in headers} == {2000} and all(header["thinned"] for header in headers)
    assert made.left_out == ("Curves of more than 256 points are thinned to their extremes, and cannot be smoothed.",)


def test_the_last_tags_are_left_out_where_not_all_fit(
    tmp_path: Path, frontend: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has no curve is not offered as a tag, and the page says how many those are."""
    run = write_scalars(tmp_path / "run", 40, 100)
    monkeypatch.setattr(report, "MOST_BYTES", 40_000)
    made = report_page(".", run, NOW, str(tmp_path), frontend)
    assert len(made.page) <= 40_000
    values = values_of(made)
    count = len(values["scalars"])
    assert 0 < count < 40
    assert [tag["tag"] for tag in values["answers"]["tags"]["tags"]] == [f"tag-{n:03d}" for n in range(count)]
    assert f"Curves of {40 - count} of 40 tags are left out." in made.left_out


def test_many_tags_of_one_point_are_within_the_bound(
    tmp_path: Path, frontend: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands between them counts, too; so does the page's name."""
    run = write_scalars(tmp_path / "run", 3000, 1)
    monkeypatch.setattr(report, "MOST_BYTES", 1_000_000)
    made = report_page("&" * 4000, run, NOW, str(tmp_path), frontend)
    assert 990_000 < len(made.page) <= 1_000_000


def test_a_report_is_bounded_whatever_the_run_is(frontend: Path) -> None:
    """Ten thousand sessions, saves and stalls, with texts that take six times their length: the newest are there, what
    refers to others is not, and sentences say how many there were."""
    text = "<" * 1000
    sessions = tuple(a_session(f"s{n}", attempt=n, started_at=NOW - 20_000 + n, error=text) for n in range(10_000))
    stall = a_rich_run().stalls[0]
    stalls = tuple(
        dataclasses.replace(stall, session=f"s{n}", since=NOW - 10_000 + n, stacks={"MainThread": (text,)})
        for n in range(10_000)
    )
    saves = tuple(Checkpoint(session=f"s{n}", at=NOW - 10_000 + n, error=text) for n in range(10_000))
    run = watched(a_run(sessions=sessions, stalls=stalls, checkpoints=saves))
    made = report_page("a", run, NOW, "/runs", frontend)
    assert len(made.page) <= MOST_BYTES
    answers = values_of(made)["answers"]
    shown = [session["id"] for session in answers["run"]["sessions"]]
    assert shown == [f"s{n}" for n in range(10_000 - len(shown), 10_000)]
    assert {stall["session"] for stall in answers["stalls"]["stalls"]} <= set(shown)
    saved = answers["checkpoints"]
    assert saved["total"] == len(saved["checkpoints"]) and saved["checkpoints"][0]["session"] == "s9999"
    said = " ".join(made.left_out)
    assert f"Of 10,000 sessions the newest {len(shown)} are here." in said
    assert f"Of 10,000 checkpoints the newest {saved['total']} are in the table" in said
    assert f"Of 10,000 stalls the newest {len(answers['stalls']['stalls'])} are here." in said


@each("name", HOSTILE_NAMES)
def test_no_name_ends_its_element(frontend: Path, name: str) -> None:
    """Names of runs and threads, errors and stacks are text: the page has the elements that it always has."""
    stall = Stall(
        session=name,
        phase=name,
        since=NOW - 30,
        until=None,
        step=1,
        secs=30.0,
        timeout_secs=20.0,
        stacks={name: (f"<!--<script>{name}",)},
    )
    run = a_run(name, sessions=(a_session(name, error=name, host=name),), stalls=(stall,))
    made = report_page(name, watched(run, directory=f"/runs/{name}"), NOW, f"/runs/{name}", frontend)
    page = made.page.decode()
    assert values_of(made)["answers"]["run"]["sessions"][0]["error"] == name
    assert re.findall(r"<[^>]*", page.replace(SCRIPT, ""))[0] == "<!doctype html"
    assert page.count("<script") == page.count("</script>") == 2 and page.count("<title>") == 1
    assert "<img" not in page and "<!--" not in page
    (title,) = re.findall(r"<title>(.*)</title>", page, re.DOTALL)
    assert html.unescape(title) == f"{printable(name)} - Supervisor report"  # also where it is copied to a terminal


def test_the_policy_allows_one_script_and_no_request(frontend: Path) -> None:
    """By its hash; nothing else is executed, loaded or sent."""
    page = report_page("a", watched(a_run()), NOW, "/runs", frontend).page.decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}'; " in policy
    assert "unsafe" not in policy and "http" not in policy
    assert f'<script type="module">{SCRIPT}</script>' in page


def test_without_a_built_frontend_there_is_no_report(tmp_path: Path, frontend: Path) -> None:
    """The error says what to do, whichever of its files is missing."""
    (frontend / "tab-ABCD2345.js").unlink()
    for directory in (tmp_path / "none", frontend):
        with pytest.raises(NotBuiltError, match=r"has not been built.*make frontend"):
            report_page("a", watched(a_run()), NOW, "/runs", directory)


def test_scalars_that_cannot_be_read_are_a_sentence(
    frontend: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The rest of the run is shown."""

    class Broken:
        def __init__(self, *_: object, **__: object) -> None:
            raise OSError("the disk is gone")

    run = write_scalars(tmp_path / "run", 1, 5)
    monkeypatch.setattr(report, "RunIndex", Broken)
    made = report_page(".", run, NOW, str(tmp_path), frontend)
    assert "could not be read in full: OSError('the disk is gone')" in made.left_out[0]
    assert values_of(made)["scalars"] == {}


def test_it_needs_no_tensorboard(tmp_path: Path, frontend: Path) -> None:
    """A host without TensorBoard writes a report; the logdir itself is called by its directory's name."""
    write_scalars(tmp_path / "run", 1, 5)
    code = f"""
import sys
sys.modules["tensorboard"] = sys.modules["werkzeug"] = None
from pathlib import Path
import tb_plugin.report
tb_plugin.report.report_page.__defaults__ = (Path({str(frontend)!r}),)
from supervisor_core.cli import main
main(["report", {str(tmp_path / "run")!r}, "--html", {str(tmp_path / "r.html")!r}])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path}/r.html: the run run in 0.0 MB.\n"
    assert "<title>run - Supervisor report</title>" in (tmp_path / "r.html").read_text()

"""``tb-supervisor report`` of a fleet: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from supervisor_core.cli import report as command
from supervisor_core.cli.fleet import CAUSES, fleet_page, sections, summary
from supervisor_core.events.telemetry import SessionRecord, StopRecord, summary_bytes
from supervisor_core.events.writer import EventsWriter
from supervisor_core.run.judge.fleet_report import FleetReport, fleet_report
from supervisor_core.run.model.run import BUCKETS
from tests.cases import each

Command = Callable[..., Result]
ROOT = Path(__file__).parents[2]
HOSTILE = "</title><script>alert(1)</script>\x1b[31m&"


def write(run: Path, reason: Any = "completed", wall: float = 10_000.0, **who: Any) -> None:
    """A session that trained for a while, and ended just now."""
    with EventsWriter(run) as writer:
        begin = time.time() - wall
        record = SessionRecord(session=run.name, attempt=1, started_at=begin, restored_step=0, **who)
        writer.summary(summary_bytes(record), 0)
        activity = {"productive": 0.75 * wall, "program_startup": 0.25 * wall}
        stop = StopRecord(session=run.name, reason=reason, step=4, elapsed_secs=wall, activity_secs=activity)
        writer.summary(summary_bytes(stop), 4)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Three runs of two users, one of which failed."""
    write(tmp_path / "logs" / "a", host="n1", device_count=4, labels={"user": "ada", "team": "x"})
    write(tmp_path / "logs" / "b", "error", host="n2", device_count=4, labels={"user": "bob", "team": "x"})
    write(tmp_path / "logs" / "c", host="n2", labels={"user": "bob"})
    return tmp_path / "logs"


def test_the_terminal_shows_the_figures(run: Command, logs: Path) -> None:
    """Goodput, causes, groups, failures, hosts, costliest runs: what is known, in this order."""
    done = run("report", logs, "--by", "user")
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[0].startswith(f"{logs}: 20") and " to 20" in lines[0]
    # three quarters of the time of five devices; what the run that failed did, on four, is in no checkpoint
    assert lines[1] == "3 runs, 3 sessions, 25 device hours; goodput (ETTR) 41.7 %; 14.6 device hours lost."
    assert lines[2] == "1 run of unknown size: each counts as one device."
    for title in ("Where the time went", "By user", "Failures", "The costliest runs"):
        assert title in lines
    assert "1 unplanned end: 1 error." in lines
    (bob,) = [line for line in lines if line.startswith("bob ")]
    assert bob.split()[:2] == ["bob", "2"] and "15.0 %" in bob and "At risk" in bob
    assert lines.index("By user") < lines.index("Failures")


def test_json_has_the_whole_report(run: Command, logs: Path) -> None:
    """Every field of `FleetReport` by its name, in seconds."""
    done = run("report", logs, "--json", "--by", "team")
    found = json.loads(done.output)
    assert found["logdirs"] == [str(logs)] and found["by"] == "team"
    assert set(FleetReport.__dataclass_fields__) == set(found) - {"logdirs", "problems"}
    assert found["total"]["goodput"] == pytest.approx(375 / 900, abs=1e-3)
    assert {group["key"]: group["runs"] for group in found["groups"]} == {"x": 2, None: 1}
    assert found["total"]["by_reason"] == {"error": 1}
    assert found["hosts_tested"] == 2 and found["hosts"][0]["host"] == "n2"


def test_a_window_is_cut_to_the_second(run: Command, logs: Path) -> None:
    """By how long ago, or by a date; what lies before it is not counted."""
    whole = json.loads(run("report", logs, "--json").output)["total"]
    fine = ("report", logs, "--include", "[ac]$", "--json")
    half = json.loads(run(*fine, "--since", "5000s").output)["total"]
    assert whole["wall_secs"] == pytest.approx(30_000, abs=100)
    assert half["wall_secs"] == pytest.approx(10_000, abs=1_000)
    assert "program_startup" in whole["secs"] and half["goodput"] == pytest.approx(1.0, abs=1e-3)
    assert run("report", logs, "--until", "2001-01-01").output.splitlines()[1:] == ["No run ran in this window."]
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - 5000))
    assert json.loads(run(*fine, "--since", since).output)["total"]["goodput"] == pytest.approx(1.0, abs=1e-3)


@each(
    "given, said",
    [
        (("--since", "yesterday"), "'yesterday' is no moment; expected how long ago, such as 7d or 12h, or a date,"),
        (("--until", "2026-13-01"), "'2026-13-01' is no moment; expected how long ago"),
        (("--since", "1h", "--until", "2h"), "--since 1h is not before --until 2h."),
        (("--since", "2999-01-01"), "--since 2999-01-01 is not before --until now."),
        (("--run", "a"), "--run needs --html FILE: the report of one run is a page."),
        (("--run", "a", "--json"), "--run is the report of one run; --since, --until, --by and --json"),
        (("--json", "--html", "-"), "--json and --html are two reports; give one of them."),
        (("--by", "usr"), "No session has the label 'usr'; expected host, run or device_kind, or a label: "),
        (("--by", "usr"), "the sessions have team and user. Did you mean user?"),
    ],
)
def test_what_is_refused(run: Command, logs: Path, given: tuple[str, ...], said: str) -> None:
    """With what came, and what was expected."""
    done = run("report", logs, *given)
    assert done.exit_code == 2 and said in done.stderr


def test_copies_count_once(run: Command, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of a run is not another run."""
    given: list[Any] = []
    monkeypatch.setattr(command, "fleet_report", lambda runs, **how: given.extend(runs) or fleet_report(runs, **how))
    (logs / "d").mkdir()
    for file in (logs / "a").iterdir():
        (logs / "d" / file.name).write_bytes(file.read_bytes())
    assert run("report", logs).exit_code == 0
    assert len(given) == 3


def test_the_page_has_the_same_sections(run: Command, logs: Path) -> None:
    """What the terminal says, the file says; it may load and run nothing."""
    shown = run("report", logs, "--by", "user").output
    page = run("report", logs, "--by", "user", "--html", "-").stdout
    assert page.startswith("<!doctype html>") and page.endswith("</html>\n")
    assert "default-src 'none'" in page and "<script" not in page and "style=" not in page
    titles = [line for line in shown.splitlines() if f">{line}</h2>" in page]
    assert {"Where the time went", "By user", "Failures", "The costliest runs"} <= set(titles)


def empty(**changes: Any) -> FleetReport:
    """A report of nothing, with changes."""
    return replace(fleet_report([], now=1.7e9), **changes)


def big() -> FleetReport:
    """A report with long hostile names in more rows than any table shows."""
    from supervisor_core.run.judge.fleet_report import HostFailures

    name, none = HOSTILE * 300, empty()
    half = {"productive": 5.0, "stall": 5.0}
    usage = replace(none.total, runs=1, sessions=1, secs=half)
    host = HostFailures(host=name, alive_secs=1.0, failures=9, expected=0.1, runs=3, is_suspect=True)
    return replace(
        none,
        since=1.6e9,
        by=name,
        total=usage,
        groups=(replace(usage, key=name),) * 10_000,
        hosts_tested=10_000,
        hosts=(host,) * 10_000,
        costliest=(replace(usage, key=name),) * 10_000,
    )


def test_a_hostile_name_is_text_and_the_page_is_bounded() -> None:
    """Nothing in a name is markup or a control character; ten thousand long ones are less than 10 MB."""
    page = fleet_page(big(), HOSTILE).decode()
    assert "<script" not in page and "\x1b" not in page
    assert len(page.encode()) < 10_000_000
    assert page.count("And 9,800 more: --json has all.") == 3


def test_nothing_that_is_unknown_is_shown_as_zero() -> None:
    """An empty fleet has no goodput, no failures, no hosts."""
    none = empty()
    assert summary(none) == ["No run ran in this window."] and sections(none, 20) == []
    assert "0.0 %" not in fleet_page(none, "/runs").decode()


@pytest.mark.skipif(not (ROOT / "frontend").exists(), reason="the sources of the tab are not at hand")
def test_causes_are_called_as_in_the_tab() -> None:
    """Each bucket has a name and a meaning, the same in both languages."""
    script = (ROOT / "frontend" / "src" / "logic" / "goodput.ts").read_text()
    assert {*BUCKETS, "at_risk"} == set(CAUSES)
    for bucket, (name, meaning) in CAUSES.items():
        assert f'["{bucket}", "{name}", "{meaning}"]' in script

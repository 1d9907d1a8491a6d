"""The figures of a fleet's report, asked with SQL of what was exported, are those of the report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.history.archive import Archive, Export
from supervisor_core.history.formats import Parquet
from supervisor_core.history.table import day_of
from supervisor_core.run.judge.fleet_report import fleet_report
from supervisor_core.run.model.run import Run
from supervisor_core.run.model.snapshot import WatchedRun
from tests.run.conftest import Trainer
from tests.story.fleet import BAD_HOST, BEGAN, DAY, ScriptedFleet, sessions_on_hosts

SQL = Path(__file__).parents[2] / "examples" / "history" / "report.sql"
FIRST = BEGAN // DAY * DAY


def asked(directory: Path, since: float, until: float) -> dict[str, list[dict[str, Any]]]:
    """The results of the statements by their names, of a window of whole days."""
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    text = SQL.read_text().replace("'history/", f"'{directory}/")
    days = iter((since, until))
    text = re.sub(r"current_date [-+] \d+", lambda _: f"DATE '{day_of(round(next(days) * 1e6))}'", text)
    found: dict[str, list[dict[str, Any]]] = {}
    with duckdb.connect() as database:
        for statement in text.split(";\n"):
            answer = database.execute(statement)
            named = re.search(r"^-- (\w+): ", statement, re.MULTILINE)
            if named is not None and answer is not None and not statement.lstrip().startswith("CREATE"):
                names = [column[0] for column in answer.description]
                found[named[1]] = [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
    return found


def check(runs: list[Run], now: float, directory: Path, windows: tuple[tuple[int, int], ...]) -> None:
    """Export the runs, and compare each window's figures."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    with Archive(str(directory), "/runs", Parquet()) as archive:
        Export(archive, "/runs").update((WatchedRun(run=run, files=()), ()) for run in runs)
    for first, last in windows:
        since, until = FIRST + first * DAY, FIRST + last * DAY
        found, report = asked(directory, since, until), fleet_report(runs, now=now, since=since, until=until, by="team")
        (total,) = found["totals"]
        failures = report.total.failures
        assert total == pytest.approx(
            {
                "runs": report.total.runs,
                "sessions": report.total.sessions,
                "device_hours": report.total.device_secs / 3600,
                "goodput": report.total.goodput,
                "lost_device_hours": report.total.lost_device_secs / 3600,
                "unknown_device_hours": report.total.unknown_device_secs / 3600,
                "failures": failures.failures,
                "mttf_hours": None if failures.mttf_secs is None else failures.mttf_secs / 3600,
            }
        )
        causes = {row["cause"]: row["device_hours"] * 3600 for row in found["causes"] if row["device_hours"]}
        assert causes == pytest.approx(
            {cause: secs for cause, secs in report.total.secs.items() if secs}, rel=1e-9, abs=1e-3
        )
        teams = {row["team"]: row["lost_device_hours"] * 3600 for row in found["teams"]}
        assert teams == pytest.approx({group.key: group.lost_device_secs for group in report.groups})
        sizes = [(row["devices_high"], row["runs"], row["failures"], row["mttf_hours"]) for row in found["sizes"]]
        assert [each[:3] for each in sizes] == [
            (size.devices_high, size.runs, size.failures.failures) for size in report.sizes
        ]
        assert [each[3] for each in sizes] == pytest.approx(
            [each.failures.mttf_secs and each.failures.mttf_secs / 3600 for each in report.sizes]
        )
        runs_found = [row["lost_device_hours"] * 3600 for row in found["runs"] if row["lost_device_hours"] > 1e-6]
        assert runs_found == pytest.approx([run.lost_device_secs for run in report.costliest])
        hosts = {row["host"]: row for row in found["hosts"]}
        assert len(hosts) == report.hosts_tested
        for host in report.hosts:
            row = hosts[host.host]
            assert row["failures"] == host.failures and row["expected"] == pytest.approx(host.expected)


def test_the_figures_are_those_of_the_report(tmp_path: Path) -> None:
    """Of runs that fail, hang, are continued and given up: of all days, and of each."""
    fleet = ScriptedFleet(Trainer, seed=3, runs=12)
    check(fleet.runs, fleet.now, tmp_path, ((0, 9), (0, 1), (1, 2), (2, 4)))


def test_the_bad_host_is_found_by_sql(tmp_path: Path) -> None:
    """It comes first, far above what is expected of it; the next host is not."""
    runs = sessions_on_hosts(seed=4, runs=300)
    check(runs, FIRST + 9 * DAY, tmp_path, ((0, 9), (2, 5)))
    first, second, *_ = asked(tmp_path, FIRST, FIRST + 9 * DAY)["hosts"]
    assert first["host"] == BAD_HOST
    assert first["failures"] > 3 * first["expected"] and second["failures"] < 3 * second["expected"]


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_hundred_thousand_runs(tmp_path: Path) -> None:
    """The same figures, of a week and of three days of it."""
    check(sessions_on_hosts(seed=5, runs=100_000), FIRST + 9 * DAY, tmp_path, ((0, 9), (2, 5)))

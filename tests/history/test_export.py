"""What an archive has of a run is what is known of it now, however often and by whom it was brought up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor_core.history import archive as archives
from supervisor_core.history.archive import Archive, Export
from supervisor_core.history.formats import JsonLines
from supervisor_core.history.rows import SESSION_DAYS
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.model.run import Run
from supervisor_core.run.model.snapshot import WatchedRun
from tests.cases import each
from tests.run.conftest import Trainer

HOUR = 3600.0


def dead(name: str, hours: float) -> Run:
    """A run that was lost, as it is so many hours later."""
    session = Trainer(name, 1_795_222_244.0).ready(host="n1").train(100)
    fold = RunFold(name)
    fold.update(session.file.chunks())
    return fold.run(session.now + hours * HOUR)


def stored_secs(archive: Archive) -> float:
    """The wall time of all days that are stored."""
    place = [column.name for column in SESSION_DAYS.columns].index("wall_secs")
    return sum(row[place] for day in archive.days(SESSION_DAYS) for row in archive.rows(SESSION_DAYS, day))


@each("is_new", [False, True])
def test_days_that_turn_out_to_be_none_are_dropped(tmp_path: Path, is_new: bool) -> None:
    """A run is down for a day, then it is given up, and its time ended with its death: nothing is left of the day
    after, whether the same process stores it or another."""
    with Archive(str(tmp_path), "/runs", JsonLines()) as archive:
        exporting = Export(archive, "/runs")
        for hours, days in ((23.5, 2), (30.0, 1)):
            run = dead("r", hours)
            exporting.update([(WatchedRun(run=run, files=()), ())])
            assert len(archive.days(SESSION_DAYS)) == days
            assert stored_secs(archive) == pytest.approx(run.goodput.wall_secs)
            exporting = Export(archive, "/runs") if is_new else exporting


def test_rows_are_stored_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows are kept at a time, all are stored; what has not changed is not looked at again."""
    monkeypatch.setattr(archives, "MOST_ROWS", 2)
    runs = [(WatchedRun(run=dead(f"r{number}", 1.0), files=()), ()) for number in range(5)]
    with Archive(str(tmp_path), "/runs", JsonLines()) as archive:
        exporting = Export(archive, "/runs")
        assert exporting.update(runs)["session_days"] == 5
        monkeypatch.setattr(archive, "rows", None)
        assert not any(exporting.update(runs).values())


def test_a_day_that_is_gone_is_dropped_where_no_other_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the session's other days are as they were."""
    rows = [SESSION_DAYS.row({"run": "r", "session": "s", "since": day * 24 * HOUR}) for day in (1, 2)]
    monkeypatch.setattr(archives, "rows_of", lambda *_: [(SESSION_DAYS, row) for row in rows])
    with Archive(str(tmp_path), "/runs", JsonLines()) as archive:
        exporting = Export(archive, "/runs")
        for days in (["1970-01-02", "1970-01-03"], ["1970-01-02"]):
            exporting.update([(WatchedRun(run=dead("r", 1.0), files=()), ())])
            assert archive.days(SESSION_DAYS) == days
            rows.pop()

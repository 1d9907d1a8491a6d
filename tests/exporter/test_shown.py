"""An exporter that shows what somebody else has found."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from prometheus_client.parser import text_string_to_metric_families

from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.render import TEXT
from supervisor_core.run.watch.logdir_watch import LogdirWatch

SECS = 0.75


def samples(page: bytes) -> dict[str, float]:
    """The samples of a page that depend on nothing but what was found, without their labels."""
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if sample.name not in ("supervisor_exporter_scrape_duration_seconds", "supervisor_exporter_build_info")
    }


def test_what_somebody_else_has_found_is_shown(tmp_path: Path, writing: ModuleType, clock, exporter_of) -> None:
    """Snapshots that were taken elsewhere make the same page as a refresh, dated when they were taken."""
    writing.RunFile(tmp_path / "digits").ready("digits").beat(writing.T0 + 20, steps=7)
    snapshot = LogdirWatch(str(tmp_path), clock=clock).refresh()
    exporter = Exporter([], clock=clock)
    assert not exporter.ready
    exporter.show([snapshot], at=snapshot.at - 5.0, secs=SECS)
    assert exporter.ready
    shown, refreshed = (
        {name: value for name, value in samples(each.scrape(TEXT)).items() if not name.startswith("process_")}
        for each in (exporter, exporter_of(tmp_path))
    )
    assert shown.pop("supervisor_exporter_last_refresh_timestamp_seconds") == snapshot.at - 5.0
    assert shown.pop("supervisor_exporter_refresh_duration_seconds") == SECS
    assert shown["supervisor_global_step"] == 7
    of_process = {name for name in shown if name.startswith("process_")}  # which changes from scrape to scrape
    assert {name: shown[name] for name in shown if name not in of_process} == {
        name: refreshed[name] for name in shown if name not in of_process
    }
    assert refreshed.keys() - shown.keys() == {
        "supervisor_exporter_last_refresh_timestamp_seconds",
        "supervisor_exporter_refresh_duration_seconds",
    }

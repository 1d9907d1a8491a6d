from __future__ import annotations

from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families as parse_text

from supervisor_core.run.model.snapshot import LogdirSnapshot
from tests.tb_plugin.conftest import LOGDIR, NOW, Bench, FakeWatch, a_rich_run, a_run, changed, watched

PATIENCE_SECS = 30.0
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


def value(text: str, name: str, **labels: str) -> float:
    """One sample's value."""
    (found,) = [
        sample.value
        for family in parse_text(text)
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    ]
    return found


def test_the_exporters_metrics_are_served(bench: Callable[..., Bench]) -> None:
    """Each run's metrics by the names that the exporter serves, of the moment at which the logdir was read."""
    answer = bench(a_rich_run()).get("metrics")
    assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert value(answer.text, "supervisor_global_step", run="a") == 200
    assert value(answer.text, "supervisor_exporter_runs", logdir=LOGDIR) == 1
    assert value(answer.text, "supervisor_exporter_last_refresh_timestamp_seconds", logdir=LOGDIR) == NOW


def test_a_scrape_shows_the_latest_look(bench: Callable[..., Bench]) -> None:
    """What changed since the last scrape is in the next."""
    watch = FakeWatch(watched(a_run()))
    tab = bench(watch)
    assert "supervisor_global_step" not in tab.get("metrics").text
    watch.runs["a"] = changed(a_run(), step=7)
    tab.index.refresh()
    assert value(tab.get("metrics").text, "supervisor_global_step", run="a") == 7


class Faulty(FakeWatch):
    """A watch that raises while ``fault`` is set."""

    fault: Exception | None = RuntimeError("never thought of that")

    def refresh(self, on_progress: Callable[[int, int], None] | None = None) -> LogdirSnapshot:
        if self.fault is not None:
            raise self.fault
        return super().refresh(on_progress)


def test_no_look_is_claimed_that_was_not_through(bench: Callable[..., Bench]) -> None:
    """Until every logdir has been looked at nothing is served, also where a first look broke off; then its age is."""
    faulty = Faulty(watched(a_run("b")), logdir="/y")
    tab = bench(FakeWatch(watched(a_run()), logdir="/x"), faulty, read=False)
    assert tab.get("metrics").status_code == 503
    tab.index.start()
    assert tab.index.view(PATIENCE_SECS).is_whole
    answer = tab.get("metrics")
    assert (answer.status_code, answer.json["reason"]) == (503, "starting")
    assert "never thought of that" in answer.json["error"]
    faulty.fault = None
    tab.index.close()
    tab.index.refresh()
    text = tab.get("metrics").text
    for logdir in ("/x", "/y"):
        assert value(text, "supervisor_exporter_last_refresh_timestamp_seconds", logdir=logdir) == NOW

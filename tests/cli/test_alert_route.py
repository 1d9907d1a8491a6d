"""``report --prometheus``: which live runs are scraped, and whether an alert of them goes anywhere."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from supervisor_core.events.telemetry import HeartbeatRecord, SessionRecord, summary_bytes
from supervisor_core.events.writer import EventsWriter
from tests.cases import each

Command = Callable[..., Result]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two live runs, below a directory of a team."""
    for name in ("a", "b"):
        with EventsWriter(tmp_path / "team" / name) as writer:
            record = SessionRecord(session=name, attempt=1, started_at=time.time() - 100, restored_step=0)
            writer.summary(summary_bytes(record), 0)
            writer.summary(summary_bytes(HeartbeatRecord(session=name, phase="training", step=3)), 3)
    return tmp_path / "team"


class Prometheus:
    """Answers as a Prometheus does."""

    def __init__(self) -> None:
        self.labels = ["team/a"]
        self.rules = ["SupervisorTrainingLost", "Other"]
        self.alertmanagers = ["http://127.0.0.1:9093"]
        self.status, self.body = 200, ""
        self.headers: dict[str, str] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(outer.status)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write((outer.body or json.dumps({"data": outer.data(self.path)})).encode())

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def data(self, path: str) -> Any:
        """The data of an answer."""
        if path.startswith("/api/v1/query?query=group+by"):
            return {"result": [{"metric": {"run": label}} for label in self.labels]}
        if path == "/api/v1/rules?type=alert":
            return {"groups": [{"rules": [{"name": name} for name in self.rules]}]}
        return {"activeAlertmanagers": [{"url": url} for url in self.alertmanagers]}


@pytest.fixture
def prometheus() -> Iterator[Prometheus]:
    """One that scrapes the first run, under the name that it has one directory above."""
    made = Prometheus()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def test_a_live_run_that_is_not_scraped_is_named(run: Command, logs: Path, prometheus: Prometheus) -> None:
    """The other one is found by the end of its name; both are fine for who did not ask."""
    found = json.loads(run("report", logs, "--json", "--prometheus", prometheus.url).output)
    assert [(each["run"], each["why"]) for each in found["unwatched"]] == [("b", "not_scraped")]
    assert (found["alert_rules"], found["alertmanagers"]) == (1, 1)
    alone = json.loads(run("report", logs, "--json").output)
    assert (alone["unwatched"], alone["alert_rules"]) == ([], None)


@pytest.mark.parametrize("missing", ["rules", "alertmanagers"])
def test_alerts_that_go_nowhere(run: Command, logs: Path, prometheus: Prometheus, missing: str) -> None:
    """Without rules, or without an Alertmanager, scraping helps no run."""
    prometheus.labels = ["a", "b"]
    shown = run("report", logs, "--prometheus", prometheus.url).output
    assert "Prometheus evaluates 1 alert rule of Supervisor, and sends alerts to 1 Alertmanager.\n" in shown
    assert "no alert of any run" not in shown
    setattr(prometheus, missing, [])
    assert "So no alert of any run reaches a person." in run("report", logs, "--prometheus", prometheus.url).output


@each(
    "status, body, headers",
    [
        (500, "x", {}),
        (200, "<html>", {}),
        (200, '{"data": []}', {}),
        (200, "[]", {}),
        (302, "x", {"Location": "file:///etc/passwd"}),
    ],
)
def test_what_is_no_prometheus(
    run: Command, logs: Path, prometheus: Prometheus, status: int, body: str, headers: dict[str, str]
) -> None:
    """One line with its address; no other address is asked."""
    prometheus.status, prometheus.body, prometheus.headers = status, body, headers
    done = run("report", logs, "--prometheus", prometheus.url)
    assert done.exit_code == 2 and done.stderr.count("\n") == 1
    assert f"--prometheus {prometheus.url} does not answer as a Prometheus does: " in done.stderr


def test_an_address_that_is_none(run: Command, logs: Path) -> None:
    """It is refused before anything is read, or asked in vain."""
    assert "expected a URL like" in run("report", logs, "--prometheus", "file:///etc/passwd").stderr
    assert "does not answer as a Prometheus" in run("report", logs, "--prometheus", "http://127.0.0.1:1").stderr

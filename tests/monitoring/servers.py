"""Real Prometheus and Alertmanager on the loopback device, with everything they keep in the test's directory."""

from __future__ import annotations

import json
import math
import queue
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ports import free_port

from supervisor_core.metrics.config_files import to_yaml


def queries_of(dashboard: Mapping[str, Any], run: str) -> list[str]:
    """Every query of a Grafana dashboard, of its panels and of its annotations, as Grafana asks it of one run."""
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    queries += [annotation["expr"] for annotation in dashboard["annotations"]["list"]]
    return [as_asked(query, run) for query in queries]


def as_asked(query: str, run: str) -> str:
    """A query as Grafana asks it: of one run, with *All* chosen for the labels that tell runs of one name apart."""
    chosen = {"$__rate_interval": "10s", "$run": run, "$namespace": ".*", "$cluster": ".*"}
    chosen |= {"$__range": "1h", "$group": "team"}
    for name, value in chosen.items():
        query = query.replace(name, value)
    return query


PATIENCE_SECS = 90.0
"""How long anything may take on a machine that is busy with other tests."""


def wait_until(condition: Callable[[], Any], what: str, timeout_secs: float = PATIENCE_SECS) -> Any:
    """Return what the condition returns as soon as that is something; fail when it takes too long."""
    deadline = time.monotonic() + timeout_secs
    pause = threading.Event()
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        pause.wait(0.1)


class Server:
    """A program that answers HTTP at a port of 127.0.0.1. Begun by `start`, which tries again if the port is taken."""

    name = "server"

    def __init__(self, program: str, directory: Path) -> None:
        self._program = program
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def start(self, arguments: Callable[[str], list[str]]) -> None:
        """Start it, and wait until it is ready."""
        for attempt in range(5):
            self.address = f"127.0.0.1:{free_port()}"
            log = (self._directory / f"{self.name}-{attempt}.log").open("wb")
            with log:
                self._process = subprocess.Popen([self._program, *arguments(self.address)], stdout=log, stderr=log)
            if wait_until(self._ready_or_dead, f"{self.name} to be ready") == "ready":
                return
        raise AssertionError(f"{self.name} does not start: {Path(log.name).read_text()}")

    def close(self) -> None:
        """End it."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def get(self, path: str) -> Any:
        """Return the JSON that it answers."""
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=30) as answer:
            return json.load(answer)

    def _ready_or_dead(self) -> str | None:
        assert self._process is not None
        if self._process.poll() is not None:
            return "dead"
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=5):
                return "ready"
        except OSError:
            return None


class Prometheus(Server):
    """Scrapes targets every second, or as asked, and evaluates rules."""

    name = "prometheus"

    def __init__(
        self,
        program: str,
        directory: Path,
        *,
        targets: Mapping[str, str | list[str]],
        rules: str,
        alertmanager: str | None = None,
        interval: str = "1s",
        flags: Sequence[str] = (),
    ) -> None:
        super().__init__(program, directory)
        (directory / "rules.yaml").write_text(rules)
        config: dict[str, Any] = {
            "global": {"scrape_interval": interval, "scrape_timeout": "1s", "evaluation_interval": interval},
            "rule_files": [str(directory / "rules.yaml")],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [found] if isinstance(found, str) else found}]}
                for job, found in targets.items()
            ],
        }
        if alertmanager is not None:
            config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
        self._config = directory / "prometheus.yaml"
        self._config.write_text(to_yaml(config))
        self.start(
            lambda address: [
                f"--config.file={self._config}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address={address}",
                "--rules.alert.resend-delay=1s",
                "--log.level=warn",
                *flags,
            ]
        )

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Return the result of a query at this moment; fail if it is not understood."""
        try:
            answer = self.get("/api/v1/query?" + urllib.parse.urlencode({"query": expr}))
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expr}: {error.read().decode()}") from error
        assert answer["status"] == "success", answer
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def value(self, expr: str) -> float | None:
        """Return the one value of a query; None where there is none."""
        result = self.query(expr)
        assert len(result) <= 1, result
        return float(result[0]["value"][1]) if result else None

    def data(self, expr: str) -> list[float]:
        """Wait until a query has data, every value of which is a number; return it."""

        def numbers() -> list[float]:
            values = [float(item["value"][1]) for item in self.query(expr)]
            return values if not any(map(math.isnan, values)) else []

        found: list[float] = wait_until(numbers, f"data of {expr}")
        return found

    def rules(self) -> list[dict[str, Any]]:
        """Return the rules as they were evaluated last."""
        return [rule for group in self.get("/api/v1/rules")["data"]["groups"] for rule in group["rules"]]


class Alertmanager(Server):
    """Sends alerts on to a webhook, those of the team ``vision`` as that team's, at once; or after two seconds, with
    inhibit rules, for which it needs time."""

    name = "alertmanager"

    def __init__(
        self, program: str, directory: Path, webhook: str, inhibit_rules: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        super().__init__(program, directory)
        wait = "2s" if inhibit_rules else "0s"
        route = {"receiver": "hook", "group_by": ["alertname", "run"], "group_wait": wait, "group_interval": "1s"}
        hook = [{"url": webhook, "send_resolved": True}]
        of_team = {"matchers": ['team="vision"'], "receiver": "vision"}
        config = {
            "route": {**route, "repeat_interval": "1h", "routes": [of_team]},
            "inhibit_rules": list(inhibit_rules),
            "receivers": [{"name": name, "webhook_configs": hook} for name in ("hook", "vision")],
        }
        self.config = directory / "alertmanager.yaml"
        self.config.write_text(to_yaml(config))
        self.start(
            lambda address: [
                f"--config.file={self.config}",
                f"--storage.path={directory / 'alertmanager'}",
                f"--web.listen-address={address}",
                "--cluster.listen-address=",
                "--log.level=warn",
            ]
        )


class Webhook:
    """Where alerts arrive: who is on call."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.received: list[dict[str, Any]] = []
        """Every alert that has arrived and was waited for."""
        self.repeated: set[str] = set()
        """The names of alerts that may fire and resolve again, and are passed over."""
        arrivals = self._queue

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                message = json.loads(self.rfile.read(length))
                for alert in message["alerts"]:
                    arrivals.put({**alert, "receiver": message["receiver"]})
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"

    def next(self, timeout_secs: float = PATIENCE_SECS) -> tuple[str, str, str]:
        """Wait for the next alert that is not one of `repeated`; return its status, its name and its run."""
        while True:
            alert = self._queue.get(timeout=timeout_secs)
            self.received.append(alert)
            if alert["labels"]["alertname"] not in self.repeated:
                break
        return alert["status"], alert["labels"]["alertname"], alert["labels"].get("run", "")

    def rest(self) -> list[dict[str, Any]]:
        """Return what has arrived and was not waited for."""
        found = []
        while not self._queue.empty():
            found.append(self._queue.get())
        return [alert for alert in found if alert["labels"]["alertname"] not in self.repeated]

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

"""A real Prometheus that scrapes an exporter of a fleet and evaluates our rules; what that costs it.

    python -m benchmarks.fleet.prometheus [--runs 10000] [--live 1000] [--beats 200] [--minutes 3] [--rules FILE]

prints what each rule took, the slowest first.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fleet.exporter import ServedFleet
from benchmarks.fleet.logdir import Fleet, make

INTERVAL_SECS = 15.0
_READY_SECS = 60.0
_SAMPLE = re.compile(r"^(\w+)(?:\{.*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Watched:
    """What a Prometheus had to do for a fleet, from its start on."""

    secs: float
    series: int
    """In memory at the end: scraped and recorded."""
    memory_bytes: int
    """Resident at its largest."""
    evaluations: int
    missed: int
    failed: int
    worst_evaluation_secs: float
    """The longest evaluation of all groups together, of those that were looked at: one in each interval."""
    median_evaluation_secs: float
    scrape_secs: float
    """The longest."""
    scrape_bytes: int
    samples: int
    """Of a scrape."""
    rules: dict[str, float]
    """The median seconds of each rule, by its name."""
    processor_secs: float

    @property
    def processor_secs_per_interval(self) -> float:
        """The processor time that it used in each interval of scrapes and evaluations."""
        return self.processor_secs / self.secs * INTERVAL_SECS


class Prometheus:
    """A Prometheus of its own directory, which is deleted with it. Close it.

    Args:
        port: where the exporter listens.
        rules: the rule file's text.
    """

    def __init__(self, port: int, rules: str) -> None:
        program = shutil.which("prometheus")
        if program is None:
            raise SystemExit("No prometheus on the path. On Debian: apt-get install prometheus")
        self._made = tempfile.TemporaryDirectory()
        directory = Path(self._made.name)
        (directory / "rules.yaml").write_text(rules)
        every = f"{INTERVAL_SECS:.0f}s"
        config = {
            "global": {"scrape_interval": every, "scrape_timeout": "10s", "evaluation_interval": every},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [
                {"job_name": "supervisor", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]},
            ],
        }
        (directory / "prometheus.yaml").write_text(json.dumps(config))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        with (directory / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    program,
                    f"--config.file={directory / 'prometheus.yaml'}",
                    f"--storage.tsdb.path={directory / 'tsdb'}",
                    f"--web.listen-address={self._address}",
                    "--log.level=warn",
                ],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + _READY_SECS
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((directory / "log").read_text())
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            return bool(self.get("/-/ready"))
        except OSError:
            return False

    def get(self, path: str) -> bytes:
        """Return what it answers."""
        with urllib.request.urlopen(f"http://{self._address}{path}", timeout=60) as answer:
            return bytes(answer.read())

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Return the result of a query."""
        answer = self.get(f"/api/v1/query?query={urllib.parse.quote(expr)}")
        return list(json.loads(answer)["data"]["result"])

    def groups(self) -> list[dict[str, Any]]:
        """Return the rule groups as they were evaluated last."""
        return list(json.loads(self.get("/api/v1/rules"))["data"]["groups"])

    def sums(self) -> dict[str, float]:
        """Return its own metrics, each summed over its labels."""
        found: dict[str, float] = {}
        for name, value in _SAMPLE.findall(self.get("/metrics").decode()):
            found[name] = found.get(name, 0.0) + float(value)
        return found

    def close(self) -> None:
        """End it, and delete what it kept."""
        self.process.terminate()
        self.process.wait()
        self._made.cleanup()

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def watch(fleet: Fleet, served: ServedFleet, rules: str, secs: float) -> Watched:
    """Have a Prometheus watch a fleet that goes on writing.

    Args:
        fleet: whose live runs write a heartbeat every 10 s meanwhile.
        served: its exporter, which was started.
        rules: the rule file's text.
        secs: for how long.
    """
    took: dict[str, list[float]] = {}
    whole: list[float] = []
    memory = 0.0
    with Prometheus(served.port, rules) as prometheus:
        began, due = time.monotonic(), time.monotonic() + INTERVAL_SECS
        while time.monotonic() < began + secs:
            while fleet.next_at <= time.time():
                fleet.grow()
            time.sleep(max(0.0, min(due - time.monotonic(), fleet.next_at - time.time())))
            if time.monotonic() >= due:
                due += INTERVAL_SECS
                groups = prometheus.groups()
                whole.append(sum(float(group["evaluationTime"]) for group in groups))
                for group in groups:
                    for rule in group["rules"]:
                        took.setdefault(rule["name"], []).append(float(rule["evaluationTime"]))
                memory = max(memory, prometheus.sums()["process_resident_memory_bytes"])
        sums = prometheus.sums()
        scraped = {
            name: max(float(each["value"][1]) for each in prometheus.query(f"max_over_time({name}[1h])"))
            for name in ("scrape_duration_seconds", "scrape_samples_scraped")
        }
        plain_bytes, _ = served.ask("sizes")
        return Watched(
            secs=time.monotonic() - began,
            series=int(sums["prometheus_tsdb_head_series"]),
            memory_bytes=int(memory),
            evaluations=int(sums.get("prometheus_rule_group_iterations_total", 0)),
            missed=int(sums.get("prometheus_rule_group_iterations_missed_total", 0)),
            failed=int(sums.get("prometheus_rule_evaluation_failures_total", 0)),
            worst_evaluation_secs=max(whole, default=0.0),
            median_evaluation_secs=statistics.median(whole or [0.0]),
            scrape_secs=scraped["scrape_duration_seconds"],
            scrape_bytes=plain_bytes,
            samples=int(scraped["scrape_samples_scraped"]),
            rules={name: statistics.median(times) for name, times in took.items()},
            processor_secs=sums["process_cpu_seconds_total"],
        )


NO_RULES = "groups: []"


def our_rules() -> str:
    """Return the rule file as `tb-supervisor rules` prints it."""
    from supervisor_core.metrics.config_files import rule_groups, to_yaml

    return to_yaml(rule_groups())


def main() -> None:
    """Measure one fleet, and print what each rule took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet.prometheus", description="What the rules cost.")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--live", type=int, default=1000)
    parser.add_argument("--beats", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--rules", type=Path, help="a rule file. Default: what tb-supervisor rules prints")
    parser.add_argument("--bare", action="store_true", help="then once more without rules, to tell what they cost")
    parser.add_argument("--most", type=int, default=30, help="how many rules to print")
    given = parser.parse_args()
    rules = our_rules() if given.rules is None else given.rules.read_text()
    with tempfile.TemporaryDirectory() as made:
        fleet = make(Path(made) / "runs", given.runs, given.live, given.beats)
        with ServedFleet(fleet.directory) as served:
            first = served.took("look")
            print(f"first look: {first.wall_secs:.1f} s, {first.processor_secs:.1f} s of processor time", flush=True)
            served.ask("start")
            found = watch(fleet, served, rules, given.minutes * 60)
            if given.bare:
                bare = watch(fleet, served, NO_RULES, given.minutes * 60)
                cost = found.processor_secs_per_interval - bare.processor_secs_per_interval
                print(f"of the rules alone: {cost:.3f} s of processor time in each {INTERVAL_SECS:.0f} s")
    for name, value in vars(found).items():
        if name != "rules":
            print(f"{name:24} {value:,.3f}" if isinstance(value, float) else f"{name:24} {value:,}")
    for name, secs in sorted(found.rules.items(), key=lambda each: -each[1])[: given.most]:
        print(f"{secs * 1e3:9.1f} ms  {name}")


if __name__ == "__main__":
    main()

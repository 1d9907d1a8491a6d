"""Exporters that divide the runs, processes of their own, and a real Prometheus with the rules that are shipped."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from monitoring_end_to_end import COMMAND
from monitoring_servers import PATIENCE_SECS, Prometheus, wait_until
from ports import free_port

from supervisor_core.cli import main
from supervisor_core.events import EventsWriter

SHARDS = 2
MISSING = 'ALERTS{alertname="SupervisorShardMissing",alertstate="firing"}'


@pytest.mark.long
def test_a_shard_that_never_came_and_one_that_dies(tool: Callable[[str], str], tmp_path: Path) -> None:
    """Each run is served once; while a shard has not come, and when one is killed, there is the one alert."""
    logs = tmp_path / "logs"
    for number in range(20):
        with EventsWriter(str(logs / f"run-{number}")) as writer:
            writer.scalar("loss", 1.0, 1)
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(SHARDS)]
    running: list[subprocess.Popen[bytes]] = []

    def start(index: int) -> None:
        arguments = [str(logs), f"--web.listen-address={addresses[index]}", f"--shard=exporter-{index}/{SHARDS}"]
        with (tmp_path / f"exporter-{index}.log").open("wb") as log:
            running.append(subprocess.Popen([*COMMAND, "exporter", *arguments], stdout=log, stderr=log))

    rules = CliRunner().invoke(main, ["rules", "--interval=1s", "--hold=1s"])
    assert rules.exit_code == 0
    server = Prometheus(tool("prometheus"), tmp_path, targets={"exporter": addresses}, rules=rules.stdout)
    try:
        start(0)
        wait_until(lambda: server.query(MISSING), "the alert of a shard that never came")
        start(1)
        wait_until(lambda: server.value("sum(supervisor_exporter_runs)") == 20, "all runs")
        wait_until(lambda: not server.query(MISSING), "the alert to end")
        assert server.value("max(count by (run) (supervisor_exporter_run_read_success))") == 1
        running[1].kill()
        wait_until(lambda: server.query(MISSING), "the alert of a shard that is gone")
    finally:
        server.close()
        for process in running:
            process.kill()
            process.wait(PATIENCE_SECS)

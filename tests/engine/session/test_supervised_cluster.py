"""Chief and workers on one logdir: who writes what, and what the chief's file and metrics show of the others."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from supervisor_core.base.options import Options
from supervisor_core.engine.recorder import StopInfo
from supervisor_core.engine.service import ServiceRegistry
from supervisor_core.engine.session_recorder import SessionRecorder
from supervisor_core.events.telemetry import HeartbeatRecord
from supervisor_core.run.fold.notices import notices_of

SOON = Options(heartbeat_secs=0.01)


def said(tmp_path: Path, name: str = "worker-1.json") -> dict[str, Any]:
    """What a process's file says."""
    content: dict[str, Any] = json.loads((tmp_path / ".supervisor.live" / name).read_bytes())
    return content


def shows(state: str, **values: Any):
    """Whether a heartbeat shows a process in a state, and with these values."""

    def is_meant(record: HeartbeatRecord) -> bool:
        return any(replace(worker, state=state, **values) == worker for worker in record.workers or ())

    return is_meant


def test_a_worker_keeps_a_heartbeat_and_writes_no_events(begin, writer, tmp_path: Path) -> None:
    """Its file says what its session is, and how it ended; its metrics name its task."""
    run = begin(is_chief=False, task="worker:1")
    run.ready()
    run.enter("training")
    run.progress.step_read(7)
    assert run.status().info["task"] == "worker:1"
    assert run.status().workers == ()
    run.end(StopInfo(reason="exhausted"))
    for thread in threading.enumerate():
        if thread.name == "supervisor_heartbeat":
            thread.join()  # nothing is left running
    file = said(tmp_path)
    assert (file["session"], file["phase"], file["ended"], file["step"]) == (run.session_id, "stopped", "exhausted", 7)
    assert writer.records == []


def test_a_chief_is_no_worker(begin, tmp_path: Path) -> None:
    """Its liveness file is the chief's, whatever its task."""
    run = begin(task="worker:0")
    assert "task" not in run.status().info
    run.end(StopInfo(reason="completed"))
    assert [path.name for path in (tmp_path / ".supervisor.live").iterdir()] == ["chief.json"]


def test_a_process_of_no_cluster_keeps_no_heartbeat(begin, tmp_path: Path) -> None:
    """One that neither leads nor has a name among others leaves nothing behind, and is called nothing."""
    run = begin(is_chief=False)
    run.end(StopInfo(reason="completed"))
    assert "task" not in run.status().info
    assert not (tmp_path / ".supervisor.live").exists()


def test_the_chief_shows_what_becomes_of_a_worker(begin, writer) -> None:
    """Each change is in the events file as it happens, and the metrics show the same."""
    chief = begin(SOON)
    worker = begin(is_chief=False, task="worker:1")
    writer.wait_for("heartbeat", shows("waiting", phase="starting"))
    worker.enter("training")
    writer.wait_for("heartbeat", shows("running", phase="training"))
    worker.waiting_for("the chief")
    writer.wait_for("heartbeat", shows("waiting", waiting_for="the chief"))
    worker.waiting_for(None)
    worker.end(StopInfo(reason="error", error="ValueError: NaN"))
    writer.wait_for("heartbeat", shows("failed", error="ValueError: NaN", pid=worker.status().session.pid))
    (seen,) = chief.status().workers
    assert (seen.name, seen.state) == ("worker:1", "failed")


def test_a_workers_step_is_known_without_heartbeats(begin, writer) -> None:
    """Its file is not the run's: what is saved there does not count here."""
    begin(SOON)
    worker = begin(Options(heartbeat_secs=0), is_chief=False, task="worker:1")
    worker.enter("training")
    worker.progress.step_read(7)
    worker.tick()
    worker.waiting_for("the chief")
    writer.wait_for("heartbeat", shows("waiting", step=7))


def test_a_change_is_written_though_there_are_no_heartbeats(begin, writer) -> None:
    """When it happens is worth a record of its own."""
    begin(is_chief=False, task="worker:1").end(StopInfo(reason="error", error="ValueError: NaN"))
    begin(Options(heartbeat_secs=0))
    record = writer.wait_for("heartbeat", shows("failed", name="worker:1"))
    assert record.phase == "starting"


def test_the_chiefs_last_word_is_of_the_workers_too(begin, writer, monkeypatch) -> None:
    """Those that end with it are seen to have ended."""
    monkeypatch.setattr("supervisor_core.engine.worker_registry.LAST_READ_SECS", 60.0)
    chief = begin(SOON)
    worker = begin(is_chief=False, task="worker:1")
    writer.wait_for("heartbeat", shows("waiting"))
    worker.end(StopInfo(reason="completed"))
    chief.end(StopInfo(reason="completed"))
    listed = [beat.workers for beat in writer.of("heartbeat") if beat.workers is not None]
    assert [worker.state for worker in listed[-1]] == ["stopped"]


def test_without_a_logdir_a_worker_still_has_a_name() -> None:
    """It writes no heartbeats; its metrics have the task's name."""
    run = SessionRecorder(
        logdir=None,
        facade="Test",
        options=Options(),
        writer=None,
        services=ServiceRegistry(),
        is_chief=False,
        task="ps:0",
    )
    run.begin()
    run.waiting_for("the chief")
    run.end(StopInfo(reason="completed"))
    assert run.status().info["task"] == "ps:0"


def test_what_a_worker_says_is_in_its_chiefs_file_and_metrics(begin, writer, tmp_path: Path) -> None:
    """Once, with its name; a chief that follows records it, too, and readers take both for one."""
    worker = begin(is_chief=False, task="worker:1", options=SOON)
    chief = begin(options=SOON)
    worker.notices.say("the disk is slow", "page")
    found = writer.wait_for("notice", lambda record: True)
    assert (found.session, found.worker, found.severity, found.text) == (
        chief.session_id, "worker:1", "page", "the disk is slow",
    )  # fmt: skip
    assert chief.status().notices == (found,)
    chief.notices.say("my own")
    chief.end(StopInfo(reason="requested"))
    assert [record.worker for record in writer.of("notice")] == ["worker:1", None]
    later = begin(options=SOON)
    again = writer.wait_for("notice", lambda record: record.session == later.session_id)
    assert [record.text for record in notices_of([found, again])] == ["the disk is slow"]


def test_the_newest_of_what_a_worker_says_are_in_its_file(begin, tmp_path: Path) -> None:
    """Eight at most, each with its count; also what it said just before its end."""
    run = begin(is_chief=False, task="worker:1")
    for number in range(20):
        run.notices.say(f"number {number}")
        run.notices.say("always")
    run.end(StopInfo(reason="exhausted"))
    kept = said(tmp_path)["notices"]
    assert len(kept) == 8 and kept[-1]["text"] in ("always", "number 19")
    assert {item["text"]: item["count"] for item in kept}["number 19"] == 1

"""Contract part 2: checkpoints that are of one step, survive a faulty world, and are not taken for nothing."""

from __future__ import annotations

import errno
import logging
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.base.errors import SaveFailedError
from supervisor_core.base.options import Options
from supervisor_core.engine import deadline, recorder
from supervisor_core.events.events_file import EventsFile

v1 = tf.compat.v1
CHECKPOINT = v1.SessionLog.CHECKPOINT
QUICK = {"retry_initial_secs": 0.01, "retry_max_secs": 0.02}


def unavailable() -> Exception:
    """Return what a parameter server that restarts makes of a save."""
    return tf.errors.UnavailableError(None, None, "Socket closed")


def disk_full() -> Exception:
    """Return what Python says of a full disk."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def disk_full_in_tensorflow() -> Exception:
    """Return what TensorFlow says of a full disk."""
    return tf.errors.ResourceExhaustedError(None, None, "model.ckpt.data; No space left on device")


class FaultySaver(v1.train.Saver):
    """A saver that fails a number of times before it saves."""

    def __init__(self, *faults: Exception) -> None:
        super().__init__()
        self.faults = list(faults)

    def save(self, *args: Any, **kwargs: Any) -> Any:
        if self.faults:
            raise self.faults.pop(0)
        return super().save(*args, **kwargs)


def names(logdir: str) -> list[str]:
    """Return the names of the checkpoints in a logdir, by step."""
    return sorted((path.stem for path in Path(logdir).glob("*.index")), key=lambda name: int(name.split("-")[-1]))


@pytest.mark.parametrize("resource", [False, True])
def test_name_step_and_event_agree(
    ours: Any, build_model: Callable[..., Any], logdir: str, read_events: Any, wait_until: Any, resource: bool
) -> None:
    """Saved while training goes on, each checkpoint holds the one step that its name and its event say."""
    model = build_model(resource=resource)
    supervisor = ours.Supervisor(logdir=logdir, saver=v1.train.Saver(max_to_keep=1000), save_model_secs=0.01)

    def trained_on(sess: Any) -> bool:
        for _ in range(20):
            sess.run(model.train_op)
        return len(names(logdir)) >= 8

    with supervisor.managed_session() as sess:
        wait_until(lambda: trained_on(sess))
    logs = [event for file in read_events(logdir) for event in file if event.session_log.status == CHECKPOINT]
    assert [os.path.basename(event.session_log.checkpoint_path) for event in logs] == names(logdir)
    for event in logs:
        stored = tf.train.load_checkpoint(event.session_log.checkpoint_path)
        step = stored.get_tensor("global_step")
        assert event.session_log.checkpoint_path == os.path.join(logdir, f"model.ckpt-{step}")
        assert (event.step, stored.get_tensor("weight")) == (step, step)


@pytest.mark.parametrize("fault", [unavailable, disk_full, disk_full_in_tensorflow])
def test_faults_of_the_world_do_not_stop_training(
    ours: Any,
    build_model: Callable[..., Any],
    logdir: str,
    read_telemetry: Any,
    wait_until: Any,
    caplog: pytest.LogCaptureFixture,
    fault: Callable[[], Exception],
) -> None:
    """A save that fails is tried again while training goes on; it is in records and log."""
    model = build_model()
    saver = FaultySaver(fault(), fault())
    supervisor = ours.Supervisor(logdir=logdir, saver=saver, save_model_secs=9999, options=Options(**QUICK))
    with caplog.at_level(logging.WARNING, logger="supervisor_core"), supervisor.managed_session() as sess:
        wait_until(lambda: names(logdir))
        assert not supervisor.should_stop()
        sess.run(model.train_op)
    saves = [record for record in read_telemetry(logdir) if record.kind == "checkpoint"]
    message = str(fault()).split("\n")[0]
    assert [message in (record.error or "") for record in saves[:3]] == [True, True, False]
    assert saves[2].path == f"{logdir}/model.ckpt-0"
    assert message in caplog.text
    assert names(logdir) == ["model.ckpt-0", "model.ckpt-1"]


def test_too_many_failures_are_an_error_if_so_wished(ours: Any, build_model: Callable[..., Any], logdir: str) -> None:
    """One failure more than `Options.max_save_failures` stops the run, with the last cause."""
    build_model()
    saver = FaultySaver(*[disk_full() for _ in range(10)])
    supervisor = ours.Supervisor(logdir=logdir, saver=saver, options=Options(max_save_failures=2, **QUICK))
    with pytest.raises(SaveFailedError, match="No space left on device"), supervisor.managed_session():
        supervisor.wait_for_stop()
    assert len(saver.faults) == 7


def test_a_mistake_in_a_save_stops_training(ours: Any, build_model: Callable[..., Any], logdir: str) -> None:
    """What is no fault of the world stops the run at once, as the original promises."""
    build_model()
    supervisor = ours.Supervisor(logdir=logdir, saver=FaultySaver(KeyError("a mistake")))
    with pytest.raises(KeyError, match="a mistake"), supervisor.managed_session():
        supervisor.wait_for_stop()


def test_the_step_just_restored_is_not_saved_again(
    ours: Any, build_model: Callable[..., Any], train: Any, logdir: str, read_telemetry: Any, wait_until: Any
) -> None:
    """A step that is on disk and whole is not written once more, at the start or at the end."""
    train(steps=3)
    before = {path.name: path.stat().st_mtime_ns for path in Path(logdir).glob("model.ckpt-3*")}
    assert len(before) == 3
    build_model()
    supervisor = ours.Supervisor(logdir=logdir, save_model_secs=0.01)

    def checkpoint_ticks() -> int:
        return sum(item.ticks for item in supervisor.run_status().threads if item.name == "checkpoint")

    with supervisor.managed_session():
        wait_until(lambda: checkpoint_ticks() >= 3)
    assert {path.name: path.stat().st_mtime_ns for path in Path(logdir).glob("model.ckpt-3*")} == before
    records = read_telemetry(logdir)
    assert [record for record in records if record.kind == "checkpoint" and record.session == records[-1].session] == []


def test_a_global_step_that_never_rises_is_said_loudly(
    train: Any, logdir: str, wait_until: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Checkpoints that would all be model.ckpt-0 bring a warning that says what to check."""

    def idle(supervisor: Any, sess: Any, model: Any) -> None:
        def look() -> bool:
            sess.run(model.weight.initializer)
            return "global_step" in caplog.text

        wait_until(look)

    with caplog.at_level(logging.WARNING, logger="supervisor_core"):
        train(body=idle, save_model_secs=0.01)
    [warning] = {record.getMessage() for record in caplog.records if "global_step" in record.getMessage()}
    assert re.search(r"minimize|global_step=", warning)


def test_checkpoints_go_on_where_the_events_disk_hangs(
    ours: Any, build_model: Callable[..., Any], logdir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk of the events' own that does not answer costs their records: checkpoints are saved as before, and the
    session ends, with its final one."""
    monkeypatch.setattr(recorder, "SYNC_SECS", 0.1)
    monkeypatch.setattr(deadline, "RECORDS_SECS", 0.1)
    model = build_model()
    supervisor = ours.Supervisor(logdir=logdir, save_model_secs=9999, save_summaries_secs=0, stop_grace_secs=0.1)
    sess = supervisor.prepare_or_wait_for_session()
    supervisor.save_checkpoint()
    answers, sync = threading.Event(), EventsFile.sync

    def hang(self: Any) -> None:
        answers.wait()
        sync(self)

    monkeypatch.setattr(EventsFile, "sync", hang)
    try:
        for _ in range(2):
            sess.run(model.train_op)
            assert os.path.exists(supervisor.save_checkpoint() + ".index")
        sess.run(model.train_op)
        supervisor.stop()
        assert v1.train.latest_checkpoint(logdir) == f"{logdir}/model.ckpt-3"
    finally:
        answers.set()

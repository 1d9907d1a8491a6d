"""`MonitoredTrainingSession`: what it saves, restores, writes and refuses."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import supervisor_core
from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.checkpoint.store import StagedCheckpoint
from supervisor_core.tf1.monitored import checkpoint_hook

v1 = tf.compat.v1
START, STOP, CHECKPOINT = v1.SessionLog.START, v1.SessionLog.STOP, v1.SessionLog.CHECKPOINT
OPTIONS = supervisor_core.Options


def records(read_telemetry: Any, logdir: str, kind: str) -> list[Any]:
    """Return a logdir's telemetry records of a kind."""
    return [record for record in read_telemetry(logdir) if record.kind == kind]


def test_the_order_of_hooks_is_the_originals(train: Any, recorder: Any, logdir: str) -> None:
    """Contract, item 31: chief-only hooks, step counter, summaries, checkpoints, the user's."""
    v1.train.get_or_create_global_step()
    chief, own = recorder("chief"), recorder("own")
    with train.MonitoredTrainingSession(checkpoint_dir=logdir, chief_only_hooks=[chief], hooks=[own]) as sess:
        hooks = list(sess._hooks)
    kinds = [v1.train.StepCounterHook, v1.train.SummarySaverHook, v1.train.CheckpointSaverHook]
    assert (hooks[0], hooks[-1]) == (chief, own)
    assert [isinstance(hook, kind) for hook, kind in zip(hooks[1:-1], kinds, strict=True)] == [True] * 3


@pytest.mark.parametrize(("arguments", "expected"), [
    ({}, [0, 25]),
    ({"save_checkpoint_steps": 10}, [0, 10, 20, 25]),
    ({"save_checkpoint_secs": 9999}, [0, 25]),
    ({"save_checkpoint_steps": 10, "save_checkpoint_secs": None}, [0, 10, 20, 25]),
])  # fmt: skip
def test_checkpoints_are_of_the_steps_that_were_asked_for(
    train: Any, build_model: Any, logdir: str, saved_steps: Any, arguments: dict[str, Any], expected: list[int]
) -> None:
    """The same steps under the original and ours: at the start, every ten, at the end; inside is that step."""
    model = build_model()
    with train.MonitoredTrainingSession(checkpoint_dir=logdir, **arguments) as sess:
        for _ in range(25):
            sess.run(model.train_op)
    assert saved_steps(logdir) == expected
    for step in expected:
        stored = tf.train.load_checkpoint(f"{logdir}/model.ckpt-{step}")
        assert (stored.get_tensor("global_step"), stored.get_tensor("weight")) == (step, step)


@pytest.mark.parametrize(
    "arguments", [{"save_checkpoint_secs": None, "save_checkpoint_steps": None}, {"save_checkpoint_secs": 0}]
)
def test_no_checkpoints_where_none_are_wanted(train: Any, build_model: Any, logdir: str, arguments: Any) -> None:
    """None, or 0, is no checkpoint, not at the end either."""
    model = build_model()
    with train.MonitoredTrainingSession(checkpoint_dir=logdir, **arguments) as sess:
        sess.run(model.train_op)
    assert v1.train.latest_checkpoint(logdir) is None


def test_it_resumes_where_it_stopped(run_steps: Any, logdir: str, read_telemetry: Any) -> None:
    """The next session goes on from the last step of the one before, and says so."""
    assert run_steps(7) == (0, 7)
    assert run_steps(5) == (7, 12)
    first, second = records(read_telemetry, logdir, "session")
    assert (first.facade, first.attempt, first.restored_step) == ("MonitoredTrainingSession", 1, None)
    assert (second.attempt, second.restored_step, second.previous_outcome) == (2, 7, "completed")


def test_one_events_file_has_the_whole_session(
    run_steps: Any, logdir: str, read_events: Any, read_telemetry: Any, session_logs: Any
) -> None:
    """START, each CHECKPOINT with the path that exists, STOP; graph and meta graph once; records of the whole run."""
    run_steps(25, save_checkpoint_steps=10)
    [events] = read_events(logdir)
    assert session_logs(logdir) == [(START, 0), *[(CHECKPOINT, step) for step in (0, 10, 20, 25)], (STOP, 0)]
    paths = [event.session_log.checkpoint_path for event in events if event.session_log.status == CHECKPOINT]
    assert paths == [f"{logdir}/model.ckpt-{step}" for step in (0, 10, 20, 25)]
    assert sum(bool(event.graph_def) for event in events) == sum(bool(event.meta_graph_def) for event in events) == 1
    saves = records(read_telemetry, logdir, "checkpoint")
    assert [(save.step, save.trigger) for save in saves] == [(0, "timer"), (10, "timer"), (20, "timer"), (25, "final")]
    assert all(save.consistent and save.verified for save in saves)
    assert {beat.phase for beat in records(read_telemetry, logdir, "heartbeat")} >= {"training", "stopping"}
    [stop] = records(read_telemetry, logdir, "stop")
    assert (stop.reason, stop.step, stop.steps, stop.final_checkpoint_step) == ("completed", 25, 25, 25)
    assert os.path.exists(f"{logdir}/graph.pbtxt") and os.path.exists(f"{logdir}/model.ckpt-25.meta")


def test_a_second_monitored_chief_is_refused(run_steps: Any, logdir: str) -> None:
    """While one saves to a directory, another is refused, a Supervisor too; one that only reads is not."""

    def body(sess: Any, model: Any) -> None:
        with pytest.raises(LogdirInUseError, match="this very process"):
            run_steps(1)
        with tf.Graph().as_default(), pytest.raises(LogdirInUseError):
            v1.train.get_or_create_global_step()
            with supervisor_core.Supervisor(logdir=logdir).managed_session():
                pytest.fail("two chiefs")
        with tf.Graph().as_default():
            step = v1.train.get_or_create_global_step()
            with supervisor_core.SingularMonitoredSession(checkpoint_dir=logdir) as reader:
                assert reader.run(step) == 0

    run_steps(2, body)


def test_an_error_is_saved_if_asked(run_steps: Any, logdir: str, saved_steps: Any) -> None:
    """With `Options.save_on_error` the last step is on disk although the loop failed; the error is raised as before."""
    with pytest.raises(ValueError, match="of the loop"):
        run_steps(
            3, lambda sess, model: (_ for _ in ()).throw(ValueError("of the loop")), options=OPTIONS(save_on_error=True)
        )
    assert saved_steps(logdir) == [0, 3]


def test_it_runs_without_a_global_step(logdir: str, caplog: pytest.LogCaptureFixture, read_events: Any) -> None:
    """Seed 004's error: checkpoints and summaries without a step, no rates, and one line that says so."""
    weight = v1.Variable(1.0, name="weight")
    v1.summary.scalar("w", weight)
    bump = weight.assign_add(1.0).op
    with supervisor_core.MonitoredTrainingSession(
        checkpoint_dir=logdir, save_summaries_steps=2, log_step_count_steps=2
    ) as sess:
        for _ in range(5):
            sess.run(bump)
    assert v1.train.latest_checkpoint(logdir) == f"{logdir}/model.ckpt"
    assert tf.train.load_checkpoint(logdir).get_tensor("weight") == 6.0
    tags = [
        value.tag for file in read_events(logdir, telemetry=False) for event in file for value in event.summary.value
    ]
    assert tags == ["w", "w", "w"]
    assert len([line for line in caplog.messages if "no global step" in line]) == 1


def test_no_nan_is_saved(logdir: str, saved_steps: Any, read_telemetry: Any) -> None:
    """With a NaN hook no checkpoint of a model that is NaN becomes the newest: not by steps, not at the end."""
    step = v1.train.get_or_create_global_step()
    weight = v1.Variable(1.0, name="weight")
    x = v1.placeholder(tf.float32, [])
    loss = weight.assign(x) * 1.0
    with tf.control_dependencies([loss]):
        train_op = step.assign_add(1).op
    hook = supervisor_core.NanTensorHook(loss, fail_on_nan_loss=False)
    with supervisor_core.MonitoredTrainingSession(checkpoint_dir=logdir, save_checkpoint_steps=1, hooks=[hook]) as sess:
        sess.run(train_op, {x: 1.0})
        sess.run(train_op, {x: np.nan})
        assert sess.should_stop()
    assert saved_steps(logdir) == [0, 1]
    refused = [save for save in records(read_telemetry, logdir, "checkpoint") if save.error]
    assert refused and all("watched loss" in save.error for save in refused)


def test_a_summary_directory_of_its_own(run_steps: Any, tmp_path: Path, read_events: Any) -> None:
    """Events go to summary_dir, checkpoints to checkpoint_dir."""
    run_steps(3, checkpoint_dir=str(tmp_path / "ckpt"), summary_dir=str(tmp_path / "events"))
    assert read_events(tmp_path / "ckpt") == []
    assert len(read_events(tmp_path / "events")) == 1
    assert v1.train.latest_checkpoint(str(tmp_path / "ckpt")) == str(tmp_path / "ckpt" / "model.ckpt-3")


def test_no_graph_is_written_if_not_wanted(run_steps: Any, logdir: str) -> None:
    """save_graph_def=False: neither graph.pbtxt nor .meta."""
    run_steps(1, save_graph_def=False)
    assert [name for name in os.listdir(logdir) if name.endswith((".meta", ".pbtxt"))] == []


def test_a_worker_writes_nothing(build_model: Any, logdir: str, recorder: Any) -> None:
    """A session that is no chief's waits for the chief's model, and calls no chief-only hooks."""
    server = v1.train.Server.create_local_server()
    with tf.device("/cpu:0"):
        model = build_model()
    with supervisor_core.MonitoredTrainingSession(server.target, checkpoint_dir=logdir) as chief:
        chief.run(model.train_op)
        before = list(Path(logdir).glob("*tfevents*"))
        with tf.Graph().as_default():
            with tf.device("/cpu:0"):
                same = build_model()
            hook = recorder()
            with supervisor_core.MonitoredTrainingSession(
                server.target, is_chief=False, checkpoint_dir=logdir, chief_only_hooks=[hook]
            ) as worker:
                assert worker.run(same.global_step) == 1
            assert hook.notes == []
        assert list(Path(logdir).glob("*tfevents*")) == before


def test_everybody_who_asks_for_the_logdirs_writer_gets_the_one(run_steps: Any, logdir: str, read_events: Any) -> None:
    """TensorFlow's own hooks and `FileWriterCache` write to the run's events file; then the cache is as before."""
    cache: Callable[[str], Any] = v1.summary.FileWriterCache.get
    counter = v1.train.StepCounterHook(every_n_steps=2, output_dir=logdir)

    def body(sess: Any, model: Any) -> None:
        cache(logdir).add_session_log(v1.SessionLog(status=START), 77)

    run_steps(8, body, hooks=[counter], log_step_count_steps=None)
    [events] = read_events(logdir, telemetry=False)
    assert [event.step for event in events if event.session_log.status == START] == [0, 77]
    assert "global_step/sec" in [value.tag for event in events for value in event.summary.value]
    assert logdir not in v1.summary.FileWriterCache._cache


def test_both_intervals_at_once_are_refused(train: Any, build_model: Any, logdir: str) -> None:
    """As by the original: on steps, or on the clock."""
    build_model()
    with pytest.raises(ValueError, match="Can not provide both every_secs and every_steps"):
        train.MonitoredTrainingSession(checkpoint_dir=logdir, save_checkpoint_secs=1, save_checkpoint_steps=1)


def test_a_restored_step_is_not_saved_again(run_steps: Any, build_model: Any, logdir: str, read_telemetry: Any) -> None:
    """A session that resumes, and does nothing, writes no checkpoint."""
    run_steps(3)
    before = {name: os.stat(f"{logdir}/{name}").st_mtime_ns for name in os.listdir(logdir) if "ckpt" in name}
    with tf.Graph().as_default():
        build_model()
        with supervisor_core.MonitoredTrainingSession(checkpoint_dir=logdir):
            pass
    assert {name: os.stat(f"{logdir}/{name}").st_mtime_ns for name in os.listdir(logdir) if "ckpt" in name} == before
    assert [save.step for save in records(read_telemetry, logdir, "checkpoint")] == [0, 3]


def test_two_hooks_that_save_to_one_place(
    build_model: Any, logdir: str, saved_steps: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's own hook and one of the program's, with one saver, beside training: one saves at a time, and what
    is kept is what the saver says."""
    monkeypatch.setattr(checkpoint_hook, "SMALL_BYTES", 0)  # so that no save keeps training waiting
    inside, overlapped = threading.Lock(), []
    publish = StagedCheckpoint.publish

    def noted(self: Any, *arguments: Any) -> str:
        overlapped.append(not inside.acquire(blocking=False))
        try:
            return publish(self, *arguments)
        finally:
            if not overlapped[-1]:
                inside.release()

    monkeypatch.setattr(StagedCheckpoint, "publish", noted)
    model = build_model()
    scaffold = v1.train.Scaffold(saver=v1.train.Saver(max_to_keep=3))
    hook = supervisor_core.CheckpointSaverHook(logdir, save_steps=2, scaffold=scaffold)
    with supervisor_core.MonitoredTrainingSession(
        checkpoint_dir=logdir, save_checkpoint_steps=3, scaffold=scaffold, hooks=[hook]
    ) as sess:
        for _ in range(40):
            sess.run(model.train_op)
    assert len(overlapped) > 3 and not any(overlapped)
    indexes = {name for name in os.listdir(logdir) if name.startswith("model.ckpt") and ".index" in name}
    assert indexes == {f"model.ckpt-{step}.index" for step in saved_steps(logdir)}
    assert len(indexes) == 3 and saved_steps(logdir)[-1] == 40
    assert not [name for name in os.listdir(logdir) if "_temp_" in name or ".damaged" in name]


@pytest.mark.parametrize("place", ["init_fn", "after_create_session", "before_run", "after_run", "end"])
@pytest.mark.parametrize("within", [True, False])
def test_an_op_added_too_late_is_explained(tmp_path: Path, place: str, within: bool) -> None:
    """Wherever the program adds it after the graph is finalized, in a block or not."""

    def add(*_: Any) -> None:
        tf.add(1.0, 1.0, name="too_late")

    class Adds(v1.train.SessionRunHook):
        """Adds it in one of its methods."""

    if place != "init_fn":
        setattr(Adds, place, add)
    with (
        tf.Graph().as_default(),
        pytest.raises(RuntimeError, match=r"was being added at .*test_training_session.*begin\(\) of a hook"),
    ):
        step = v1.train.get_or_create_global_step()
        scaffold = v1.train.Scaffold(init_fn=add if place == "init_fn" else None)
        session = supervisor_core.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), scaffold=scaffold, hooks=[Adds()]
        )
        with session if within else nullcontext():
            session.run(step)
        if not within:
            session.close()


def test_an_op_added_in_init_fn_of_a_supervisor_is_explained(tmp_path: Path) -> None:
    """Before the training's own block has begun."""
    with tf.Graph().as_default():
        v1.train.get_or_create_global_step()
        supervisor = supervisor_core.Supervisor(
            logdir=str(tmp_path), init_fn=lambda sess: tf.add(1.0, 1.0, name="too_late")
        )
        with (
            pytest.raises(RuntimeError, match="was being added at"),
            supervisor.managed_session(),
        ):
            pass

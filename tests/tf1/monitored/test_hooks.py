"""The hooks that take the place of TensorFlow's own: what they share with those, and what they do better."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import supervisor_core
from supervisor_core.tf1 import services
from supervisor_core.tf1.monitored import hooks

v1 = tf.compat.v1


class Listener(v1.train.CheckpointSaverListener):  # type: ignore[misc]
    """Notes when it is called, at which step, and which checkpoint is on disk then."""

    def __init__(self, directory: str, stop_at: int | None = None) -> None:
        self.notes: list[Any] = []
        self._directory, self._stop_at = directory, stop_at

    def _note(self, what: str, step: Any) -> None:
        newest = v1.train.latest_checkpoint(self._directory)
        self.notes.append((what, int(step), newest and int(newest.rpartition("-")[2])))

    def begin(self) -> None:
        self.notes.append("begin")

    def before_save(self, session: Any, global_step_value: Any) -> None:
        self._note("before", global_step_value)

    def after_save(self, session: Any, global_step_value: Any) -> bool:
        self._note("after", global_step_value)
        return global_step_value == self._stop_at

    def end(self, session: Any, global_step_value: Any) -> None:
        self._note("end", global_step_value)


def train_with(train: Any, model: Any, hook: Any, steps: int, directory: str | None = None) -> int:
    """Train with a hook; return the number of steps when the loop ended."""
    with train.MonitoredSession(train.ChiefSessionCreator(checkpoint_dir=directory), hooks=[hook]) as sess:
        done = 0
        while done < steps and not sess.should_stop():
            sess.run(model.train_op)
            done += 1
    return done


def test_listeners_are_called_around_each_save(train: Any, build_model: Any, logdir: str) -> None:
    """As by the original: after_save finds the checkpoint on the disk; `end` gets the last step."""
    model, listener = build_model(), Listener(logdir)
    hook = train.CheckpointSaverHook(logdir, save_steps=2, scaffold=v1.train.Scaffold(), listeners=[listener])
    with train.MonitoredSession(train.ChiefSessionCreator(hook._scaffold), hooks=[hook]) as sess:
        for _ in range(3):
            sess.run(model.train_op)
    assert listener.notes == [
        "begin", ("before", 0, None), ("after", 0, 0), ("before", 2, 0), ("after", 2, 2), ("before", 3, 2),
        ("after", 3, 3), ("end", 3, 3)
    ]  # fmt: skip


def test_a_listener_may_stop_the_loop(train: Any, build_model: Any, logdir: str) -> None:
    """after_save that returns True ends the loop after that very step."""
    model, listener = build_model(), Listener(logdir, stop_at=4)
    hook = train.CheckpointSaverHook(logdir, save_steps=2, saver=v1.train.Saver(), listeners=[listener])
    assert train_with(train, model, hook, 99) == 4


@pytest.fixture
def scalars(read_events: Any, logdir: str) -> Callable[[str], list[tuple[int, float]]]:
    """Returns a function that reads steps and values of a tag."""

    def read(tag: str) -> list[tuple[int, float]]:
        events = [event for file in read_events(logdir, telemetry=False) for event in file]
        values = [(event.step, value) for event in events for value in event.summary.value if value.tag == tag]
        return [(step, value.simple_value) for step, value in values]

    return read


def test_summaries_come_with_the_runs_that_train(
    train: Any,
    build_model: Any,
    logdir: str,
    scalars: Any,
    recorder: Any,
    wait_until: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the steps of the original; the summary op runs with the step, so no input is used up for it."""
    model = build_model()
    example = v1.data.make_one_shot_iterator(tf.data.Dataset.range(100)).get_next()
    v1.summary.scalar("example", example)
    v1.summary.scalar("weight", model.weight)
    train_op = tf.group(model.train_op, example)
    seen = recorder(request=v1.train.SessionRunArgs(example))
    examples = []
    seen.act["after_run"] = lambda context, values: examples.append(int(values.results))
    monkeypatch.setattr(services, "READER_SECS", 3600.0)  # a reading in the midst of a step may be one ahead
    with train.MonitoredTrainingSession(checkpoint_dir=logdir, save_summaries_steps=3, hooks=[seen]) as sess:
        if train is supervisor_core:
            readers = lambda: (item for item in sess.run_status().threads if item.name == "step_reader")  # noqa: E731
            wait_until(lambda: any(item.last_tick_secs for item in readers()))
        for _ in range(8):
            sess.run(train_op)
    v1.summary.FileWriterCache.clear()
    assert examples == list(range(8))
    found = scalars("example")
    assert found[0][0] == 1 and all(value == step - 1 for step, value in found)
    if train is supervisor_core:  # the original's steps depend on what its reading of the step comes before
        assert [step for step, _ in found] == [1, 4, 7]


def test_rates_come_with_the_second_reading(train: Any, build_model: Any, logdir: str, scalars: Any) -> None:
    """At the steps of the original; no rate before there are two readings."""
    model = build_model()
    with train.MonitoredTrainingSession(checkpoint_dir=logdir, log_step_count_steps=3) as sess:
        for _ in range(8):
            sess.run(model.train_op)
    v1.summary.FileWriterCache.clear()
    found = scalars("global_step/sec")
    assert [step for step, _ in found] == [4, 7] and all(rate > 0 for _, rate in found)


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("CheckpointSaverHook", {"checkpoint_dir": "a"}, "every_secs"),
        ("CheckpointSaverHook", {"checkpoint_dir": "a", "save_secs": 1, "save_steps": 1}, "every_secs"),
        ("CheckpointSaverHook", {"checkpoint_dir": "a", "saver": 1, "scaffold": 1}, "both saver and scaffold"),
        ("StepCounterHook", {"every_n_steps": 1, "every_n_secs": 1}, "every_n_steps and every_n_secs"),
        ("SummarySaverHook", {"save_steps": 1}, "scaffold or summary_op"),
        ("SummarySaverHook", {"summary_op": 1}, "every_secs"),
        ("StopAtStepHook", {}, "num_steps or last_step"),
        ("StopAtStepHook", {"num_steps": 1, "last_step": 1}, "num_steps or last_step"),
    ],
)
def test_wrong_arguments_are_refused(train: Any, name: str, arguments: Any, says: str) -> None:
    """By both, in the same words."""
    with pytest.raises(ValueError, match=says):
        getattr(train, name)(**arguments)


@pytest.mark.parametrize(("arguments", "steps"), [({"num_steps": 3}, 3), ({"last_step": 3}, 3), ({"last_step": 0}, 1)])
@pytest.mark.parametrize("resource", [False, True])
def test_stop_at_step_is_exact(build_model: Any, logdir: str, arguments: Any, steps: int, resource: bool) -> None:
    """Not one step more; a step that is reached already ends the loop after one run."""
    model = build_model(resource=resource)
    hook = supervisor_core.StopAtStepHook(**arguments)
    assert train_with(supervisor_core, model, hook, 99) == steps


def test_a_waiter_waits_for_the_step(build_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run comes when others have brought the step so far."""
    monkeypatch.setattr(hooks, "POLL_SECS", 0.001)
    model = build_model()
    go_on = model.global_step.assign(20)
    raw: list[Any] = []
    waiting = threading.Event()

    class Peek(v1.train.SessionRunHook):  # type: ignore[misc]
        def after_create_session(self, session: Any, coord: Any) -> None:
            raw.append(session)

        def before_run(self, run_context: Any) -> None:
            waiting.set()

    def others() -> None:
        waiting.wait(30)
        raw[0].run(go_on.op)

    thread = threading.Thread(target=others)
    thread.start()
    with supervisor_core.MonitoredSession(hooks=[Peek(), supervisor_core.GlobalStepWaiterHook(20)]) as sess:
        assert sess.run(model.global_step) == 20
        sess.run(model.train_op)
    thread.join()


def test_a_waiter_heeds_a_stop(build_model: Any, recorder: Any) -> None:
    """A stop while it waits ends the loop."""
    model = build_model()
    stop = recorder()
    coords: list[Any] = []
    stop.act["after_create_session"] = lambda session, coord: coords.append(coord)
    stop.act["before_run"] = lambda context: coords[0].request_stop()
    with supervisor_core.MonitoredSession(hooks=[stop, supervisor_core.GlobalStepWaiterHook(20)]) as sess:
        sess.run(model.global_step)
        assert sess.should_stop()


def test_what_is_reused_works_here(train: Any, build_model: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Feeds by function, final ops, logged tensors, NaN: TensorFlow's own, in both sessions."""
    caplog.set_level("INFO", logger="tensorflow")
    model = build_model()
    x = v1.placeholder(tf.float32, [], name="x")
    values = iter([1.0, 2.0, float("nan")])
    final = train.FinalOpsHook(model.global_step)
    hooks = [
        train.FeedFnHook(lambda: {x: next(values)}),
        train.LoggingTensorHook({"fed": x}, every_n_iter=1),
        train.NanTensorHook(x, fail_on_nan_loss=False),
        final,
    ]
    with train.MonitoredSession(hooks=hooks) as sess:
        while not sess.should_stop():
            sess.run(model.train_op)
    assert final.final_ops_values == 3
    assert len([line for line in caplog.messages if "fed = " in line]) == 3


def test_a_programs_own_subclass_sees_every_run(train: Any, build_model: Any, logdir: str, saved_steps: Any) -> None:
    """What a subclass does with each run is done, whatever the class itself would have slept through."""
    model = build_model()
    seen: list[str] = []

    class Saver(train.CheckpointSaverHook):  # type: ignore[misc,name-defined]
        def after_run(self, run_context: Any, run_values: Any) -> None:
            seen.append("saver")
            super().after_run(run_context, run_values)

    class Counter(train.StepCounterHook):  # type: ignore[misc,name-defined]
        def _log_and_record(self, elapsed_steps: int, elapsed_time: float, global_step: int) -> None:
            seen.append(f"{elapsed_steps} steps")

    hooks = [Saver(logdir, save_secs=9999, saver=v1.train.Saver()), Counter(every_n_steps=2)]
    with train.MonitoredSession(hooks=hooks) as sess:
        for _ in range(3):
            sess.run(model.train_op)
    assert seen.count("saver") == 3
    assert [what for what in seen if what != "saver"] == ["2 steps"]
    assert saved_steps(logdir) == [0, 3]


def test_every_name_of_tensorflows_is_here() -> None:
    """Programs that say ``train.X`` find each monitored session, creator and hook under its name."""
    names = [name for name in dir(v1.train) if name.endswith(("Hook", "SessionCreator")) or "MonitoredSession" in name]
    assert [name for name in names if not hasattr(supervisor_core, name)] == []


def test_a_nan_that_fails(train: Any, build_model: Any) -> None:
    """Raises the error that programs catch."""
    loss = tf.constant(np.nan)
    with (
        pytest.raises(train.NanLossDuringTrainingError),
        train.MonitoredSession(hooks=[train.NanTensorHook(loss)]) as sess,
    ):
        sess.run(loss)


def test_stop_at_step_needs_a_global_step() -> None:
    """With the original's words."""
    with pytest.raises(RuntimeError, match="Global step should be created to use StopAtStepHook"):
        supervisor_core.MonitoredSession(hooks=[supervisor_core.StopAtStepHook(last_step=1)])

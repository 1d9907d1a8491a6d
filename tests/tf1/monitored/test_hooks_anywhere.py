"""Our hooks in any session that drives hooks: TensorFlow's own, one that a program has written, and ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.platform import tf_logging

import supervisor_core
from supervisor_core.base.errors import DamagedCheckpointError
from supervisor_core.checkpoint import bundle
from supervisor_core.tf1.global_step import step_tensor

v1 = tf.compat.v1

Run = Callable[[Any], Any]
Open = Callable[[Sequence[Any]], AbstractContextManager[Run]]


@contextmanager
def in_tensorflows(hooks: Sequence[Any]) -> Iterator[Run]:
    """TensorFlow's own monitored session."""
    with v1.train.MonitoredSession(hooks=hooks) as sess:
        yield sess.run


@contextmanager
def in_ours(hooks: Sequence[Any]) -> Iterator[Run]:
    """Our monitored session."""
    with supervisor_core.MonitoredSession(hooks=hooks) as sess:
        yield sess.run


@contextmanager
def in_a_programs_own(hooks: Sequence[Any]) -> Iterator[Run]:
    """A loop that calls hooks as their interface says, and no more."""
    for hook in hooks:
        hook.begin()
    scaffold = v1.train.Scaffold()
    scaffold.finalize()
    with v1.Session() as sess:
        sess.run(scaffold.init_op)
        coord = v1.train.Coordinator()
        for hook in hooks:
            hook.after_create_session(sess, coord)
        yield lambda fetches: _run_hooked(sess, hooks, fetches)
        for hook in hooks:
            hook.end(sess)


def _run_hooked(sess: Any, hooks: Sequence[Any], fetches: Any) -> Any:
    context = v1.train.SessionRunContext(v1.train.SessionRunArgs(fetches), sess)
    requests = {hook: hook.before_run(context) for hook in hooks}
    wanted = {hook: each.fetches for hook, each in requests.items() if each is not None and each.fetches is not None}
    options, metadata = v1.RunOptions(), v1.RunMetadata()
    for each in requests.values():
        if each is not None and each.options is not None:
            options.MergeFrom(each.options)
    values = sess.run({"caller": fetches, **wanted}, options=options, run_metadata=metadata)
    for hook in hooks:
        hook.after_run(context, v1.train.SessionRunValues(values.get(hook), options, metadata))
    if context.stop_requested:
        raise StopIteration
    return values["caller"]


ANYWHERE = [in_tensorflows, in_a_programs_own, in_ours]
ELSEWHERE = [in_tensorflows, in_a_programs_own]


def each(kinds: list[Any]) -> Any:
    """Runs a test once with each kind of session."""
    return pytest.mark.parametrize("session", kinds, ids=lambda kind: str(kind.__name__))


@pytest.fixture
def train_op() -> Any:
    """Raises the step by one, after whatever reads it in the same run."""
    step = v1.train.get_or_create_global_step()
    with tf.control_dependencies([step_tensor(v1.get_default_graph())]):
        return step.assign_add(1).op


@pytest.fixture(autouse=True)
def _empty_writer_cache() -> Iterator[None]:
    yield
    v1.summary.FileWriterCache.clear()


class Notes(v1.train.CheckpointSaverListener):  # type: ignore[misc]
    """Notes each call, with its step."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def begin(self) -> None:
        self.calls.append(("begin", 0))

    def before_save(self, session: Any, global_step_value: Any) -> None:
        self.calls.append(("before", int(global_step_value)))

    def after_save(self, session: Any, global_step_value: Any) -> None:
        self.calls.append(("after", int(global_step_value)))

    def end(self, session: Any, global_step_value: Any) -> None:
        self.calls.append(("end", int(global_step_value)))


def scalars(read_events: Any, logdir: str, tag: str) -> list[int]:
    """The steps at which a tag has values."""
    v1.summary.FileWriterCache.clear()
    events = [event for file in read_events(logdir, telemetry=False) for event in file]
    return [event.step for event in events for value in event.summary.value if value.tag == tag]


@each(ANYWHERE)
def test_checkpoints_in_any_session(session: Open, train_op: Any, logdir: str, saved_steps: Any) -> None:
    """At the session's creation, at an interval of steps, and at its end, with `.meta` and `graph.pbtxt`."""
    hook = supervisor_core.CheckpointSaverHook(logdir, save_steps=3, saver=v1.train.Saver(max_to_keep=9))
    with session([hook]) as run:
        for _ in range(7):
            run(train_op)
    assert saved_steps(logdir) == [0, 3, 6, 7]
    assert os.path.exists(f"{logdir}/graph.pbtxt") and os.path.exists(f"{logdir}/model.ckpt-7.meta")


@each(ANYWHERE)
def test_rates_and_summaries_in_any_session(session: Open, train_op: Any, logdir: str, read_events: Any) -> None:
    """At the steps of the original, in one events file."""
    summary_op = v1.summary.scalar("one", tf.constant(1.0))
    hooks = [
        supervisor_core.StepCounterHook(every_n_steps=2, output_dir=logdir),
        supervisor_core.SummarySaverHook(save_steps=3, output_dir=logdir, summary_op=summary_op),
    ]
    with session(hooks) as run:
        for _ in range(9):
            run(train_op)
    assert scalars(read_events, logdir, "global_step/sec") == [3, 5, 7, 9]
    assert scalars(read_events, logdir, "one") == [1, 4, 7]
    assert len(read_events(logdir)) == 1


@each(ELSEWHERE)
@pytest.mark.parametrize("name", ["CheckpointSaverHook", "StepCounterHook", "SummarySaverHook", "StopAtStepHook"])
def test_without_a_global_step_the_original_refuses(session: Open, name: str, logdir: str) -> None:
    """And so do our hooks in its session, in its words; in ours they count runs."""
    arguments: dict[str, Any] = {
        "CheckpointSaverHook": {"checkpoint_dir": logdir, "save_steps": 1},
        "SummarySaverHook": {"save_steps": 1, "summary_op": tf.constant(b"")},
        "StopAtStepHook": {"last_step": 1},
    }.get(name, {})
    with pytest.raises(RuntimeError, match=f"Global step should be created to use {name}"):
        session([getattr(supervisor_core, name)(**arguments)]).__enter__()


def trained(train: Any, hooks_of: Any, logdir: str, steps: int) -> list[tuple[str, int]]:
    """Train more steps; return what a listener was called with."""
    with tf.Graph().as_default():
        op = v1.assign_add(v1.train.get_or_create_global_step(), 1).op
        notes, scaffold = Notes(), v1.train.Scaffold()
        hook = hooks_of.CheckpointSaverHook(logdir, save_steps=2, scaffold=scaffold, listeners=[notes])
        with train.MonitoredSession(train.ChiefSessionCreator(scaffold, checkpoint_dir=logdir), hooks=[hook]) as sess:
            for _ in range(steps):
                sess.run(op)
    return notes.calls


def test_listeners_are_called_as_often_as_by_the_original(tmp_path: Path) -> None:
    """Also where nothing has to be written: a step that was just restored, and a last step that was saved already."""
    for steps in (3, 0, 1, 4):
        original = trained(v1.train, v1.train, str(tmp_path / "original"), steps)
        assert trained(v1.train, supervisor_core, str(tmp_path / "in TensorFlow's"), steps) == original
        assert trained(supervisor_core, supervisor_core, str(tmp_path / "in ours"), steps) == original


@each(ELSEWHERE)
def test_a_plain_save_is_read_back_before_it_counts(
    session: Open, train_op: Any, logdir: str, monkeypatch: pytest.MonkeyPatch, saved_steps: Any
) -> None:
    """A checkpoint that the disk has not kept is an error, and the one before it stays the newest."""
    verify = bundle.verify

    def damaged(path: str, **arguments: Any) -> Any:
        if path.endswith("-2"):
            raise DamagedCheckpointError("a bit has flipped")
        return verify(path, **arguments)

    monkeypatch.setattr(bundle, "verify", damaged)
    hook = supervisor_core.CheckpointSaverHook(logdir, save_steps=1, saver=v1.train.Saver(max_to_keep=9))
    with pytest.raises(DamagedCheckpointError), session([hook]) as run:
        for _ in range(3):
            run(train_op)
    assert saved_steps(logdir) == [0, 1]
    assert not [name for name in os.listdir(logdir) if "-2" in name or "_temp" in name]


@each(ELSEWHERE)
def test_a_step_that_does_not_rise_is_warned_of(session: Open, train_op: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the function of TensorFlow's that programs and tests replace, at most five times."""
    seen: list[Any] = []
    monkeypatch.setattr(tf_logging, "log_first_n", lambda *arguments: seen.append(arguments))
    with session([supervisor_core.StepCounterHook()]) as run:
        run(train_op)
        assert seen == []
        run(tf.compat.v1.train.get_global_step())
        run(tf.compat.v1.train.get_global_step())
    level, text, times, step = seen[-1]
    assert (level, times, step) == (v1.logging.WARN, 5, 1) and "has not been increased" in text


@each(ANYWHERE)
def test_what_a_subclass_overrides_is_called(session: Open, train_op: Any, logdir: str) -> None:
    """The original's protected methods: ``_save``, ``_get_saver``, ``_get_summary_op``."""
    calls: list[str] = []
    saver = v1.train.Saver()
    op = v1.summary.scalar("one", tf.constant(1.0))

    class Saver(supervisor_core.CheckpointSaverHook):
        def _get_saver(self) -> Any:
            calls.append("saver")
            return saver

        def _save(self, session: Any, step: int) -> bool:
            calls.append(f"save {step}")
            return super()._save(session, step)

    class Summaries(supervisor_core.SummarySaverHook):
        def _get_summary_op(self) -> Any:
            calls.append("summary")
            return [op]

    hooks = [
        Saver(logdir, save_steps=2, scaffold=None, saver=None),
        Summaries(save_steps=1, output_dir=logdir, summary_op=tf.constant(b"")),
    ]
    with session(hooks) as run:
        for _ in range(3):
            run(train_op)
    assert [call for call in calls if call.startswith("save ")] == ["save 0", "save 2", "save 3"]
    assert {"saver", "summary"} <= set(calls)


def test_a_small_checkpoint_is_there_when_the_step_returns(train_op: Any, logdir: str) -> None:
    """As with the original: a program may look for it at once. The time that training waits for it is booked as
    unproductive, not as the step's."""
    with supervisor_core.MonitoredTrainingSession(checkpoint_dir=logdir, save_checkpoint_steps=1) as sess:
        progress = sess._lifecycle.recorder.progress
        assert os.path.exists(f"{logdir}/model.ckpt-0.meta")
        assert progress.snapshot().activity_secs["unproductive_checkpoint_save"] == 0
        for step in (1, 2, 3):
            sess.run(train_op)
            assert os.path.exists(f"{logdir}/model.ckpt-{step}.meta")
        assert progress.snapshot().activity_secs["unproductive_checkpoint_save"] > 0


def test_a_hook_that_is_driven_without_its_session_saves_all_the_same(train_op: Any, logdir: str) -> None:
    """Some drivers never call ``after_create_session``: the first run saves then."""
    hook = supervisor_core.CheckpointSaverHook(logdir, save_steps=2, saver=v1.train.Saver())
    hook.begin()
    init = v1.global_variables_initializer()
    with v1.Session() as sess:
        sess.run(init)
        for _ in range(2):
            _run_hooked(sess, [hook], train_op)
    assert v1.train.latest_checkpoint(logdir) == f"{logdir}/model.ckpt-1"


@each(ANYWHERE)
def test_a_stop_at_a_step_in_any_session(session: Open, train_op: Any) -> None:
    """After exactly this number of steps; a waiter whose step is reached does not wait."""
    hooks = [supervisor_core.GlobalStepWaiterHook(0), supervisor_core.StopAtStepHook(num_steps=4)]
    done = 0
    with pytest.raises((StopIteration, RuntimeError)), session(hooks) as run:
        for _ in range(9):
            run(train_op)
            done += 1
    assert done == (3 if session is in_a_programs_own else 4)  # which raises within the run that was the last

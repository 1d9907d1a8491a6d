"""A model that outlives its chief is kept by the next one, if it is the run's own, is whole, and had not failed.

Variables in a local server outlive the sessions on it, as those of parameter servers do.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
import tensorflow as tf

import supervisor_core
from supervisor_core.base.options import Options
from supervisor_core.engine.logdir_hold import LogdirHold
from supervisor_core.events.telemetry import RecoveryRecord, SessionRecord
from supervisor_core.tf1.session_manager import ReadyFlag
from tests.story.holds import edit, ends, peek

v1 = tf.compat.v1
SAVED, TRAINED = 4, 6
"""The step of the checkpoint, and the step that the model has come to."""
OPTIONS = Options(save_on_stop=False, retry_initial_secs=1e-3, retry_max_secs=1e-3)


class Train(Protocol):
    """Be a chief: see `chief`."""

    def __call__(self, body: Callable[..., object] = ..., **arguments: Any) -> int: ...


@pytest.fixture
def target() -> str:
    """The master of a server of the test's own."""
    return str(v1.train.Server.create_local_server().target)


def supervisor(logdir: str, target: str, body: Callable[[Any, Any], object], **arguments: Any) -> None:
    """Train under a `Supervisor`."""
    sv = supervisor_core.Supervisor(logdir=logdir, save_summaries_secs=0, save_model_secs=0, **arguments)
    with sv.managed_session(target) as sess:
        body(sess, sv.saver)


def monitored(logdir: str, target: str, body: Callable[[Any, Any], object], **arguments: Any) -> None:
    """Train under a `MonitoredTrainingSession`."""
    scaffold = v1.train.Scaffold()
    with supervisor_core.MonitoredTrainingSession(
        target,
        checkpoint_dir=logdir,
        scaffold=scaffold,
        save_checkpoint_steps=SAVED,
        save_summaries_steps=0,
        **arguments,
    ) as sess:
        body(sess, scaffold.saver)


@pytest.fixture(params=[supervisor, monitored])
def chief(request: pytest.FixtureRequest, target: str, logdir: str, build_model: Callable[..., Any]) -> Train:
    """Returns a function that is a chief in a graph of its own, and returns the step at which it begins.

    Its arguments: what to call with ``(session, saver, model)``, and the facade's own.
    """

    def run(body: Callable[..., object] = lambda *_: None, **arguments: Any) -> int:
        first: list[int] = []

        def begin(sess: Any, saver: Any) -> None:
            step, weight = sess.run([model.global_step, model.weight])
            assert step == weight
            first.append(int(step))
            body(sess, saver, model)

        with tf.Graph().as_default():
            with tf.device("/cpu:0"):
                model = build_model(resource=True)
            request.param(logdir, target, begin, **{"options": OPTIONS, **arguments})
        return first[0]

    return run


def trains(logdir: str) -> Callable[[Any, Any, Any], None]:
    """Return a function that trains, and saves on the way, unless a monitored session does that by itself."""

    def body(sess: Any, saver: Any, model: Any) -> None:
        while (step := int(sess.run(model.global_step))) < TRAINED:
            if step == SAVED and isinstance(sess, v1.Session):
                saver.save(sess, os.path.join(logdir, "model.ckpt"), global_step=SAVED)
            sess.run(model.train_op)

    return body


def ended(logdir: str, how: str | None) -> None:
    """Have the liveness file say that the last session ended like this; None: not at all, as if it had been killed."""
    edit(Path(logdir), ended=how)


@pytest.fixture
def sessions(logdir: str, read_telemetry: Callable[..., list[Any]]) -> Callable[[], list[SessionRecord]]:
    """Returns a function that reads the session records in the logdir."""
    return lambda: sorted(
        (record for record in read_telemetry(logdir) if isinstance(record, SessionRecord)),
        key=lambda record: record.attempt,
    )


@pytest.mark.parametrize("how", [None, "signal"])
def test_the_model_of_a_chief_that_was_cut_off_is_kept(
    chief: Train, logdir: str, how: str | None, sessions: Callable[[], list[SessionRecord]]
) -> None:
    """Again and again: each resumes at the step that was reached, not at the checkpoint's, and records that. The ready
    flag of the one before is void then, and its saver may delete the checkpoints of all. One that was cut off before it
    was ready has not touched the model, which is still that of the one before it.
    """
    handed: list[list[str]] = []
    assert chief(trains(logdir)) == 0
    for _ in range(2):
        ended(logdir, how)
        assert chief(lambda sess, saver, model: handed.append(list(saver.last_checkpoints))) == TRAINED
    assert os.path.join(logdir, f"model.ckpt-{SAVED}") in handed[0]
    first, second, third = sessions()
    assert (first.adopted, first.restored_step) == (False, None)
    for each in (second, third):
        assert (each.adopted, each.restored_step, each.restored_checkpoint) == (True, TRAINED, None)
        assert each.previous_outcome == (how or "lost")
    record = peek(logdir)
    assert record is not None and record.history is not None and record.history.predecessor is None
    ended(logdir, how)
    for number in range(2):
        hold = LogdirHold(logdir)
        hold.acquire(f"cut-off-before-it-was-ready-{number}")
        ends(hold, "requested")
        ended(logdir, how)
    assert chief() == TRAINED


def test_a_model_whose_chief_had_ended_is_restored(
    chief: Train, logdir: str, sessions: Callable[[], list[SessionRecord]]
) -> None:
    """After an error, also of one that was not ready, something may be wrong with it; after a good end its checkpoint
    is the run's word."""
    chief(trains(logdir))
    for how in ("error", "completed", "exhausted", "requested"):
        ended(logdir, how)
        assert chief(trains(logdir)) == SAVED, how
        second = sessions()[-1]
        assert (second.adopted, second.restored_step) == (False, SAVED)
        assert str(second.restored_checkpoint).endswith(f"model.ckpt-{SAVED}")
    ended(logdir, None)
    hold = LogdirHold(logdir)
    hold.acquire("failed")
    ends(hold, "error")
    assert chief() == SAVED


@pytest.mark.parametrize("chief", [monitored], indirect=True)
def test_a_session_lost_while_its_model_lives(
    chief: Train, logdir: str, read_telemetry: Callable[..., list[Any]]
) -> None:
    """A network that was cut and healed: the same process goes on where the model is, and nothing is lost."""
    steps: list[int] = []

    def step() -> Any:
        return v1.global_variables()[0]

    class Cut(v1.train.SessionRunHook):  # type: ignore[misc]
        def after_create_session(self, session: Any, coord: Any) -> None:
            steps.append(int(session.run(step())))

        def after_run(self, run_context: Any, run_values: Any) -> None:
            if int(run_context.session.run(step())) == TRAINED and len(steps) == 1:
                raise tf.errors.UnavailableError(None, None, "failed to connect to all addresses")

    chief(trains(logdir), hooks=[Cut()])
    assert steps == [0, TRAINED]
    [record] = [record for record in read_telemetry(logdir) if isinstance(record, RecoveryRecord)]
    assert (record.step, record.restored_step, record.restored_checkpoint) == (TRAINED, TRAINED, None)
    assert "failed to connect" in record.error


def test_another_runs_model_is_not_kept(
    chief: Train, logdir: str, target: str, graph: Any, build_model: Callable[..., Any]
) -> None:
    """Though it is alive on the same server, and the same model."""
    chief(trains(logdir))
    ended(logdir, None)
    with tf.device("/cpu:0"):
        build_model(resource=True)
    mark = ReadyFlag(graph, "/cpu:0")
    with v1.Session(target) as sess:
        assert mark.set_by(sess) is not None
        mark.set(sess, "another run's")
    assert chief() == SAVED


def test_a_model_that_is_not_whole_is_not_kept(
    chief: Train, logdir: str, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A parameter server has gone and come back: its variables are gone, though others are still there."""
    chief(trains(logdir))
    ended(logdir, None)
    with tf.Graph().as_default(), v1.Session(target) as sess:
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="weight")
        sess.run(tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=False))
    assert chief() == SAVED
    assert "Only a part of the model of session" in caplog.text


def test_a_program_that_was_changed_does_not_keep_the_model(
    chief: Train, logdir: str, target: str, graph: Any, build_model: Callable[..., Any]
) -> None:
    """Values that do not fit it are not trained on: the checkpoint is restored, or it is said what differs."""
    chief(trains(logdir))
    ended(logdir, None)
    with tf.device("/cpu:0"):
        build_model(resource=True)
        v1.get_variable("bias", initializer=0.0)
    sv = supervisor_core.Supervisor(logdir=logdir, save_summaries_secs=0, save_model_secs=0, options=OPTIONS)
    with v1.Session(target) as sess:
        sess.run([each.initializer for each in v1.global_variables() if each.op.name == "bias"])
    with pytest.raises(tf.errors.NotFoundError, match="bias"), sv.managed_session(target):
        pass


@pytest.mark.parametrize("chief", [monitored], indirect=True)
def test_a_checkpoint_that_was_asked_for_is_restored(
    chief: Train, logdir: str, target: str, build_model: Callable[..., Any], graph: Any
) -> None:
    """Who names one wants that one, and not what the chief before has left alive."""
    chief(trains(logdir))
    ended(logdir, None)
    with tf.device("/cpu:0"):
        model = build_model(resource=True)
    creator = supervisor_core.ChiefSessionCreator(
        master=target, checkpoint_filename_with_path=os.path.join(logdir, f"model.ckpt-{SAVED}")
    )
    hooks = [supervisor_core.CheckpointSaverHook(logdir, save_secs=9999)]
    with supervisor_core.MonitoredSession(creator, hooks, options=OPTIONS) as sess:
        assert sess.run(model.global_step) == SAVED

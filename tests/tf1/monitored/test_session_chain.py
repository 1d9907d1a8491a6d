"""What programs reach for behind a monitored session: the chain of sessions, the coordinator."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import supervisor_core

v1 = tf.compat.v1


def unwrapped(sess: Any) -> Any:
    """The loop that programs copy from each other."""
    while type(sess).__name__ != "Session":
        sess = sess._sess
    return sess


def test_the_chain_ends_in_a_session(train: Any, build_model: Any) -> None:
    """After four links, or three of a session that does not recover; it is the one that ``_tf_sess`` returns."""
    model = build_model()
    with train.MonitoredSession() as sess:
        inner = sess._sess._sess._sess._sess
        assert inner is unwrapped(sess) is sess._tf_sess() and isinstance(inner, v1.Session)
        assert inner.run(model.global_step) == 0
    with train.SingularMonitoredSession() as sess:
        assert sess._sess._sess._sess is unwrapped(sess) is sess.raw_session()
    assert sess._sess is None and sess._tf_sess() is None


def test_what_runs_at_the_end_of_the_chain_is_saved(build_model: Any, logdir: str) -> None:
    """A program that trains in the session inside loses nothing at the end."""
    model = build_model()
    with supervisor_core.MonitoredTrainingSession(checkpoint_dir=logdir) as sess:
        for _ in range(3):
            unwrapped(sess).run(model.train_op)
    assert v1.train.latest_checkpoint(logdir) == f"{logdir}/model.ckpt-3"


@pytest.mark.parametrize("changes", [True, False])
def test_what_a_hook_changes_in_its_end_is_saved(
    build_model: Any, recorder: Any, logdir: str, read_telemetry: Any, changes: bool
) -> None:
    """Hooks of the program end after the one that saves, as in the original. What only reads saves nothing again."""
    model = build_model()
    average = v1.Variable(0.0, name="average")
    assign = average.assign(5.0)
    act = {"end": lambda session: session.run(assign if changes else average)}
    with supervisor_core.MonitoredTrainingSession(checkpoint_dir=logdir, hooks=[recorder(act=act)]) as sess:
        for _ in range(3):
            sess.run(model.train_op)
    newest = v1.train.latest_checkpoint(logdir)
    assert newest == f"{logdir}/model.ckpt-3"
    assert tf.train.load_variable(newest, "average") == (5.0 if changes else 0.0)
    saved = [record for record in read_telemetry(logdir) if record.kind == "checkpoint" and record.step == 3]
    assert len(saved) == 1 + changes


def test_each_link_runs_what_it_ran_in_the_original(train: Any, build_model: Any, recorder: Any) -> None:
    """Hooks up to the last but one; graph and master from each."""
    model, seen = build_model(), recorder()
    with train.MonitoredSession(hooks=[seen]) as sess:
        link, calls = sess, []
        while type(link).__name__ != "Session":
            assert link.graph is tf.compat.v1.get_default_graph() and not link.should_stop()
            before = len(seen.notes)
            link.run(model.global_step)
            calls.append(len(seen.notes) - before)
            link = link._sess
            assert link.sess_str == b""
        assert calls == [2, 2, 2, 2]
        assert link.run(model.global_step) == 0 and len(seen.notes) == before + 2


def test_the_coordinator_is_where_it_was(train: Any, build_model: Any) -> None:
    """``_coordinated_creator.coord``, and ``_coord`` of the link: what is reported there ends the session."""
    build_model()
    with pytest.raises(RuntimeError, match="of a thread"), train.MonitoredSession() as sess:
        coord = sess._coordinated_creator.coord
        assert isinstance(coord, v1.train.Coordinator)
        assert sess._sess._sess._coord is coord and sess._sess._sess_creator.tf_sess is sess._tf_sess()
        assert sess._coordinated_creator.tf_sess is sess._tf_sess()
        try:
            raise RuntimeError("of a thread")
        except RuntimeError as error:  # with a traceback, which the original insists on
            coord.request_stop(error)
        assert sess.should_stop()
    assert sess._coordinated_creator.coord is None and sess._coordinated_creator.tf_sess is None


def test_the_chain_holds_over_a_recovery(train: Any, build_model: Any, recorder: Any) -> None:
    """What was taken from it before goes on in the session that took the place of the lost one."""
    model, losing = build_model(), recorder()
    options = {} if train is v1.train else {"options": supervisor_core.Options(retry_initial_secs=0.001)}
    with train.MonitoredSession(hooks=[losing], **options) as sess:
        first, link = unwrapped(sess), sess._sess

        def lose(context: Any) -> None:
            losing.act.clear()
            raise tf.errors.AbortedError(None, None, "")

        losing.act["before_run"] = lose
        assert sess.run(model.global_step) == 0
        assert unwrapped(sess) is not first
        assert link.run(model.global_step) == 0 and unwrapped(link) is unwrapped(sess)

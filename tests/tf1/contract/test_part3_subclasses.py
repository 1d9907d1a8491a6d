"""Contract part 3: programs that subclass the original, call its protected methods, or test for its classes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.training import supervisor as original

from supervisor_core.events.file_writer import FileWriter

v1 = tf.compat.v1

SUPERVISOR_METHODS = (
    "_init_ready_op",
    "_init_init_op",
    "_init_local_init_op",
    "_init_saver",
    "_init_summary_op",
    "_init_global_step",
    "_default_global_step_tensor",
    "_get_first_op_from_collection",
    "_init_session_manager",
    "_verify_setup",
    "_write_graph",
    "start_standard_services",
    "start_queue_runners",
    "prepare_or_wait_for_session",
    "stop",
)
MANAGER_METHODS = (
    "_restore_checkpoint",
    "_try_run_local_init_op",
    "_model_ready_for_local_init",
    "_model_ready",
)


def recording(base: Any, methods: tuple[str, ...], calls: list[Any]) -> Any:
    """A subclass whose overrides record name and arguments, and then do what the base does."""

    def override(name: str) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            keys = [arg for arg in args if isinstance(arg, str) and not arg.startswith("grpc:")]
            calls.append((name, *keys, *sorted(kwargs)))
            return getattr(base, name)(self, *args, **kwargs)

        return call

    return type("Recording", (base,), {name: override(name) for name in methods})


def first_calls(facade: Any, build_model: Callable[..., Any], logdir: str, **arguments: Any) -> list[Any]:
    """Construct a recording supervisor, run one session of it, and return what was called."""
    calls: list[Any] = []
    with tf.Graph().as_default():
        build_model()
        supervisor = recording(facade.Supervisor, SUPERVISOR_METHODS, calls)(logdir=logdir, **arguments)
        calls.append("constructed")
        with supervisor.managed_session():
            calls.append("trained")
    return calls


def test_overrides_are_called_at_the_original_s_moments(build_model: Any, tmp_path: Path, ours: Any) -> None:
    """Each protected method is called in the original's order, with the original's named arguments."""
    theirs = type(ours)("original", v1.train.Supervisor, None, None, None, "tensorflow")
    expected = first_calls(theirs, build_model, str(tmp_path / "theirs"))
    assert [call for call in expected if call == ("_get_first_op_from_collection", "ready_op")]
    assert first_calls(ours, build_model, str(tmp_path / "ours")) == expected


def test_the_graph_is_the_default_one_in_an_override(facade: Any, build_model: Any) -> None:
    """An override of ``_init_...`` may add ops to the supervised graph: it is the default graph, not yet finalized."""
    graph = tf.Graph()
    with graph.as_default():
        build_model()

    class Adding(facade.Supervisor):  # type: ignore[misc,name-defined]
        def _init_summary_op(self, summary_op: Any = facade.Supervisor.USE_DEFAULT) -> None:
            super()._init_summary_op(summary_op=v1.summary.scalar("of_a_subclass", 1.0))

    supervisor = Adding(graph=graph)
    assert supervisor.summary_op.graph is graph
    assert graph.finalized


def manager_calls(facade: Any, use: Callable[[Any, Any, Any], Any]) -> list[Any]:
    """Use a recording session manager in a graph of its own; return what was called."""
    calls: list[Any] = []
    with tf.Graph().as_default():
        variable = v1.get_variable("weight", initializer=1.0, use_resource=False)
        local = v1.get_variable(
            "local", initializer=2.0, collections=[v1.GraphKeys.LOCAL_VARIABLES], use_resource=False
        )
        manager = recording(facade.SessionManager, MANAGER_METHODS, calls)(
            local_init_op=local.initializer,
            ready_op=v1.report_uninitialized_variables(),
            ready_for_local_init_op=v1.report_uninitialized_variables([variable]),
        )
        use(manager, variable.initializer, v1.train.Saver([variable]))
    return calls


@pytest.mark.parametrize("how", ["prepare", "recover", "recover_restored", "wait"])
def test_a_manager_s_overrides_are_called_at_the_original_s_moments(how: str, ours: Any, tmp_path: Path) -> None:
    """Preparing, recovering and waiting call the protected methods as the original does, arguments included."""
    directory = str(tmp_path)

    def use(manager: Any, init_op: Any, saver: Any) -> None:
        if how == "prepare":
            manager.prepare_session("", init_op=init_op, saver=saver, checkpoint_dir=directory).close()
        elif how == "recover":
            manager.recover_session("", saver=saver, checkpoint_dir=directory)[0].close()
        elif how == "recover_restored":
            with manager.prepare_session("", init_op=init_op) as sess:
                saver.save(sess, os.path.join(directory, "model.ckpt"), global_step=1)
            sess, recovered = manager.recover_session("", saver=saver, checkpoint_dir=directory)
            assert recovered
            sess.close()
        else:
            server = v1.train.Server.create_local_server()
            with manager.prepare_session(server.target, init_op=init_op):
                manager.wait_for_session(server.target, max_wait_secs=60).close()

    theirs = type(ours)("original", None, v1.train.SessionManager, None, None, "tensorflow")
    expected = manager_calls(theirs, use)
    assert ("_model_ready",) in expected or how == "recover"
    assert manager_calls(ours, use) == expected


def test_a_manager_s_override_restores(facade: Any, build_model: Any) -> None:
    """A subclass that restores in ``_restore_checkpoint`` by its own means is believed: nothing is initialised."""
    model = build_model()
    restore = [model.global_step.assign(41), model.weight.assign(41.0)]

    class Restoring(facade.SessionManager):  # type: ignore[misc,name-defined]
        def _restore_checkpoint(self, master: str, saver: Any = None, config: Any = None, **rest: Any) -> Any:
            self._target = master
            sess = v1.Session(master, graph=self._graph, config=config)
            sess.run(restore)
            return sess, True

    def fail(sess: Any) -> None:
        raise AssertionError("init_fn was called for a model that was restored")

    supervisor = facade.Supervisor(session_manager=Restoring(), init_fn=fail)
    with supervisor.managed_session() as sess:
        assert sess.run(model.global_step) == 41


def test_a_manager_s_methods_answer_as_the_original_s(facade: Any) -> None:
    """Each returns whether, and why not; the target is that of the last session."""
    variable = v1.get_variable("weight", initializer=1.0, use_resource=False)
    manager = facade.SessionManager(
        local_init_op=tf.no_op(),
        ready_op=v1.report_uninitialized_variables(),
        ready_for_local_init_op=v1.report_uninitialized_variables(),
    )
    assert manager._target is None
    missing = "Variables not initialized: weight"
    sess, restored = manager._restore_checkpoint("")
    assert not restored
    assert manager._target == ""
    assert manager._model_ready(sess) == (False, missing)
    assert manager._model_ready_for_local_init(sess) == (False, missing)
    assert manager._try_run_local_init_op(sess) == (False, missing)
    sess.run(variable.initializer)
    assert manager._model_ready(sess) == (True, None)
    assert manager._model_ready_for_local_init(sess) == (True, None)
    assert manager._try_run_local_init_op(sess) == (True, None)
    manager._safe_close(sess)


def test_instances_pass_for_the_original_s(ours: Any, build_model: Any, logdir: str) -> None:
    """Programs and libraries that test for TensorFlow's classes take ours."""
    build_model()
    v1.summary.scalar("loss", 1.0)
    supervisor = ours.Supervisor(logdir=logdir)
    assert isinstance(supervisor, v1.train.Supervisor)
    assert isinstance(supervisor.session_manager, v1.train.SessionManager)
    assert isinstance(supervisor.coord, v1.train.Coordinator)
    with supervisor.managed_session(start_standard_services=False) as sess:
        threads = supervisor.start_standard_services(sess)
        loop = supervisor.loop(100, lambda: None)
    assert all(isinstance(thread, v1.train.LooperThread) for thread in [*threads, loop])


def test_the_original_s_services_work_on_ours(ours: Any, build_model: Any, logdir: str) -> None:
    """A program may start the original's service threads, or subclasses of them, on our supervisor."""
    build_model()
    v1.summary.scalar("loss", 1.0)
    supervisor = ours.Supervisor(logdir=logdir)
    with supervisor.managed_session(start_standard_services=False) as sess:
        for kind in (original.SVSummaryThread, original.SVStepCounterThread, original.SVTimerCheckpointThread):
            kind(supervisor, sess).run_loop()
    assert v1.train.latest_checkpoint(logdir) is not None


class CopiedConstructor:
    """A constructor that does itself what the original's does, and does not call it."""

    def __init__(self, logdir: str, summary_writer: Any) -> None:
        sv: Any = self
        sv._graph = tf.compat.v1.get_default_graph()
        with sv._graph.as_default():
            sv._init_ready_op()
            sv._init_init_op()
            sv._init_local_init_op()
            sv._init_saver()
            sv._init_summary_op()
            sv._init_global_step()
        sv._meta_graph_def = v1.train.export_meta_graph(graph=sv._graph, saver_def=sv._saver.saver_def)
        sv._is_chief, sv._coord = True, v1.train.Coordinator()
        sv._recovery_wait_secs, sv._stop_grace_secs, sv._init_fn, sv._local_init_run_options = 30, 120, None, None
        sv._logdir, sv._save_path = logdir, os.path.join(logdir, "model.ckpt")
        sv._save_summaries_secs = sv._save_model_secs = 100
        sv._summary_writer = summary_writer
        sv._graph_added_to_summary = False
        sv._init_session_manager(session_manager=None)
        sv._verify_setup()  # and the graph is not finalized: what such a program is after


class PreparesItself:
    """A preparation that does itself what the original's does: queue runners come before the model is initialized."""

    def prepare_or_wait_for_session(self, master: str = "", config: Any = None, **rest: Any) -> Any:
        sv: Any = self
        sv._coord.clear_stop()
        sess, restored = sv._session_manager.recover_session(master, sv.saver, checkpoint_dir=sv._logdir)
        sv.start_queue_runners(sess)
        if not restored:
            sess.run(sv.init_op, feed_dict=sv._init_feed_dict)
        assert sv._session_manager._model_ready(sess) == (True, None)
        sv._write_graph()
        if rest.get("start_standard_services", True):
            sv.start_standard_services(sess)
        return sess


@pytest.mark.parametrize("habit", [CopiedConstructor, PreparesItself])
def test_subclasses_that_copy_a_method_train(
    habit: Any, facade: Any, build_model: Any, logdir: str, read_events: Any
) -> None:
    """Subclasses that replace the constructor, or the preparation, with a copy train, save, resume and end."""
    for expected in (0, 3):
        with tf.Graph().as_default():
            model = build_model()
            writer = FileWriter(logdir)  # not TensorFlow's, which loses events of two sessions in one second
            supervisor = type("Own", (habit, facade.Supervisor), {})(logdir=logdir, summary_writer=writer)
            if facade.name == "original":  # its timer may save over what is saved here
                supervisor._save_model_secs = 0
            with supervisor.managed_session() as sess:
                assert sess.run(model.global_step) == expected
                while sess.run(model.global_step) < expected + 3:
                    sess.run(model.train_op)
                supervisor.saver.save(sess, supervisor.save_path, global_step=supervisor.global_step)
    statuses = [
        event.session_log.status for file in read_events(logdir) for event in file if event.HasField("session_log")
    ]
    assert statuses.count(v1.SessionLog.START) == statuses.count(v1.SessionLog.STOP) == 2


def test_services_can_be_started_in_a_session_of_the_program_s_own(facade: Any, build_model: Any, logdir: str) -> None:
    """A program that makes its session itself, and asks the supervisor for the services alone, gets checkpoints."""
    model = build_model()
    supervisor = facade.Supervisor(logdir=logdir)
    with v1.Session(graph=tf.compat.v1.get_default_graph()) as sess:
        sess.run(supervisor.init_op)
        supervisor.start_standard_services(sess)
        while v1.train.latest_checkpoint(logdir) is None:
            sess.run(model.train_op)
        supervisor.stop()


def test_a_subclass_s_saver_is_the_one_that_saves(facade: Any, build_model: Any, logdir: str) -> None:
    """What an override of ``_init_saver`` settles is what the checkpoint service saves with."""
    model = build_model()

    class WeightOnly(facade.Supervisor):  # type: ignore[misc,name-defined]
        def _init_saver(self, saver: Any = facade.Supervisor.USE_DEFAULT) -> None:
            super()._init_saver(saver=v1.train.Saver([model.weight]))

    supervisor = WeightOnly(logdir=logdir)
    with supervisor.managed_session():
        while v1.train.latest_checkpoint(logdir) is None:
            assert not supervisor.coord.wait_for_stop(0.01)
    names = [name for name, _ in tf.train.list_variables(logdir)]
    assert names == [model.weight.op.name]


def test_a_subclass_may_waive_the_check_of_devices(facade: Any, build_model: Any) -> None:
    """``_verify_setup`` is what refuses variables without devices; an override decides."""
    build_model()

    class Lenient(facade.Supervisor):  # type: ignore[misc,name-defined]
        def _verify_setup(self) -> None:
            """Accept any graph."""

    assert not Lenient(is_chief=False).is_chief


def test_a_subclass_may_make_the_session_manager(facade: Any, build_model: Any) -> None:
    """What ``_init_session_manager`` keeps in ``_session_manager`` is what makes the sessions."""
    model = build_model()

    class Ours(facade.Supervisor):  # type: ignore[misc,name-defined]
        def _init_session_manager(self, session_manager: Any = None) -> None:
            super()._init_session_manager(session_manager=facade.SessionManager(graph=self._graph))
            self.made = self._session_manager

    supervisor = Ours(recovery_wait_secs=7)
    assert supervisor.session_manager is supervisor.made
    assert supervisor._recovery_wait_secs == 7
    with supervisor.managed_session() as sess:
        assert sess.run(model.global_step) == 0


def test_the_graph_is_written_by_an_override(facade: Any, build_model: Any, logdir: str) -> None:
    """``_write_graph`` is called for each session, with the model ready; without the base's, nothing is written."""
    build_model()
    calls = []

    class Silent(facade.Supervisor):  # type: ignore[misc,name-defined]
        def _write_graph(self) -> None:
            calls.append(self._graph_added_to_summary)

    supervisor = Silent(logdir=logdir)
    for _ in range(2):
        with supervisor.managed_session():
            pass
    assert calls == [False, False]
    assert not os.path.exists(os.path.join(logdir, "graph.pbtxt"))


def test_graph_added_to_summary_says_so(facade: Any, build_model: Any, logdir: str) -> None:
    """``_graph_added_to_summary`` is true while the open events file holds the graph."""
    build_model()
    supervisor = facade.Supervisor(logdir=logdir)
    assert not supervisor._graph_added_to_summary
    with supervisor.managed_session():
        assert supervisor._graph_added_to_summary
    assert not supervisor._graph_added_to_summary

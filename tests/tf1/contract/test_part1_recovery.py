"""Contract part 1, items 15 to 18, 20 and 30: how a session comes to its values, and in what order they get to disk."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from supervisor_core.base.errors import SaveFailedError

v1 = tf.compat.v1


def recorder(calls: list[str]) -> Callable[..., Any]:
    """Return a function that makes ops which note their name when they run."""

    def op(name: str) -> Any:
        def note() -> Any:
            calls.append(name)
            return np.empty(0, dtype=bytes)

        return v1.py_func(note, [], tf.string, stateful=True, name=name)

    return op


def test_item_15_the_newest_checkpoint_of_the_state_file_is_restored(
    facade: Any, build_model: Callable[..., Any], save_steps: Any, logdir: str
) -> None:
    """What the state file calls the newest is restored, and the saver may delete all that it lists."""
    model = build_model()
    paths = save_steps(logdir, model, 3, 7)
    saver = v1.train.Saver()
    sess = facade.SessionManager().prepare_session("", saver=saver, checkpoint_dir=logdir)
    with sess:
        assert sess.run([model.global_step, model.weight]) == [7, 7.0]
    assert saver.last_checkpoints == paths


def test_item_15_an_edited_state_file_decides(
    facade: Any, build_model: Callable[..., Any], save_steps: Any, logdir: str
) -> None:
    """The state file may be edited by hand to go back to an older checkpoint."""
    model = build_model()
    save_steps(logdir, model, 3, 7)
    Path(logdir, "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"\n')
    with facade.SessionManager().prepare_session("", saver=v1.train.Saver(), checkpoint_dir=logdir) as sess:
        assert sess.run(model.global_step) == 3


def test_item_15_what_was_recovered_counts_among_those_to_keep(
    facade: Any, build_model: Callable[..., Any], save_steps: Any, logdir: str, wait_until: Any
) -> None:
    """A resumed run deletes the oldest checkpoint of the one before when it has one too many."""
    model = build_model()
    save_steps(logdir, model, 3, 7)
    supervisor = facade.Supervisor(
        logdir=logdir, saver=v1.train.Saver(max_to_keep=2), save_model_secs=0.02, save_summaries_secs=0
    )
    with supervisor.managed_session() as sess:
        sess.run(model.train_op)
        wait_until(lambda: Path(logdir, "model.ckpt-8.meta").exists())
    assert sorted(path.stem for path in Path(logdir).glob("*.index")) == ["model.ckpt-7", "model.ckpt-8"]


def test_item_15_an_explicit_file_is_never_the_savers_to_delete(
    facade: Any, build_model: Callable[..., Any], save_steps: Any, logdir: str
) -> None:
    """An explicit file name is restored whatever the state file says, and the saver learns of none to delete."""
    model = build_model()
    paths = save_steps(logdir, model, 3, 7)
    saver = v1.train.Saver()
    sess = facade.SessionManager().prepare_session("", saver=saver, checkpoint_filename_with_path=paths[0])
    with sess:
        assert sess.run(model.global_step) == 3
    assert saver.last_checkpoints == []


@pytest.mark.parametrize("method", ["prepare_session", "recover_session"])
def test_item_15_directory_and_file_together(
    facade: Any, build_model: Callable[..., Any], logdir: str, method: str
) -> None:
    """A directory and a file name together are refused."""
    build_model()
    call = getattr(facade.SessionManager(), method)
    with pytest.raises(ValueError, match="Can not provide both checkpoint_dir and checkpoint_filename_with_path"):
        call("", saver=v1.train.Saver(), checkpoint_dir=logdir, checkpoint_filename_with_path="model.ckpt-1")


class OnWaiting(logging.Handler):
    """Does something once, as soon as the log says that a checkpoint is waited for."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__()
        self._actions = [action]

    def emit(self, record: logging.LogRecord) -> None:
        if "Waiting for" in record.getMessage() and self._actions:
            self._actions.pop()()


def test_item_15_a_checkpoint_that_appears_is_waited_for(
    facade: Any, build_model: Callable[..., Any], save_steps: Any, logdir: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With `wait_for_checkpoint` the manager looks again until there is one."""
    model = build_model()
    save_steps(logdir, model, 4)
    hidden = Path(logdir).rename(logdir + "-hidden")
    manager = facade.SessionManager(recovery_wait_secs=0.01)
    logger = logging.getLogger(facade.logger)
    handler = OnWaiting(lambda: hidden.rename(logdir))
    logger.addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, logger=facade.logger):
            sess = manager.prepare_session(
                "", saver=v1.train.Saver(), checkpoint_dir=logdir, wait_for_checkpoint=True, max_wait_secs=60
            )
    finally:
        logger.removeHandler(handler)
    with sess:
        assert sess.run(model.global_step) == 4


def test_item_15_waiting_for_a_checkpoint_has_an_end(facade: Any, build_model: Callable[..., Any], logdir: str) -> None:
    """No checkpoint within `max_wait_secs`: the model is initialized."""
    model = build_model()
    sess = facade.SessionManager(recovery_wait_secs=0.01).prepare_session(
        "",
        init_op=v1.global_variables_initializer(),
        saver=v1.train.Saver(),
        checkpoint_dir=logdir,
        wait_for_checkpoint=True,
        max_wait_secs=0.02,
    )
    with sess:
        assert sess.run(model.global_step) == 0


def test_item_16_saved_model_initializers_run_before_the_restore(
    facade: Any, build_model: Callable[..., Any], save_steps: Any, logdir: str
) -> None:
    """What a SavedModel's initializers set, the checkpoint overwrites; what it does not hold stays as they set it."""
    model = build_model()
    save_steps(logdir, model, 7)
    saver = v1.train.Saver()
    extra = v1.Variable(0, use_resource=False)
    for op in (model.weight.assign(100.0), extra.assign(5)):
        v1.add_to_collection("saved_model_initializers", op.op)
    with facade.SessionManager().prepare_session("", saver=saver, checkpoint_dir=logdir) as sess:
        assert sess.run([model.weight, extra]) == [7.0, 5]


def test_item_17_a_restored_model_is_not_initialized(
    facade: Any, build_model: Callable[..., Any], save_steps: Any, logdir: str
) -> None:
    """With a checkpoint neither init_op nor init_fn runs."""
    model = build_model()
    save_steps(logdir, model, 7)
    calls: list[str] = []
    sess = facade.SessionManager().prepare_session(
        "",
        init_op=recorder(calls)("init_op"),
        saver=v1.train.Saver(),
        checkpoint_dir=logdir,
        init_fn=lambda _: calls.append("init_fn"),
    )
    sess.close()
    assert calls == []


def test_item_17_a_new_model_runs_init_op_then_init_fn(facade: Any, build_model: Callable[..., Any]) -> None:
    """Without a checkpoint init_op runs, fed as asked, and init_fn after it with the session."""
    model = build_model()
    value = v1.placeholder(tf.float32, [])
    initialize = tf.group(model.weight.assign(value), model.global_step.initializer)
    seen: list[Any] = []
    sess = facade.SessionManager().prepare_session(
        "",
        init_op=initialize,
        init_feed_dict={value: 2.5},
        init_fn=lambda given: seen.append((given, given.run(model.weight))),
    )
    with sess:
        assert seen == [(sess, 2.5)]


@pytest.mark.parametrize("given", ["nothing", "local_init_op", "init_fn"])
def test_item_17_nothing_to_initialize_with(facade: Any, build_model: Callable[..., Any], given: str) -> None:
    """Only without init_op, init_fn and local_init_op it is an error that the model cannot be initialized."""
    build_model()
    manager = facade.SessionManager(local_init_op=v1.no_op() if given == "local_init_op" else None)
    init_fn = (lambda sess: None) if given == "init_fn" else None
    if given != "nothing":
        manager.prepare_session("", init_fn=init_fn).close()
        return
    with pytest.raises(RuntimeError, match="Model is not initialized and no init_op or init_fn or local_init_op"):
        manager.prepare_session("")


@pytest.mark.parametrize("restored", [False, True])
def test_item_18_the_checks_and_the_local_init_come_in_this_order(
    facade: Any, build_model: Callable[..., Any], save_steps: Any, logdir: str, restored: bool
) -> None:
    """Ready for local init, local init, ready: after an initialization and after a restore alike."""
    model = build_model()
    if restored:
        save_steps(logdir, model, 7)
    calls: list[str] = []
    op = recorder(calls)
    manager = facade.SessionManager(
        local_init_op=op("local_init"), ready_op=op("ready"), ready_for_local_init_op=op("ready_for_local_init")
    )
    manager.prepare_session("", init_op=op("init"), saver=v1.train.Saver(), checkpoint_dir=logdir).close()
    assert calls == [*([] if restored else ["init"]), "ready_for_local_init", "local_init", "ready"]


@pytest.mark.parametrize(
    ("ready", "text"),
    [
        (("not yet", ""), r"Init operations did not make model ready for local_init\.  Init op: init(.|\n)*not yet"),
        (("", "not yet"), r"Init operations did not make model ready\.  (.|\n)*not yet"),
    ],
)
def test_item_18_a_model_that_is_not_ready_is_an_error(
    facade: Any, build_model: Callable[..., Any], ready: tuple[str, str], text: str
) -> None:
    """Not ready after the initialization: an error that says which check failed and what it said."""
    build_model()
    before, after = (tf.constant([word] if word else [], tf.string) for word in ready)
    manager = facade.SessionManager(local_init_op=v1.no_op(), ready_op=after, ready_for_local_init_op=before)
    with pytest.raises(RuntimeError, match=text):
        manager.prepare_session("", init_op=v1.global_variables_initializer())


def test_item_18_ready_for_local_init_needs_a_local_init_op(facade: Any, build_model: Callable[..., Any]) -> None:
    """A check before a local init op that is not there is refused when the manager is made."""
    with pytest.raises(ValueError, match="If you pass a ready_for_local_init_op you must also pass a local_init_op"):
        facade.SessionManager(ready_for_local_init_op=tf.constant([], tf.string))


def test_item_20_recover_without_a_checkpoint(facade: Any, build_model: Callable[..., Any], logdir: str) -> None:
    """Nothing to recover: the local init op ran, and the answer is (session, False)."""
    build_model()
    calls: list[str] = []
    manager = facade.SessionManager(local_init_op=recorder(calls)("local_init"))
    sess, recovered = manager.recover_session("", saver=v1.train.Saver(), checkpoint_dir=logdir)
    with sess:
        assert (recovered, calls) == (False, ["local_init"])


@pytest.mark.parametrize("check", ["ready_op", "ready_for_local_init_op"])
def test_item_20_recover_what_is_not_ready(
    facade: Any, build_model: Callable[..., Any], save_steps: Any, logdir: str, check: str
) -> None:
    """Recovered and still not ready: (session, False) rather than an error."""
    model = build_model()
    save_steps(logdir, model, 7)
    manager = facade.SessionManager(local_init_op=v1.no_op(), **{check: tf.constant(["missing"])})
    sess, recovered = manager.recover_session("", saver=v1.train.Saver(), checkpoint_dir=logdir)
    with sess:
        assert recovered is False
        assert sess.run(model.global_step) == 7


def test_item_20_recover_what_is_ready(
    facade: Any, build_model: Callable[..., Any], save_steps: Any, logdir: str
) -> None:
    """Recovered and ready: (session, True)."""
    model = build_model()
    save_steps(logdir, model, 7)
    manager = facade.SessionManager(ready_op=v1.report_uninitialized_variables())
    sess, recovered = manager.recover_session("", saver=v1.train.Saver(), checkpoint_dir=logdir)
    with sess:
        assert recovered is True


def has_failed(supervisor: Any) -> bool:
    """Whether a save has failed, as far as the facade says."""
    return hasattr(supervisor, "run_status") and supervisor.run_status().session.save_failures > 0


def saving(facade: Any, model: Any, logdir: str, obstruct: str, until: Callable[[], object], wait_until: Any) -> None:
    """Train one step from checkpoint 7 and save it, with a directory where one of the files should go.

    Until that has come to something: a save that failed, or what the test says.
    """
    supervisor = facade.Supervisor(
        logdir=logdir,
        saver=v1.train.Saver(max_to_keep=1),
        save_model_secs=0.02,
        save_summaries_secs=0,
        stop_grace_secs=1,  # how long ours tries to save the last step
    )
    try:
        with supervisor.managed_session(start_standard_services=False) as sess:
            sess.run(model.train_op)
            path = Path(logdir, obstruct)
            if path.exists():
                path.unlink()
            path.mkdir()
            supervisor.start_standard_services(sess)
            wait_until(lambda: until() or has_failed(supervisor))
    except (tf.errors.OpError, SaveFailedError, OSError):
        pass  # a file that is a directory may end training, sooner or later: this is about what is on disk by then


def test_item_30_the_state_file_comes_before_deletions_and_meta(
    facade: Any, build_model: Callable[..., Any], save_steps: Any, logdir: str, wait_until: Any
) -> None:
    """With the .meta obstructed, the data, the new state file and the deletion of the old checkpoint are done."""
    model = build_model()
    save_steps(logdir, model, 7)
    saving(
        facade,
        model,
        logdir,
        "model.ckpt-8.meta",
        lambda: not Path(logdir, "model.ckpt-7.index").exists(),
        wait_until,
    )
    assert os.path.basename(v1.train.latest_checkpoint(logdir)) == "model.ckpt-8"


def test_item_30_nothing_is_deleted_before_the_state_file_is_written(
    facade: Any, build_model: Callable[..., Any], save_steps: Any, logdir: str, wait_until: Any
) -> None:
    """With the state file obstructed, the data are there and the old checkpoint is still whole."""
    model = build_model()
    save_steps(logdir, model, 7)
    saving(facade, model, logdir, "checkpoint", lambda: Path(logdir, "model.ckpt-8.index").exists(), wait_until)
    kept = {path.name for path in Path(logdir).glob("model.ckpt-7*")}
    assert {"model.ckpt-7.index", "model.ckpt-7.data-00000-of-00001"} <= kept
    assert not Path(logdir, "model.ckpt-8.meta").exists()

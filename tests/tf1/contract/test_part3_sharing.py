"""Contract part 3: a process that only evaluates shares a training's logdir, and telemetry needs no summary writer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core import Options
from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.checkpoint import bundle
from supervisor_core.events.telemetry import SessionRecord
from supervisor_core.run.model.run import Run
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tests.story.holds import peek

v1 = tf.compat.v1
PROGRAM = Path(__file__).with_name("program.py")


def run_of(logdir: str) -> Run:
    """What the model says of the run in a directory."""
    (watched,) = LogdirWatch(logdir).refresh().runs.values()
    return watched.run


def tags(events: Any) -> list[str]:
    """The tags of one events file's summaries."""
    return [value.tag for event in events for value in event.summary.value]


def restore_newest(saver: Any, sess: Any, logdir: str) -> None:
    """Restore the newest checkpoint if there is any; again where the training deletes it meanwhile."""
    while Path(logdir, "checkpoint").exists():
        with suppress(tf.errors.NotFoundError, ValueError):  # the latter also of None, where it is gone already
            saver.restore(sess, v1.train.latest_checkpoint(logdir))
            return


@pytest.fixture
def training(start_training: Callable[..., Any]) -> Iterator[Any]:
    """A training in a process of its own, which has begun."""
    training = start_training(PROGRAM, "20")
    assert training.lines_until("training")[-1:] == ["training"]
    yield training
    training.close()


@pytest.fixture
def evaluate(ours: Any, build_model: Any) -> Callable[..., Any]:
    """Returns a function that opens a session on a logdir as a program does that evaluates a training's checkpoints."""

    def run(logdir: str, body: Callable[[Any, Any], object] = lambda supervisor, sess: None, **arguments: Any) -> int:
        with tf.Graph().as_default():
            model = build_model()
            saver = v1.train.Saver({"global_step": model.global_step})
            supervisor = ours.Supervisor(logdir=logdir, saver=None, save_summaries_secs=0.02, **arguments)
            with supervisor.managed_session() as sess:
                restore_newest(saver, sess, logdir)
                body(supervisor, sess)
                return int(sess.run(model.global_step))

    return run


def test_beside_a_training(
    training: Any, evaluate: Any, saved_step: Any, wait_until: Any, read_events: Any, read_telemetry: Any
) -> None:
    """An evaluation beside a training is not refused, reads its checkpoints, and leaves the run as it is."""
    logdir = training.logdir
    wait_until(lambda: saved_step(logdir) > 0, 120)
    graph = Path(logdir, "graph.pbtxt").read_bytes()
    rates = threading.Event()

    def body(supervisor: Any, sess: Any) -> None:
        supervisor.summary_computed(sess, v1.Summary(value=[v1.Summary.Value(tag="precision", simple_value=0.5)]), 7)
        rates.wait(0.2)  # in which a service would have written a rate

    assert evaluate(logdir, body) > 0
    assert training.process.poll() is None
    live = peek(logdir)
    assert live is not None
    assert (live.pid, live.ended, live.attempt) == (training.process.pid, None, 1)
    assert Path(logdir, "graph.pbtxt").read_bytes() == graph
    assert {record.pid for record in read_telemetry(logdir) if hasattr(record, "pid")} == {training.process.pid}
    (events,) = [file for file in read_events(logdir) if tags(file) == ["precision"]]
    assert not [event for event in events if event.HasField("session_log") or event.graph_def]
    run = run_of(logdir)
    assert (len(run.sessions), len(run.restarts), run.state) == (1, 0, "running")


def test_before_a_training(evaluate: Any, start_training: Any, tmp_path: Path, read_telemetry: Any) -> None:
    """An evaluation that came first gives way: the training that comes is its run's first session, and not refused."""
    logdir = str(tmp_path / "run")
    begun: list[Any] = []

    def body(supervisor: Any, sess: Any) -> None:
        training = start_training(PROGRAM, "20", logdir=logdir)
        assert training.lines_until("training")[-1:] == ["training"]
        begun.append(training)
        assert not supervisor.should_stop()

    evaluate(logdir, body)
    (training,) = begun
    assert training.process.poll() is None
    live = peek(logdir)
    assert live is not None
    assert (live.pid, live.ended) == (training.process.pid, None)
    assert live.history is not None and live.history.restarts == {}
    (record,) = [item for item in read_telemetry(logdir) if getattr(item, "pid", None) == training.process.pid]
    assert (record.previous_outcome, record.previous_step) == (None, None)
    assert not [item for item in read_telemetry(logdir) if type(item).__name__ == "StopRecord"]


def test_after_a_training(train: Any, evaluate: Any, logdir: str, read_telemetry: Any) -> None:
    """An evaluation after a training is no session of its run."""
    train(steps=3)
    records, live = read_telemetry(logdir), peek(logdir)
    assert evaluate(logdir) == 3
    assert (read_telemetry(logdir), peek(logdir)) == (records, live)
    train()
    after = peek(logdir)
    assert after is not None and after.history is not None
    assert (after.attempt, after.history.restarts) == (2, {"completed": 1})


def test_without_services(ours: Any, training: Any, build_model: Any, saved_step: Any, wait_until: Any) -> None:
    """With a saver, and no services, a session is given beside a training; the services would write: refused."""
    wait_until(lambda: saved_step(training.logdir) > 0, 120)
    with tf.Graph().as_default():
        model = build_model()
        supervisor = ours.Supervisor(logdir=training.logdir)
        with supervisor.managed_session(start_standard_services=False) as sess:
            assert sess.run(model.global_step) > 0
            sess.run(model.train_op)
            assert supervisor.save_checkpoint() is None
            with pytest.raises(LogdirInUseError):
                supervisor.start_standard_services(sess)
    live = peek(training.logdir)
    assert live is not None
    assert live.pid == training.process.pid
    assert live.ended is None


def test_a_training_without_a_saver_is_a_run(ours: Any, build_model: Any, logdir: str, read_telemetry: Any) -> None:
    """A program that saves by itself, with a saver that the supervisor does not know, is a run, session by session."""
    for _ in range(2):
        with tf.Graph().as_default():
            model = build_model()
            supervisor = ours.Supervisor(logdir=logdir, saver=None)
            with supervisor.managed_session() as sess:
                sess.run(model.train_op)
    sessions = [record for record in read_telemetry(logdir) if isinstance(record, SessionRecord)]
    assert [session.attempt for session in sessions] == [1, 2]


def test_telemetry_without_a_summary_writer(train: Any, logdir: str, read_events: Any) -> None:
    """With summary_writer=None and a logdir, what the supervisor has to say is written all the same."""

    def body(supervisor: Any, sess: Any, model: Any) -> None:
        assert supervisor.summary_writer is None
        with pytest.raises(RuntimeError, match="requires a summary writer"):
            supervisor.summary_computed(sess, b"")

    train(steps=5, body=body, summary_writer=None)
    run = run_of(logdir)
    assert (run.state, run.step, [item.step for item in run.checkpoints][-1:]) == ("completed", 5, [5])
    assert {tag.partition("/")[0] for file in read_events(logdir) for tag in tags(file)} == {"supervisor"}


def test_telemetry_can_be_turned_off(train: Any, tmp_path: Path, read_events: Any) -> None:
    """With write_telemetry=False an events file holds what the original's would; without a writer there is none."""
    silent = Options(write_telemetry=False)
    train(steps=2, logdir=str(tmp_path / "a"), summary_writer=None, options=silent)
    assert list((tmp_path / "a").glob("*tfevents*")) == []
    train(steps=2, logdir=str(tmp_path / "b"), options=silent)
    (events,) = read_events(tmp_path / "b")
    assert [event.session_log.status for event in events if event.HasField("session_log")][-1] == v1.SessionLog.STOP
    assert not [tag for tag in tags(events) if tag.startswith("supervisor/")]


def test_a_checkpoint_that_is_deleted_while_it_is_looked_at(
    ours: Any, build_model: Any, save_steps: Any, logdir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training beside has saved another one, and keeps no more: that one is restored."""
    model = build_model()
    save_steps(logdir, model, 3)
    verify = bundle.verify

    def late(path: str, **how: Any) -> Any:
        old = list(Path(logdir).glob("model.ckpt-3*"))
        for file in old:
            file.unlink()
        if old:
            save_steps(logdir, model, 7)
        return verify(path, **how)

    monkeypatch.setattr(bundle, "verify", late)
    with ours.SessionManager().prepare_session("", saver=v1.train.Saver(), checkpoint_dir=logdir) as sess:
        assert sess.run(model.global_step) == 7

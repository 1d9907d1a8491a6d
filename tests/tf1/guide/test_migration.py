"""What the page on migration says is kept, and what is different: shown of the original and of this project."""

from __future__ import annotations

import glob
import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import supervisor_core
from supervisor_core.base.errors import LogdirInUseError

v1 = tf.compat.v1
ORIGINAL, OURS = v1.train.Supervisor, supervisor_core.Supervisor
PAGE = (Path(__file__).parents[3] / "docs" / "migration.md").read_text()
START, STOP, CHECKPOINT = v1.SessionLog.START, v1.SessionLog.STOP, v1.SessionLog.CHECKPOINT
TRAIN = (
    "Supervisor",
    "SessionManager",
    "Coordinator",
    "LooperThread",
    "MonitoredTrainingSession",
    "MonitoredSession",
    "SingularMonitoredSession",
    "ChiefSessionCreator",
    "WorkerSessionCreator",
    "CheckpointSaverHook",
    "SummarySaverHook",
    "StepCounterHook",
    "StopAtStepHook",
    "GlobalStepWaiterHook",
    "ProfilerHook",
)


@pytest.fixture(autouse=True)
def _threads_in_graph_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after ``disable_eager_execution``: else the original cannot save from its thread."""
    monkeypatch.setattr(context, "default_execution_mode", context.GRAPH_MODE)


class Seen:
    """A run under one of the two facades."""

    def __init__(self, facade: Any, directory: Path, read_events: Any) -> None:
        self.facade, self.is_ours = facade, facade is OURS
        self.directory, self.logdir = directory, str(directory / "run")
        self.read_events = read_events

    def session_logs(self) -> list[tuple[int, str]]:
        """Status and path of each session log."""
        events = [event for file in self.read_events(self.logdir) for event in file if event.HasField("session_log")]
        return [(event.session_log.status, event.session_log.checkpoint_path) for event in events]


ORIGINAL_TOO = pytest.param(ORIGINAL, marks=pytest.mark.real, id="original")


@pytest.fixture(params=[ORIGINAL_TOO, pytest.param(OURS, id="ours")])
def seen(request: pytest.FixtureRequest, tmp_path: Path, read_events: Any) -> Seen:
    """The original, which has races of its own, and this project."""
    return Seen(request.param, tmp_path, read_events)


def build_model(batches: int = 5) -> Any:
    """The smallest model with an input that ends: its weight is the step. Returns the training operation."""
    step = v1.train.get_or_create_global_step()
    weight = v1.get_variable("weight", initializer=0.0, use_resource=False)
    batch = v1.data.make_one_shot_iterator(tf.data.Dataset.range(batches)).get_next()
    with tf.control_dependencies([batch]):
        return weight.assign(tf.cast(tf.identity(step.assign_add(1)), tf.float32)).op


def saved_step(logdir: str) -> int | None:
    """The step of the newest checkpoint that the state file names."""
    newest = v1.train.latest_checkpoint(logdir)
    return None if newest is None else int(newest.rpartition("-")[2])


def train(facade: Any, logdir: str, body: Callable[[Any, Any], object] = lambda sv, sess: None, **rest: Any) -> Any:
    """Train five steps in a graph of their own; return the supervisor."""
    with tf.Graph().as_default():
        train_op = build_model()
        sv = facade(logdir=logdir, **{"save_model_secs": 600, "save_summaries_secs": 0, **rest})
        with sv.managed_session() as sess:
            body(sv, sess)
            while not sv.should_stop():
                sess.run(train_op)
    return sv


def wait_for_checkpoint(sv: Any, sess: Any) -> None:
    """Wait until the timer's first checkpoint is there, before the first step."""
    while v1.train.latest_checkpoint(os.path.dirname(sv.save_path)) is None:
        assert not sv.coord.wait_for_stop(0.01)


def run_block(section: str, logdir: str) -> dict[str, Any]:
    """Run the block of a section of the page in a graph of its own, with its logdir; return its names."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.split(section, 1)[1].split("\n## ", 1)[0], re.DOTALL)
    with tf.Graph().as_default():
        names: dict[str, Any] = {"train_op": build_model()}
        exec(compile(block.replace("/runs/a", logdir), "migration.md", "exec"), names)
    return names


def test_each_class_takes_the_original_s_arguments() -> None:
    """In its order, by its names, with its defaults; what is added can only be named."""
    for module, names in ((v1.train, TRAIN), (v1.summary, ["FileWriter"])):
        for name in names:
            theirs = inspect.signature(getattr(module, name)).parameters.values()
            ours = inspect.signature(getattr(supervisor_core, name)).parameters.values()
            expected = [(item.name, item.default) for item in theirs]
            positional = [item for item in ours if item.kind is not inspect.Parameter.KEYWORD_ONLY]
            assert [(item.name, item.default) for item in positional] == expected, name


def test_the_other_hooks_are_tensorflow_s_own() -> None:
    """What is good as it is, is the very object."""
    for name in ("NanTensorHook", "LoggingTensorHook", "FinalOpsHook", "FeedFnHook", "Scaffold"):
        assert getattr(supervisor_core, name) is getattr(v1.train, name)


def test_the_block_on_subclasses(logdir: str) -> None:
    """The override decides on the saver."""
    sv = run_block("## Subclasses", logdir)["sv"]
    assert sv.saver.saver_def.max_to_keep == 2
    assert saved_step(logdir) == 5


def test_the_block_on_evaluation(logdir: str, read_events: Any) -> None:
    """It restores what was trained, and leaves the run as it was: files, lease and events."""
    train(OURS, logdir)

    def found() -> dict[str, bytes]:
        names = [name for name in os.listdir(logdir) if "tfevents" not in name]
        return {name: Path(logdir, name).read_bytes() for name in names if Path(logdir, name).is_file()}

    before = found()
    run_block("## Evaluation on a training's logdir", logdir)
    assert found() == before
    assert ".supervisor.lease" in before
    assert [len(file) for file in read_events(logdir)][1:] == [1]  # the file's version, and nothing else


def test_checkpoints_have_tensorflow_s_names(logdir: str) -> None:
    """The names of TensorFlow's files."""
    train(OURS, logdir)
    names = {name for name in os.listdir(logdir) if not name.startswith((".", "events", "graph"))}
    expected = {"checkpoint", *(f"model.ckpt-5.{end}" for end in ("index", "meta", "data-00000-of-00001"))}
    assert expected <= names
    assert {name for name in names - {"checkpoint"} if not name.startswith("model.ckpt-")} == set()


def test_the_standard_events_in_their_order(logdir: str, read_events: Any) -> None:
    """The standard events of one session, in their order."""

    def body(sv: Any, sess: Any) -> None:
        with sv.coord.stop_on_exception():
            wait_for_checkpoint(sv, sess)
        sv.summary_computed(sess, v1.Summary(value=[v1.Summary.Value(tag="loss", simple_value=1.0)]))

    train(OURS, logdir, body)
    (events,) = read_events(logdir, telemetry=False)
    kinds = [event.WhichOneof("what") for event in events]
    assert kinds[:3] == ["file_version", "graph_def", "meta_graph_def"]
    statuses = [event.session_log.status for event in events if event.HasField("session_log")]
    assert (statuses[0], statuses[-1]) == (START, STOP)
    assert CHECKPOINT in statuses
    assert "loss" in {value.tag for event in events for value in event.summary.value}


def test_the_old_names_of_methods() -> None:
    """All that the row names exist, and no other of the original is missing."""
    named = {name for name in vars(ORIGINAL) if name[0].isupper() and name != "USE_DEFAULT"}
    assert len(named) == 10
    assert all(f"`{name}`" in PAGE for name in named)
    assert all(callable(getattr(OURS, name)) for name in named)


def test_errors_of_the_same_types_and_texts() -> None:
    """Two of them; the contract's tests have them all."""
    for facade in (ORIGINAL, OURS):
        with tf.Graph().as_default():
            build_model()
            sv = facade()
            with pytest.raises(RuntimeError, match=r"^Writing a summary requires a summary writer"):
                sv.summary_computed(None, b"")
            with pytest.raises(ValueError, match=r"^When using replicas, all Variables must have their device set"):
                facade(is_chief=False)


def test_the_last_step_is_saved_at_a_clean_end(seen: Seen) -> None:
    """Under the original the newest checkpoint is that of the timer."""
    train(seen.facade, seen.logdir, wait_for_checkpoint)
    assert saved_step(seen.logdir) == (5 if seen.is_ours else 0)


def test_what_is_on_disk_is_not_written_again(seen: Seen) -> None:
    """The original writes at once what it has just restored."""
    train(OURS, seen.logdir)
    path = os.path.join(seen.logdir, "model.ckpt-5.index")
    written = os.stat(path).st_mtime_ns

    def body(sv: Any, sess: Any) -> None:
        while not seen.is_ours and os.stat(path).st_mtime_ns == written:
            assert not sv.coord.wait_for_stop(0.01)
        sv.request_stop()

    train(seen.facade, seen.logdir, body)
    assert (os.stat(path).st_mtime_ns == written) == seen.is_ours


def test_a_checkpoint_holds_one_step(seen: Seen) -> None:
    """Its name says which; the original's mix steps now and then, which is a matter of chance."""
    if not seen.is_ours:
        return  # when it mixes is a matter of chance
    found: set[int] = set()

    def body(sv: Any, sess: Any) -> None:
        while len(found) < 5:
            for path in glob.glob(f"{seen.logdir}/model.ckpt-*.index"):
                step = int(path.rpartition("-")[2].removesuffix(".index"))
                found.add(step)
            sess.run(more)

    with tf.Graph().as_default():
        build_model()
        step, weight = v1.global_variables()
        more = weight.assign(tf.cast(tf.identity(step.assign_add(1)), tf.float32)).op
        sv = OURS(logdir=seen.logdir, save_model_secs=0.02, saver=v1.train.Saver(max_to_keep=100))
        with sv.managed_session() as sess:
            body(sv, sess)
    for path in glob.glob(f"{seen.logdir}/model.ckpt-*.index"):
        reader = tf.train.load_checkpoint(path.removesuffix(".index"))
        name = int(path.rpartition("-")[2].removesuffix(".index"))
        assert reader.get_tensor("global_step") == reader.get_tensor("weight") == name


def test_a_damaged_newest_checkpoint(seen: Seen) -> None:
    """The original fails."""
    train(OURS, seen.logdir)
    train(OURS, seen.logdir)
    data = Path(seen.logdir, "model.ckpt-10.data-00000-of-00001")
    data.write_bytes(bytes(len(data.read_bytes())))
    if seen.is_ours:
        first: list[int] = []
        train(seen.facade, seen.logdir, lambda sv, sess: first.append(sess.run(sv.global_step)))
        assert first == [5]
    else:
        with pytest.raises(tf.errors.DataLossError):
            train(seen.facade, seen.logdir)


def test_an_error_after_a_requested_stop(seen: Seen) -> None:
    """The original loses it."""

    def body(sv: Any, sess: Any) -> None:
        sv.request_stop()
        raise KeyError("a bug")

    if seen.is_ours:
        with pytest.raises(KeyError, match="a bug"):
            train(seen.facade, seen.logdir, body)
    else:
        train(seen.facade, seen.logdir, body)


def test_a_second_chief(seen: Seen) -> None:
    """The original lets both write."""

    def body(sv: Any, sess: Any) -> None:
        if seen.is_ours:
            with pytest.raises(LogdirInUseError):
                train(seen.facade, seen.logdir)
        else:
            train(seen.facade, seen.logdir)

    train(seen.facade, seen.logdir, body)


def test_the_checkpoint_event_s_path(seen: Seen) -> None:
    """The original's exists nowhere."""
    train(seen.facade, seen.logdir, wait_for_checkpoint)
    paths = {path for status, path in seen.session_logs() if status == CHECKPOINT}
    exists = {v1.train.checkpoint_exists(path) for path in paths}
    assert exists == {seen.is_ours}


def test_the_first_rate(seen: Seen) -> None:
    """The original's is 0: it measures before the first step."""
    rates: list[float] = []

    class Writer(supervisor_core.FileWriter):
        def add_summary(self, summary: Any, global_step: Any = None) -> None:
            if not isinstance(summary, bytes):
                rates.extend(item.simple_value for item in summary.value if item.tag == "global_step/sec")
            super().add_summary(summary, global_step)

    def body(sv: Any, sess: Any) -> None:
        if not seen.is_ours:  # It measures at once: a step before that is in the rate on a busy machine.
            while not rates:
                assert not sv.coord.wait_for_stop(0.01)
        while not rates:
            sess.run(v1.get_collection("more"))

    with tf.Graph().as_default():
        build_model()
        step = v1.train.get_global_step()
        v1.add_to_collection("more", step.assign_add(1).op)
        sv = seen.facade(logdir=seen.logdir, save_summaries_secs=0.2, summary_writer=Writer(seen.logdir))
        with sv.managed_session() as sess:
            body(sv, sess)
    assert (rates[0] > 0) == seen.is_ours


def test_a_resource_variable_as_global_step(seen: Seen) -> None:
    """The original does not find it."""
    with tf.Graph().as_default():
        step = v1.Variable(7, name="global_step", trainable=False, use_resource=True)
        sv = seen.facade()
        assert (sv.global_step is step) == seen.is_ours
        if not seen.is_ours:
            assert sv.global_step is None or sv.global_step.dtype == tf.resource


def test_a_fault_of_the_outside_world_in_a_service(seen: Seen) -> None:
    """The original stops."""
    failed: list[str] = []

    class Writer(supervisor_core.FileWriter):
        def add_summary(self, summary: Any, global_step: Any = None) -> None:
            tags = [] if isinstance(summary, bytes) and b"supervisor/" in summary else ["loss"]
            if tags and len(failed) < 1:
                failed.append("once")
                raise tf.errors.UnavailableError(None, None, "a file server is away")
            if tags:
                failed.append("again")
            super().add_summary(summary, global_step)

    def use() -> None:
        with tf.Graph().as_default():
            build_model()
            v1.summary.scalar("loss", 1.0)
            options = {"options": supervisor_core.Options(retry_initial_secs=0.05)} if seen.is_ours else {}
            sv = seen.facade(logdir=seen.logdir, global_step=None, summary_writer=Writer(seen.logdir), **options)
            with sv.managed_session():
                while not (sv.should_stop() or "again" in failed):
                    sv.coord.wait_for_stop(0.01)

    if seen.is_ours:
        use()
        assert failed[:2] == ["once", "again"]
    else:
        with pytest.raises(tf.errors.UnavailableError):
            use()


def test_without_a_summary_writer(seen: Seen) -> None:
    """The original writes no events file."""
    train(seen.facade, seen.logdir, summary_writer=None)
    assert bool(glob.glob(f"{seen.logdir}/*tfevents*")) == seen.is_ours
    if seen.is_ours:
        other = str(seen.directory / "other")
        train(OURS, other, summary_writer=None, options=supervisor_core.Options(write_telemetry=False))
        assert not glob.glob(f"{other}/*tfevents*")


def test_further_files_in_the_logdir(seen: Seen) -> None:
    """The original leaves none."""
    train(seen.facade, seen.logdir)
    known = ("events.out.tfevents", "graph.pbtxt", "checkpoint", "model.ckpt-")
    further = {name for name in os.listdir(seen.logdir) if not name.startswith(known)}
    assert all(name.startswith(".supervisor") for name in further)
    assert (".supervisor.lease" in further) == seen.is_ours


def test_further_events(seen: Seen) -> None:
    """The original writes none."""
    train(seen.facade, seen.logdir)
    files = seen.read_events(seen.logdir)
    found = {value.tag.partition("/")[0] for file in files for event in file for value in event.summary.value}
    assert ("supervisor" in found) == seen.is_ours

"""What the page on migration says is kept, and what is different: shown of the original and of this project."""

from __future__ import annotations

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

v1 = tf.compat.v1
ORIGINAL, OURS = v1.train.Supervisor, supervisor_core.Supervisor
PAGE = (Path(__file__).parents[3] / "docs" / "migration.md").read_text()
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
    """It restores what was trained, and leaves the run as it was: files and events."""
    train(OURS, logdir)

    def found() -> dict[str, bytes]:
        names = [name for name in os.listdir(logdir) if "tfevents" not in name]
        return {name: Path(logdir, name).read_bytes() for name in names if Path(logdir, name).is_file()}

    before = found()
    run_block("## Evaluation on a training's logdir", logdir)
    assert found() == before
    assert ".supervisor.lock" in before
    assert [len(file) for file in read_events(logdir)][1:] == [1]  # the file's version, and nothing else


def test_checkpoints_have_tensorflow_s_names(logdir: str) -> None:
    """The names of TensorFlow's files."""
    train(OURS, logdir)
    names = {name for name in os.listdir(logdir) if not name.startswith((".", "events", "graph"))}
    expected = {"checkpoint", *(f"model.ckpt-5.{end}" for end in ("index", "meta", "data-00000-of-00001"))}
    assert expected <= names
    assert {name for name in names - {"checkpoint"} if not name.startswith("model.ckpt-")} == set()

"""The graph that is recorded is the graph that is trained, and what a program exports of it needs nothing of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from google.protobuf import text_format

import supervisor_core

v1 = tf.compat.v1
SERVE = Path(__file__).parent / "serve.py"
CPU = "/device:CPU:0"

Open = Callable[[str], Any]


@contextmanager
def supervised(logdir: str) -> Iterator[tuple[Any, Any]]:
    """A supervised session, and its saver."""
    sv = supervisor_core.Supervisor(logdir=logdir, summary_op=None)
    with sv.managed_session() as sess:
        yield sess, sv.saver


@contextmanager
def monitored(logdir: str) -> Iterator[tuple[Any, Any]]:
    """A monitored session's own session, and its saver."""
    scaffold = v1.train.Scaffold()
    with supervisor_core.MonitoredTrainingSession(checkpoint_dir=logdir, scaffold=scaffold) as sess:
        yield sess._tf_sess(), scaffold.saver


@pytest.fixture(params=[supervised, monitored], ids=["Supervisor", "MonitoredTrainingSession"])
def session_of(request: pytest.FixtureRequest) -> Any:
    """Opens a session on a logdir, whichever way."""
    return request.param


def build(device: str = "", *, resource: bool = True) -> tuple[Any, Any, Any]:
    """A model that doubles what it is fed, once it has done two steps; return input, output and training op."""
    with tf.device(device):
        step = v1.train.get_or_create_global_step()
        weight = v1.get_variable("weight", [1], initializer=v1.zeros_initializer(), use_resource=resource)
        given = v1.placeholder(tf.float32, [None], name="given")
        doubled = tf.multiply(given, weight, name="doubled")
        train_op = tf.group(v1.assign_add(step, 1), v1.assign_add(weight, [1.0]))
    return given, doubled, train_op


@pytest.mark.parametrize("device", ["", CPU], ids=["not placed", "placed as replicas are"])
def test_what_is_recorded_is_what_is_trained(
    graph: Any, logdir: str, read_events: Any, session_of: Open, device: str
) -> None:
    """``graph.pbtxt``, the graph event, the meta graph event and each ``.meta`` hold the session's graph, to the last
    node, from the session's first moment to its last."""
    *_, train_op = build(device)
    with session_of(logdir) as (sess, _):
        at_start = sess.graph.as_graph_def(add_shapes=True)
        sess.run(train_op)
    at_end = sess.graph.as_graph_def(add_shapes=True)
    events = [event for events in read_events(logdir, telemetry=False) for event in events]
    recorded = {
        "graph.pbtxt": text_format.Parse((Path(logdir) / "graph.pbtxt").read_text(), v1.GraphDef()),
        "graph event": v1.GraphDef.FromString(next(event.graph_def for event in events if event.graph_def)),
        "meta graph event": v1.MetaGraphDef.FromString(
            next(event.meta_graph_def for event in events if event.meta_graph_def)
        ).graph_def,
        ".meta": v1.MetaGraphDef.FromString((Path(logdir) / "model.ckpt-1.meta").read_bytes()).graph_def,
    }
    assert at_start == at_end
    different = [where for where, graph_def in recorded.items() if graph_def != at_start]
    assert not different


def test_nothing_of_ours_is_in_the_graph(graph: Any, logdir: str, session_of: Open) -> None:
    """After sessions, checkpoints and summaries the graph has the model's nodes, and those that the original adds."""
    *_, train_op = build()
    with session_of(logdir) as (sess, _):
        sess.run(train_op)
    assert v1.train.latest_checkpoint(logdir)
    ours = [op.name for op in graph.get_operations() if "supervisor" in op.name.lower()]
    assert not ours


def export_builder(sess: Any, directory: str, given: Any, doubled: Any, saver: Any) -> None:
    """With ``SavedModelBuilder``, into the finalized graph as it is."""
    builder = v1.saved_model.Builder(directory)
    signature = v1.saved_model.predict_signature_def({"given": given}, {"doubled": doubled})
    builder.add_meta_graph_and_variables(sess, ["serve"], {"serving_default": signature}, saver=saver)
    builder.save()


def export_simple(sess: Any, directory: str, given: Any, doubled: Any, saver: Any) -> None:
    """With ``simple_save``, which makes a saver of its own."""
    sess.graph._unsafe_unfinalize()
    v1.saved_model.simple_save(sess, directory, {"given": given}, {"doubled": doubled})
    sess.graph.finalize()


def export_frozen(sess: Any, directory: str, given: Any, doubled: Any, saver: Any) -> None:
    """With ``convert_variables_to_constants``."""
    frozen = v1.graph_util.convert_variables_to_constants(sess, sess.graph_def, [doubled.op.name])
    tf.io.write_graph(frozen, directory, "frozen.pb", as_text=False)


def export_meta(sess: Any, directory: str, given: Any, doubled: Any, saver: Any) -> None:
    """With ``export_meta_graph`` and the saver."""
    os.makedirs(directory)
    saver.save(sess, os.path.join(directory, "model"), write_meta_graph=False)
    v1.train.export_meta_graph(os.path.join(directory, "model.meta"), graph=sess.graph, saver_def=saver.saver_def)


EXPORTS = {"builder": export_builder, "simple": export_simple, "frozen": export_frozen, "meta": export_meta}
WAYS = {"Supervisor": supervised, "MonitoredTrainingSession": monitored}
PLACED = {"not placed": "", "placed as replicas are": CPU}
MODELS = [
    ("Supervisor", "resource", "not placed"),
    ("Supervisor", "ref", "placed as replicas are"),
    ("MonitoredTrainingSession", "resource", "placed as replicas are"),
    ("MonitoredTrainingSession", "ref", "not placed"),
]
"""Each pair of two properties is there once."""


def test_what_a_program_exports_serves_without_us(tmp_path: Path) -> None:
    """A SavedModel, a frozen graph and a meta graph, made in a supervised session, load and compute in a process in
    which supervisor_core cannot be imported."""
    names = []
    for way, kind, placed in MODELS:
        directory = tmp_path / f"{way}, {kind}, {placed}"
        with tf.Graph().as_default():
            given, doubled, train_op = build(PLACED[placed], resource=kind == "resource")
            with WAYS[way](str(directory / "run")) as (sess, saver):
                for _ in range(2):
                    sess.run(train_op)
                for name, export in EXPORTS.items():
                    export(sess, str(directory / name), given, doubled, saver)
                    names.append(f"{directory.name}/{name}")
        for path in (directory / "frozen" / "frozen.pb", directory / "builder" / "saved_model.pb"):
            assert b"supervisor_shadow" not in path.read_bytes()
        assert b"supervisor" not in (directory / "frozen" / "frozen.pb").read_bytes()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.run(
        [sys.executable, "-I", str(SERVE), str(tmp_path), *names],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines() == [f"{name}:6.0" for name in names]

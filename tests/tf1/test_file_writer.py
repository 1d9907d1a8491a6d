from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from supervisor_core.events import FileWriter

V1 = tf.compat.v1


def everything(writer: Any, graph: Any) -> None:
    """Call every method of a FileWriter, TensorFlow's or ours."""
    loss = V1.Summary(value=[V1.Summary.Value(tag="loss", simple_value=0.5)])
    writer.add_summary(loss, 1)
    writer.add_summary(loss.SerializeToString(), np.int64(2))
    with V1.Session(graph=graph) as session:
        writer.add_summary(session.run(graph.get_tensor_by_name("merged/merged:0")), 3)
        writer.add_summary(session.run(graph.get_tensor_by_name("merged/merged:0")), 4)
    writer.add_session_log(V1.SessionLog(status=V1.SessionLog.START), global_step=5)
    writer.add_session_log(V1.SessionLog(status=V1.SessionLog.CHECKPOINT, checkpoint_path="/tmp/m.ckpt-6"), 6)
    writer.add_graph(graph, 7)
    writer.add_meta_graph(V1.train.export_meta_graph(graph=graph), 8)
    metadata = V1.RunMetadata()
    metadata.step_stats.dev_stats.add(device="/cpu:0")
    writer.add_run_metadata(metadata, "trace", 9)
    writer.add_event(V1.Event(wall_time=12.5, step=-10))
    writer.flush()


@pytest.fixture
def summary_graph(graph: Any) -> Any:
    """A graph with a scalar, a histogram and a tensor summary, merged."""
    V1.summary.scalar("scalar", tf.constant(3.0))
    V1.summary.histogram("histogram", tf.constant([1.0, 2.0]))
    V1.summary.tensor_summary("tensor", tf.constant(["text"]), collections=[V1.GraphKeys.SUMMARIES])
    V1.summary.merge_all(name="merged")
    return graph


def test_the_same_calls_make_the_same_events(tmp_path: Path, summary_graph: Any) -> None:
    """Event by event, ours writes what TensorFlow's own writer writes, wall times and the writer's name apart."""
    found = []
    for make, name in ((V1.summary.FileWriter, "theirs"), (FileWriter, "ours")):
        writer = make(str(tmp_path / name), summary_graph)
        everything(writer, summary_graph)
        writer.close()
        (path,) = (tmp_path / name).glob("*tfevents*")
        events = list(V1.train.summary_iterator(str(path)))
        for event in events[:-1]:
            assert event.wall_time > 1e9
            event.wall_time = 0
        events[0].ClearField("source_metadata")
        found.append(events)
    theirs, ours = found
    assert len(ours) == 13
    assert [event.WhichOneof("what") for event in ours] == [event.WhichOneof("what") for event in theirs]
    for mine, original in zip(ours, theirs, strict=True):
        if mine.graph_def:  # a map's order varies from one serialization to the next
            assert V1.GraphDef.FromString(mine.graph_def) == V1.GraphDef.FromString(original.graph_def)
            mine.graph_def = original.graph_def = b""
        if mine.meta_graph_def:
            mine_meta, original_meta = (V1.MetaGraphDef.FromString(event.meta_graph_def) for event in (mine, original))
            assert mine_meta.graph_def == original_meta.graph_def
            assert mine_meta.meta_info_def.tensorflow_version == original_meta.meta_info_def.tensorflow_version
            assert dict(mine_meta.collection_def) == dict(original_meta.collection_def)
            mine.meta_graph_def = original.meta_graph_def = b""
        assert mine == original


def test_the_rest_of_the_interface_is_there() -> None:
    """Whatever a program may call on TensorFlow's FileWriter, ours has too."""
    public = {name for name in dir(V1.summary.FileWriter) if not name.startswith("_")}
    assert public <= set(dir(FileWriter))

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from tensorboard.compat.proto.config_pb2 import RunMetadata
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.meta_graph_pb2 import MetaGraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.summary_pb2 import Summary

from supervisor_core.base.errors import EventsWriteError
from supervisor_core.events import FileWriter
from tests.cases import each

ReadLogdir = Callable[..., Any]

GRAPH_DEF = GraphDef(node=[NodeDef(name="a", op="NoOp")])


class Asset:
    """A plugin's asset container, as TensorFlow keeps it in a graph's collections."""

    plugin_name = "text"

    def assets(self) -> dict[str, Any]:
        return {"names.json": '["é"]', "raw": b"\x00"}


class Graph:
    """What the writer asks of a graph."""

    def __init__(self, **collections: Any) -> None:
        self.collections = collections

    def as_graph_def(self, *, add_shapes: bool) -> GraphDef:
        assert add_shapes
        return GRAPH_DEF

    def get_collection(self, name: str) -> list[Any]:
        return list(self.collections.get(name, []))


def simple(tag: str = "a", value: float = 1.0) -> Summary:
    """A summary of one scalar."""
    return Summary(value=[Summary.Value(tag=tag, simple_value=value)])


def test_a_relative_directory_is_the_one_that_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_logdir: ReadLogdir
) -> None:
    """After ``os.chdir`` a new file, and the assets of plugins, go there as well; the program reads back its name."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    writer = FileWriter("run")
    monkeypatch.chdir(elsewhere)
    writer.close()
    writer.reopen()
    writer.add_summary(simple(), 5)
    writer.add_graph(Graph(__tensorboard_plugin_asset__=["a"], __tensorboard_plugin_asset__a=[Asset()]))
    writer.close()
    assert writer.get_logdir() == "run"
    assert len(read_logdir(str(tmp_path / "run"))) == 2 and (tmp_path / "run" / "plugins" / "text" / "raw").exists()
    assert list(elsewhere.iterdir()) == []


def test_the_signature_is_the_original_s() -> None:
    """Arguments by position and by name, with the original's defaults."""
    parameters = inspect.signature(FileWriter).parameters
    assert [(name, parameter.default) for name, parameter in parameters.items()] == [
        ("logdir", inspect.Parameter.empty),
        ("graph", None),
        ("max_queue", 10),
        ("flush_secs", 120),
        ("graph_def", None),
        ("filename_suffix", None),
        ("session", None),
    ]


def test_everything_that_can_be_added_reads_back(tmp_path: Path, read_logdir: ReadLogdir) -> None:
    """Summaries, logs, graphs, meta graphs, run metadata and events arrive whole, in order, at their steps."""
    with FileWriter(str(tmp_path), filename_suffix=".eval") as writer:
        writer.add_summary(simple(), 1)
        writer.add_summary(simple().SerializeToString(), np.int64(2))
        writer.add_session_log(SessionLog(status=SessionLog.CHECKPOINT, checkpoint_path="/m-3"), 3)
        writer.add_graph(Graph(), 4)
        writer.add_meta_graph(MetaGraphDef(graph_def=GRAPH_DEF), 5)
        writer.add_run_metadata(RunMetadata(), "run", 6)
        writer.add_event(Event(wall_time=7.0, step=7))
        writer.scalar("b", 8.0, 8)
    (contents,) = read_logdir(tmp_path)
    events = contents.events
    assert contents.steps == list(range(1, 9))
    assert events[0].summary == events[1].summary == simple()
    assert events[2].session_log == SessionLog(status=SessionLog.CHECKPOINT, checkpoint_path="/m-3")
    assert GraphDef.FromString(events[3].graph_def) == GRAPH_DEF
    assert MetaGraphDef.FromString(events[4].meta_graph_def).graph_def == GRAPH_DEF
    assert (events[5].tagged_run_metadata.tag, events[5].tagged_run_metadata.run_metadata) == ("run", b"")
    assert events[6] == Event(wall_time=7.0, step=7)
    assert events[7].summary == simple("b", 8.0)
    assert (writer.path or "").endswith(".eval")
    assert (writer.written, writer.dropped, writer.pending, writer.failing, writer.last_error) == (8, 0, 0, False, None)


def test_a_graph_given_at_construction_comes_with_its_meta_graph(tmp_path: Path, read_logdir: ReadLogdir) -> None:
    """The first events of the file are the graph and the meta graph, at no step."""
    FileWriter(tmp_path, Graph()).close()
    (contents,) = read_logdir(tmp_path)
    graph, meta_graph = contents.events
    assert GraphDef.FromString(graph.graph_def) == GRAPH_DEF
    assert MetaGraphDef.FromString(meta_graph.meta_graph_def).graph_def == GRAPH_DEF
    assert contents.steps == [0, 0]


def test_a_graph_def_is_taken_and_deprecated(tmp_path: Path, read_logdir: ReadLogdir, caplog: Any) -> None:
    """A GraphDef works in either argument, as does a graph in the wrong one; each is said."""
    with FileWriter(tmp_path) as writer:
        writer.add_graph(GRAPH_DEF)
        writer.add_graph(None, graph_def=GRAPH_DEF)
        with caplog.at_level(logging.WARNING):
            writer.add_graph(None, graph_def=Graph())
    (contents,) = read_logdir(tmp_path)
    assert [GraphDef.FromString(event.graph_def) for event in contents.events] == [GRAPH_DEF] * 3
    assert caplog.text.count("Passing a `GraphDef`") == 2
    assert caplog.text.count("please use the `graph` named argument") == 1


def test_wrong_graphs_are_refused_as_the_original_does(tmp_path: Path) -> None:
    """Same exceptions, same texts."""
    with FileWriter(tmp_path) as writer:
        with pytest.raises(ValueError, match=r"Please pass only graph, or graph_def \(deprecated\), but not both\."):
            writer.add_graph(Graph(), graph_def=GRAPH_DEF)
        with pytest.raises(TypeError, match="The passed graph must be an instance of `Graph` or the deprecated"):
            writer.add_graph("graph")
        with pytest.raises(TypeError, match="meta_graph_def must be type MetaGraphDef, saw type: <class 'str'>"):
            writer.add_meta_graph("meta graph")
        writer.add_run_metadata(RunMetadata(), "once")
        with pytest.raises(ValueError, match="The provided tag was already used for this event type"):
            writer.add_run_metadata(RunMetadata(), "once")
    with pytest.raises(ValueError, match=r"session=.* is not supported"):
        FileWriter(tmp_path, session=object())


@each(
    "method, argument, text",
    [
        ("add_summary", "text", "summary must be a Summary"),
        ("add_summary", Event(), "summary must be a Summary"),
        ("add_session_log", "text", "session_log must be a SessionLog"),
        ("add_event", simple(), "event must be a Event"),
    ],
)
def test_what_is_no_such_message_is_refused_where_it_is_added(
    tmp_path: Path, method: str, argument: Any, text: str
) -> None:
    """The error is the caller's, at the call, and names what came."""
    with FileWriter(tmp_path) as writer, pytest.raises(TypeError, match=text):
        getattr(writer, method)(argument)


@each("data", [b"\x0a\x7f", b"\xff", b"not a summary", b"\x0b"])
def test_bytes_that_are_no_summary_do_not_reach_the_file(tmp_path: Path, data: bytes, read_logdir: ReadLogdir) -> None:
    """A file stays readable, whatever is passed for a serialized summary."""
    with FileWriter(tmp_path) as writer:
        with pytest.raises(DecodeError):
            writer.add_summary(data, 1)
        writer.add_summary(b"", 2)
    (contents,) = read_logdir(tmp_path)
    assert contents.steps == [2]


def test_a_message_may_change_after_the_call(tmp_path: Path, read_logdir: ReadLogdir) -> None:
    """What is written is the message as it was when it was added."""
    message = simple(value=1.0)
    with FileWriter(tmp_path) as writer:
        for value in (1.0, 2.0):
            message.value[0].simple_value = value
            writer.add_summary(message, int(value))
    (contents,) = read_logdir(tmp_path)
    assert [event.summary.value[0].simple_value for event in contents.events] == [1.0, 2.0]


def test_metadata_is_written_once_and_the_caller_s_message_left_alone(tmp_path: Path, read_logdir: ReadLogdir) -> None:
    """Later values of a tag go without metadata in the file (the original strips the caller's own message for it)."""
    message = simple()
    message.value[0].metadata.plugin_data.plugin_name = "p"
    with FileWriter(tmp_path) as writer:
        writer.add_summary(message, 1)
        writer.add_summary(message, 2)
        writer.close()
        writer.reopen()
        writer.add_summary(message, 3)
    assert message.value[0].HasField("metadata")
    found = [
        [event.summary.value[0].HasField("metadata") for event in contents.events] for contents in read_logdir(tmp_path)
    ]
    assert found == [[True, False], [True]]


def test_plugin_assets_are_written_beside_the_events(tmp_path: Path) -> None:
    """A graph's plugins have their assets in plugins/<name>, as text or as bytes."""
    prefix = "__tensorboard_plugin_asset__"
    with FileWriter(tmp_path) as writer:
        writer.add_graph(Graph(**{prefix: ["text"], prefix + "text": [Asset()]}))
        assert (tmp_path / "plugins" / "text" / "names.json").read_text(encoding="utf-8") == '["é"]'
        assert (tmp_path / "plugins" / "text" / "raw").read_bytes() == b"\x00"
        with pytest.raises(ValueError, match="Collection for text had 2 items, expected 1"):
            writer.add_graph(Graph(**{prefix: ["text"], prefix + "text": [Asset(), Asset()]}))


def test_a_closed_writer_warns_and_does_nothing(tmp_path: Path, read_logdir: ReadLogdir) -> None:
    """Adding to, flushing and syncing a closed writer warn at the caller's line; closing it again does not."""
    writer = FileWriter(tmp_path)
    writer.add_summary(simple(), 1)
    writer.close()
    assert writer.closed
    calls: list[Callable[[], Any]] = [
        lambda: writer.add_summary(simple(), 2),
        lambda: writer.add_event(Event()),
        lambda: writer.add_session_log(SessionLog()),
        lambda: writer.add_graph(Graph()),
        lambda: writer.scalar("a", 1.0, 3),
        writer.flush,
        writer.sync,
    ]
    for call in calls:
        with pytest.warns(
            UserWarning, match="Attempting to use a closed FileWriter. The operation will be a no"
        ) as caught:
            call()
        assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer.close()
    assert [contents.steps for contents in read_logdir(tmp_path)] == [[1]]


def test_a_full_disk_raises_nothing_into_the_training(
    tmp_path: Path, faulty: Any, read_logdir: ReadLogdir, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """flush() returns while the disk is full, as add_summary() does; said once, and written when there is room."""
    monkeypatch.setattr("supervisor_core.events.writer.append_filesystem_for", lambda logdir: faulty)
    writer = FileWriter(tmp_path)
    writer.add_summary(simple(), 1)
    writer.flush()
    faulty.room = 20
    for step in (2, 3):
        writer.add_summary(simple(), step)
        writer.flush()
    assert (writer.failing, writer.pending, writer.dropped) == (True, 2, 0)
    assert caplog.text.count("No space left") == 1
    with pytest.raises(EventsWriteError, match="2 events could not be written"):
        writer.sync()
    faulty.room = None
    writer.flush()
    assert (writer.failing, writer.pending) == (False, 0)
    writer.close()
    assert [contents.steps for contents in read_logdir(tmp_path)] == [[1, 2, 3]]


def test_ten_waiting_events_block_no_caller(tmp_path: Path, read_logdir: ReadLogdir) -> None:
    """The original's default queue of ten is accepted, and not the bound."""
    with FileWriter(tmp_path, None, 10, 120) as writer:
        for step in range(1, 1001):
            writer.add_summary(simple(), step)
    assert read_logdir(tmp_path)[0].steps == list(range(1, 1001))

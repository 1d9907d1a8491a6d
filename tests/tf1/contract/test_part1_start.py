"""Contract part 1, items 8 to 14: what happens when a session is prepared, and what the services write."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1
START, STOP, CHECKPOINT = v1.SessionLog.START, v1.SessionLog.STOP, v1.SessionLog.CHECKPOINT


class RecordingWriter:
    """A summary writer that only notes what was asked of it, telemetry apart."""

    def __init__(self, calls: list[str]) -> None:
        self._calls = calls

    def reopen(self) -> None:
        self._calls.append("reopen")

    def add_graph(self, graph: Any, global_step: int | None = None, graph_def: Any = None) -> None:
        self._calls.append("graph event")

    def add_meta_graph(self, meta_graph_def: Any, global_step: int | None = None) -> None:
        self._calls.append("meta graph event")

    def add_session_log(self, session_log: Any, global_step: int | None = None) -> None:
        name = v1.SessionLog.SessionStatus.Name(session_log.status)
        self._calls.append(name if global_step is None else f"{name} at {global_step}")

    def add_summary(self, summary: Any, global_step: int | None = None) -> None:
        summary = v1.Summary.FromString(summary) if isinstance(summary, bytes) else summary
        if not any(value.tag.startswith("supervisor/") for value in summary.value):
            self._calls.append("summary")

    def add_event(self, event: Any) -> None:
        self._calls.append("graph event" if event.graph_def else "event")

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self._calls.append("close")


def recording_supervisor(facade: Any, calls: list[str], **arguments: Any) -> Any:
    """Return a supervisor that notes the order in which it calls out."""

    class Recording(facade.Supervisor):  # type: ignore[misc,name-defined]
        def start_standard_services(self, sess: Any) -> Any:
            calls.append("services")
            return super().start_standard_services(sess)

        def start_queue_runners(self, sess: Any, queue_runners: Any = None) -> Any:
            calls.append("queue runners")
            return super().start_queue_runners(sess, queue_runners)

    class RecordingManager(facade.SessionManager):  # type: ignore[misc,name-defined]
        def prepare_session(self, *args: Any, **kwargs: Any) -> Any:
            calls.append("prepare")
            return super().prepare_session(*args, **kwargs)

        def wait_for_session(self, *args: Any, **kwargs: Any) -> Any:
            calls.append("wait")
            return super().wait_for_session(*args, **kwargs)

    supervisor = Recording(session_manager=RecordingManager(), **arguments)
    clear_stop = supervisor.coord.clear_stop

    def recorded_clear_stop() -> None:
        calls.append("clear stop")
        clear_stop()

    supervisor.coord.clear_stop = recorded_clear_stop
    return supervisor


def logs(read_events: Any, logdir: str) -> list[tuple[int, int]]:
    """Return status and step of every session log in a logdir."""
    events = [event for file in read_events(logdir) for event in file]
    return [(event.session_log.status, event.step) for event in events if event.HasField("session_log")]


def test_item_08_a_chief_starts_in_this_order(facade: Any, build_model: Callable[..., Any], logdir: str) -> None:
    """Clear the stop, reopen the writer, prepare, graph, START, services, queue runners; STOP and close at the end."""
    build_model(first_step=3)
    calls: list[str] = []
    supervisor = recording_supervisor(
        facade,
        calls,
        logdir=logdir,
        summary_writer=RecordingWriter(calls),
        save_model_secs=0,
        save_summaries_secs=0,
    )
    with supervisor.managed_session():
        begun = list(calls)
    assert begun == [
        "clear stop",
        "reopen",
        "prepare",
        "graph event",
        "meta graph event",
        "services",
        "START at 3",
        "queue runners",
    ]
    assert [call for call in calls[len(begun) :] if not call.startswith("CHECKPOINT")] == ["STOP", "close"]


def test_item_08_a_non_chief_waits_and_starts_queue_runners(facade: Any, build_model: Callable[..., Any]) -> None:
    """A replica clears the stop, waits for the chief, and starts its queue runners; nothing else."""
    with tf.device("/cpu:0"):
        build_model()
    server = v1.train.Server.create_local_server()
    calls: list[str] = []
    supervisor = recording_supervisor(facade, calls, is_chief=False)
    with v1.Session(server.target) as chief:
        chief.run(supervisor.init_op)
        with supervisor.managed_session(server.target):
            assert calls == ["clear stop", "wait", "queue runners"]


def test_item_08_without_standard_services_no_queue_runners_either(
    facade: Any, build_model: Callable[..., Any], logdir: str
) -> None:
    """`start_standard_services=False` starts neither services nor queue runners, and logs no START."""
    build_model()
    calls: list[str] = []
    supervisor = recording_supervisor(facade, calls, logdir=logdir, summary_writer=RecordingWriter(calls))
    with supervisor.managed_session(start_standard_services=False):
        assert calls == ["clear stop", "reopen", "prepare", "graph event", "meta graph event"]


def test_item_08_queue_runners_feed_the_session(facade: Any, build_model: Callable[..., Any], wait_until: Any) -> None:
    """The graph's queue runners are started in daemon threads, which the stop joins."""
    build_model()
    queue = tf.queue.FIFOQueue(2, [tf.int32], [[]])
    v1.train.add_queue_runner(v1.train.QueueRunner(queue, [queue.enqueue(7)] * 2))
    item = queue.dequeue()
    supervisor = facade.Supervisor()
    with supervisor.managed_session(start_standard_services=False) as sess:
        threads = supervisor.start_queue_runners(sess)
        assert threads
        assert all(thread.daemon for thread in threads)
        assert [sess.run(item) for _ in range(5)] == [7] * 5
    wait_until(lambda: not any(thread.is_alive() for thread in threads))


def test_item_09_graph_pbtxt_at_every_prepare(facade: Any, build_model: Callable[..., Any], logdir: str) -> None:
    """`graph.pbtxt` is written again by each session, even if somebody deleted it."""
    build_model()
    supervisor = facade.Supervisor(logdir=logdir)
    for _ in range(2):
        with supervisor.managed_session(start_standard_services=False):
            text = Path(logdir, "graph.pbtxt")
            assert 'name: "global_step"' in text.read_text()
            text.unlink()


def test_item_09_graph_events_once_per_opening(facade: Any, build_model: Callable[..., Any], logdir: str) -> None:
    """Graph and meta graph are written once, however many sessions follow, and again after the writer was closed."""
    build_model()
    calls: list[str] = []
    supervisor = facade.Supervisor(
        logdir=logdir, summary_writer=RecordingWriter(calls), save_model_secs=0, save_summaries_secs=0
    )

    def counts() -> list[int]:
        return [calls.count("graph event"), calls.count("meta graph event")]

    for _ in range(2):
        with supervisor.managed_session(close_summary_writer=False):
            assert counts() == [1, 1]
    supervisor.stop()
    with supervisor.managed_session():
        assert counts() == [2, 2]


def test_item_10_services_on_a_non_chief(facade: Any, build_model: Callable[..., Any]) -> None:
    """A replica that asks for the standard services is refused."""
    with tf.device("/cpu:0"):
        build_model()
    supervisor = facade.Supervisor(is_chief=False)
    with v1.Session() as sess, pytest.raises(RuntimeError, match="Only chief supervisor can start standard services"):
        supervisor.start_standard_services(sess)


@pytest.mark.parametrize("with_writer", [False, True])
def test_item_10_services_without_a_logdir(
    facade: Any, build_model: Callable[..., Any], caplog: pytest.LogCaptureFixture, with_writer: bool
) -> None:
    """Without a logdir no service starts, even with a writer: a warning says what they need."""
    build_model()
    calls: list[str] = []
    supervisor = facade.Supervisor(summary_writer=RecordingWriter(calls) if with_writer else None)
    with supervisor.managed_session(start_standard_services=False) as sess:
        calls.clear()
        with caplog.at_level(logging.WARNING, logger=facade.logger):
            assert supervisor.start_standard_services(sess) is None
        assert calls == []
    assert "Standard services need a 'logdir'" in caplog.text


def test_item_11_start_has_the_present_step(
    facade: Any, build_model: Callable[..., Any], logdir: str, read_events: Any
) -> None:
    """START is logged with the step at which the session starts."""
    build_model(first_step=11)
    supervisor = facade.Supervisor(logdir=logdir, save_model_secs=0, save_summaries_secs=0)
    with supervisor.managed_session():
        pass
    assert logs(read_events, logdir)[0] == (START, 11)


def test_item_11_no_start_without_a_global_step(
    facade: Any, build_model: Callable[..., Any], logdir: str, read_events: Any
) -> None:
    """Without a global step there is no START, for TensorBoard could not purge by it; STOP is logged all the same."""
    build_model(name="steps")
    supervisor = facade.Supervisor(logdir=logdir, save_model_secs=0, save_summaries_secs=0)
    with supervisor.managed_session():
        pass
    assert [status for status, _ in logs(read_events, logdir)] == [STOP]


def test_item_12_services_come_in_this_order(facade: Any, build_model: Callable[..., Any], logdir: str) -> None:
    """The threads returned are summary, step counter and checkpoint, in that order, all daemons."""
    v1.summary.scalar("loss", build_model().weight)
    supervisor = facade.Supervisor(logdir=logdir)
    with supervisor.managed_session(start_standard_services=False) as sess:
        threads = supervisor.start_standard_services(sess)
        names = [f"{type(thread).__name__} {thread.name}".lower().replace("_", "") for thread in threads]
    assert [kind in name for kind, name in zip(("summary", "stepcounter", "checkpoint"), names, strict=True)] == [
        True
    ] * 3
    assert all(thread.daemon for thread in threads)


def test_item_12_services_that_lack_their_part_are_left_out(
    facade: Any, build_model: Callable[..., Any], tmp_path: Path
) -> None:
    """No summary op, no summary service; no global step, no step counter; no saver, no checkpoint service."""
    build_model()
    counts = {}
    for name in ("none", "global_step", "saver"):
        arguments = {} if name == "none" else {name: None}
        with tf.Graph().as_default():
            build_model()
            supervisor = facade.Supervisor(logdir=str(tmp_path / name), **arguments)
            with supervisor.managed_session(start_standard_services=False) as sess:
                counts[name] = len(supervisor.start_standard_services(sess))
    assert counts == {"none": 2, "global_step": 1, "saver": 1}


def test_item_12_services_tick_at_once(
    facade: Any, build_model: Callable[..., Any], logdir: str, read_events: Any, wait_until: Any
) -> None:
    """With intervals of hours the first summary and the first checkpoint come right away."""
    v1.summary.scalar("loss", build_model(first_step=5).weight)
    supervisor = facade.Supervisor(logdir=logdir, save_model_secs=9999, save_summaries_secs=9999)
    with supervisor.managed_session():
        wait_until(lambda: v1.train.latest_checkpoint(logdir))

        def summaries() -> list[float]:
            supervisor.summary_writer.flush()
            values = [
                value
                for file in read_events(logdir, telemetry=False)
                for event in file
                for value in event.summary.value
            ]
            return [value.simple_value for value in values if value.tag == "loss"]

        wait_until(summaries)
        assert summaries() == [5.0]


@pytest.mark.parametrize("name", ["global_step", "counted"])
def test_item_13_the_step_counters_tag_is_the_ops_name(
    facade: Any, build_model: Callable[..., Any], logdir: str, read_events: Any, wait_until: Any, name: str
) -> None:
    """Steps per second are logged under ``<op name>/sec``."""
    model = build_model(name=name)
    supervisor = facade.Supervisor(logdir=logdir, save_summaries_secs=0.02, global_step=model.global_step)

    def tags() -> set[str]:
        supervisor.summary_writer.flush()
        events = [event for file in read_events(logdir, telemetry=False) for event in file]
        return {value.tag for event in events for value in event.summary.value}

    with supervisor.managed_session():
        wait_until(tags)
        assert tags() == {f"{name}/sec"}


@pytest.mark.parametrize("name", ["global_step", "no_step_at_all"])
def test_item_14_checkpoint_events_need_a_global_step(
    facade: Any, build_model: Callable[..., Any], logdir: str, read_events: Any, wait_until: Any, name: str
) -> None:
    """Without a global step the checkpoint is ``model.ckpt``, and there is no CHECKPOINT event for it."""
    build_model(name=name)
    supervisor = facade.Supervisor(logdir=logdir, save_model_secs=9999)
    with supervisor.managed_session():
        wait_until(lambda: v1.train.latest_checkpoint(logdir))
    counted = name == "global_step"
    assert Path(v1.train.latest_checkpoint(logdir)).name == ("model.ckpt-0" if counted else "model.ckpt")
    assert (CHECKPOINT in [status for status, _ in logs(read_events, logdir)]) is counted


def test_item_12_services_tick_on_their_interval(
    facade: Any, build_model: Callable[..., Any], logdir: str, read_events: Any, wait_until: Any
) -> None:
    """Summaries, steps per second and checkpoints go on coming."""
    model = build_model()
    v1.summary.scalar("loss", model.weight)
    supervisor = facade.Supervisor(logdir=logdir, save_model_secs=0.02, save_summaries_secs=0.02)

    def count(sess: Any) -> int:
        sess.run(model.train_op)
        supervisor.summary_writer.flush()
        events = [event for file in read_events(logdir, telemetry=False) for event in file]
        tags = [value.tag for event in events for value in event.summary.value]
        checkpoints = sum(event.session_log.status == CHECKPOINT for event in events)
        return min(tags.count("loss"), tags.count("global_step/sec"), checkpoints)

    with supervisor.managed_session() as sess:
        wait_until(lambda: count(sess) >= 3)


def test_item_11_no_writer_no_events(
    facade: Any, build_model: Callable[..., Any], logdir: str, read_events: Any
) -> None:
    """Without a writer the checkpoint service runs, and no events file is written; by ours one, for the telemetry."""
    build_model()
    supervisor = facade.Supervisor(logdir=logdir, summary_writer=None, save_model_secs=1000)
    with supervisor.managed_session(start_standard_services=False) as sess:
        assert len(supervisor.start_standard_services(sess)) == 1
    assert bool(read_events(logdir)) == (facade.name == "ours")

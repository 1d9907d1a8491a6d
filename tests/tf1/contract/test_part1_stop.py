"""Contract part 1, items 27 to 29: how a supervised session ends, and the original's camel-case names."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1
STOP = v1.SessionLog.STOP

ALIASES = {
    "PrepareSession": "prepare_or_wait_for_session",
    "StartQueueRunners": "start_queue_runners",
    "StartStandardServices": "start_standard_services",
    "Stop": "stop",
    "RequestStop": "request_stop",
    "Loop": "loop",
    "ShouldStop": "should_stop",
    "StopOnException": "stop_on_exception",
    "WaitForStop": "wait_for_stop",
    "SummaryComputed": "summary_computed",
}


@pytest.fixture
def supervisor(facade: Any, build_model: Callable[..., Any], logdir: str) -> Any:
    """A supervisor of the smallest model, with its services disabled."""
    build_model()
    return facade.Supervisor(logdir=logdir, save_model_secs=0, save_summaries_secs=0)


@pytest.fixture
def stops(logdir: str, read_events: Any) -> Callable[[], int]:
    """Returns a function that counts the STOP events on disk."""

    def count() -> int:
        return sum(event.session_log.status == STOP for file in read_events(logdir) for event in file)

    return count


def test_item_27_stop_stops_joins_and_closes(supervisor: Any, stops: Callable[[], int]) -> None:
    """stop() requests the stop, joins the threads, logs STOP and closes the writer; the session stays open."""
    ended: list[str] = []
    sess = supervisor.prepare_or_wait_for_session()
    looper = supervisor.loop(9999, ended.append, args=("ran",))
    supervisor.stop()
    assert supervisor.should_stop()
    assert supervisor.coord.joined
    assert not looper.is_alive()
    assert stops() == 1
    with sess:
        assert sess.run(supervisor.global_step) == 0


def test_item_27_stop_joins_the_threads_it_is_given(facade: Any, logdir: str, build_model: Callable[..., Any]) -> None:
    """A thread passed to stop() is joined with the rest, within the grace time, and named if it stays."""
    build_model()
    supervisor = facade.Supervisor(stop_grace_secs=0.01)
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="of the program's own", daemon=True)
    thread.start()
    sess = supervisor.prepare_or_wait_for_session()
    with pytest.raises(RuntimeError, match="of the program's own"):
        supervisor.stop([thread])
    supervisor.stop([thread], ignore_live_threads=True)
    end.set()
    sess.close()


def test_item_27_stop_is_logged_though_join_raises(supervisor: Any, stops: Callable[[], int]) -> None:
    """An error that comes out of the join comes out of stop(), after STOP and close."""
    sess = supervisor.prepare_or_wait_for_session()
    try:
        raise ValueError("the cause")
    except ValueError as error:
        supervisor.request_stop(error)
    with pytest.raises(ValueError, match="the cause"):
        supervisor.stop()
    assert stops() == 1
    sess.close()


def test_item_27_the_writer_can_be_left_open(supervisor: Any, stops: Callable[[], int]) -> None:
    """With `close_summary_writer=False` no STOP is logged and the writer takes more."""
    with supervisor.managed_session(close_summary_writer=False) as sess:
        pass
    assert sess is not None
    supervisor.summary_writer.add_session_log(v1.SessionLog(status=STOP))
    supervisor.summary_writer.flush()
    assert stops() == 1


def test_item_27_the_session_is_closed_last_and_quietly(supervisor: Any, stops: Callable[[], int]) -> None:
    """The managed session closes after STOP; an error of that close is not raised."""
    seen: list[int] = []
    with supervisor.managed_session() as sess:
        close = sess.close

        def failing_close() -> None:
            seen.append(stops())
            close()
            raise tf.errors.UnavailableError(None, None, "gone")

        sess.close = failing_close
    assert seen[-1] == 1


def test_item_27_a_session_may_be_closed_before_the_stop(
    facade: Any, build_model: Callable[..., Any], logdir: str, stops: Callable[[], int]
) -> None:
    """A program that closes its session and then stops the supervisor ends without an error, and STOP is logged."""
    model = build_model()
    # The original's own services raise where the close meets their first run.
    services = {} if facade.name == "ours" else {"save_model_secs": 0, "save_summaries_secs": 0}
    supervisor = facade.Supervisor(logdir=logdir, **services)
    with supervisor.prepare_or_wait_for_session() as sess:
        sess.run(model.train_op)
    supervisor.stop()
    assert stops() == 1


def test_item_27_a_stop_within_the_block_is_enough(
    facade: Any, build_model: Callable[..., Any], logdir: str, stops: Callable[[], int]
) -> None:
    """A program that calls stop() within the managed block can still read from the session; STOP is logged once."""
    model = build_model()
    supervisor = facade.Supervisor(logdir=logdir, save_model_secs=0, save_summaries_secs=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the original's, that its writer is closed already
        with supervisor.managed_session() as sess:
            sess.run(model.train_op)
            supervisor.stop()
            assert sess.run(model.global_step) == 1
    assert stops() == 1


@pytest.mark.parametrize("error", [ValueError("in the body"), tf.errors.AbortedError(None, None, "preempted")])
def test_item_28_an_error_in_the_body_comes_out(supervisor: Any, stops: Callable[[], int], error: Exception) -> None:
    """What the body raises stops the services and is raised again, the very object, after STOP."""
    with pytest.raises(type(error)) as raised, supervisor.managed_session():
        raise error
    assert raised.value is error
    assert supervisor.should_stop()
    assert stops() == 1


def test_item_28_end_of_input_is_a_clean_end(supervisor: Any, stops: Callable[[], int]) -> None:
    """OutOfRangeError in the body ends the block as if it had come to its end."""
    with supervisor.managed_session():
        raise tf.errors.OutOfRangeError(None, None, "exhausted")
    assert stops() == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_item_28_an_interrupt_passes_and_stop_is_logged(
    supervisor: Any, stops: Callable[[], int], error: type[BaseException]
) -> None:
    """KeyboardInterrupt and its like are not reported to the coordinator; STOP is logged before they go on."""
    with pytest.raises(error), supervisor.managed_session():
        raise error
    assert stops() == 1
    supervisor.coord.raise_requested_exception()


def test_item_28_an_error_in_a_thread_comes_out(supervisor: Any, stops: Callable[[], int]) -> None:
    """What a service raises makes should_stop() true, and is raised when the block ends."""

    def broken() -> None:
        raise ValueError("in the service")

    with pytest.raises(ValueError, match="in the service"), supervisor.managed_session():
        supervisor.loop(9999, broken)
        supervisor.wait_for_stop()
    assert stops() == 1


def test_item_29_the_camel_case_names_are_there(facade: Any) -> None:
    """Each old name is the method itself."""
    found = {old: getattr(facade.Supervisor, old) for old in ALIASES}
    assert found == {old: getattr(facade.Supervisor, new) for old, new in ALIASES.items()}


def test_item_29_a_program_in_camel_case(supervisor: Any, facade: Any, build_model: Callable[..., Any]) -> None:
    """A program that only uses the old names works."""
    done: list[str] = []
    sess = supervisor.PrepareSession("", start_standard_services=False)
    supervisor.StartStandardServices(sess)
    assert supervisor.StartQueueRunners(sess) == []
    supervisor.SummaryComputed(sess, v1.Summary(value=[v1.Summary.Value(tag="a", simple_value=1.0)]))
    supervisor.Loop(None, lambda: (done.append("ran"), supervisor.RequestStop()))
    supervisor.WaitForStop()
    with supervisor.StopOnException():
        assert supervisor.ShouldStop()
    supervisor.Stop()
    assert done == ["ran"]
    sess.close()


def test_item_27_the_session_is_closed(supervisor: Any) -> None:
    """After the block the session does not run any more."""
    with supervisor.managed_session() as sess:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        sess.run(supervisor.global_step)


def test_item_27_a_supervisor_can_be_used_again(supervisor: Any) -> None:
    """A second managed session of the same supervisor clears the stop, and ends as the first."""
    for _ in range(2):
        with supervisor.managed_session() as sess:
            assert not supervisor.should_stop()
            assert sess.run(supervisor.global_step) == 0
        assert supervisor.should_stop()

"""Hooks: phases, order, requests, feeds, options; the same under the original and ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1
RunArgs = v1.train.SessionRunArgs
PHASES = ["begin", "after_create_session", "before_run", "after_run", "end"]


@pytest.fixture
def open_session(train: Any) -> Callable[..., Any]:
    """Returns a function that opens a `MonitoredSession` with these hooks."""
    return lambda *hooks, **arguments: train.MonitoredSession(hooks=list(hooks), **arguments)


def test_phases_come_in_order_and_hooks_in_theirs(open_session: Any, recorder: Any) -> None:
    """Each phase is gone through for all hooks, in the order of the hooks."""
    notes: list[Any] = []
    two = tf.constant(2)
    with open_session(recorder("a", notes), recorder("b", notes)) as sess:
        assert sess.run(two) == 2
    assert notes == [(name, phase) for phase in PHASES for name in "ab"]


def test_the_graph_may_grow_in_begin_only(open_session: Any, recorder: Any) -> None:
    """A hook adds to the graph in ``begin``; the graph is finalized after that, and no longer once it is closed."""
    states = []
    graph = v1.get_default_graph()

    def look(*args: Any) -> None:
        states.append(graph.finalized)

    with open_session(recorder(act={"begin": look, "after_create_session": look, "end": look})):
        pass
    look()
    assert states == [False, True, True, False]


def test_hooks_get_what_they_ask_for(open_session: Any, recorder: Any) -> None:
    """Each hook gets its own values, in the form in which it asked; the caller gets the caller's."""
    one, two, three = (tf.constant(value) for value in (1, 2, 3))
    hooks = [
        recorder(request=RunArgs({"one": one, "both": [one, two]})),
        recorder(request=None),
        recorder(request=RunArgs(three)),
        recorder(request=RunArgs(None)),
    ]
    with open_session(*hooks) as sess:
        for _ in range(4):
            assert sess.run([two, {"x": three}]) == [2, {"x": 3}]
            assert [hook.values.results for hook in hooks] == [{"one": 1, "both": [1, 2]}, None, 3, None]


def test_feeds_of_hooks_are_merged(open_session: Any, recorder: Any) -> None:
    """Two hooks and the caller feed three tensors of one run; the caller's dictionary stays as it was."""
    x, y, z = (v1.placeholder(tf.float32, []) for _ in range(3))
    feeds = {z: 3.0}
    hooks = [recorder(request=RunArgs(None, {x: 1.0})), recorder(request=RunArgs(None, {y: 2.0}))]
    total = x + y * 10.0 + z * 100.0
    with open_session(*hooks) as sess:
        for _ in range(3):
            assert sess.run(total, feeds) == 321.0
    assert feeds == {z: 3.0}


@pytest.mark.parametrize("who", ["hooks", "user"])
def test_a_tensor_fed_twice_is_refused(open_session: Any, recorder: Any, who: str) -> None:
    """Two hooks, or a hook and the caller, cannot feed the same tensor."""
    x = v1.placeholder(tf.float32, [])
    hooks = [recorder(request=RunArgs(None, {x: 1.0})) for _ in range(2 if who == "hooks" else 1)]
    text = "Same tensor is fed by two hooks" if who == "hooks" else "Same tensor is fed by a SessionRunHook and user"
    with pytest.raises(RuntimeError, match=text), open_session(*hooks) as sess:
        sess.run(x, {x: 2.0} if who == "user" else None)


def test_run_options_are_merged(open_session: Any, recorder: Any) -> None:
    """Numbers become the larger, flags are or-ed, watches are added; all hooks see what the run was given."""
    options = [
        v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, timeout_in_ms=50_000),
        v1.RunOptions(timeout_in_ms=70_000, output_partition_graphs=True),
    ]
    for each, name in zip(options, "ab", strict=True):
        each.debug_options.debug_tensor_watch_opts.add().node_name = name
        each.debug_options.debug_tensor_watch_opts[0].debug_ops.append("DebugIdentity")
    hooks = [recorder(request=RunArgs(None, options=each)) for each in options]
    last = recorder()
    two = tf.constant(2)
    own = v1.RunOptions(timeout_in_ms=60_000, report_tensor_allocations_upon_oom=True)
    with open_session(*hooks, last) as sess:
        sess.run(two, options=own)
    merged = last.values.options
    assert merged.trace_level == v1.RunOptions.FULL_TRACE
    assert merged.timeout_in_ms == 70_000
    assert merged.output_partition_graphs and merged.report_tensor_allocations_upon_oom
    assert [watch.node_name for watch in merged.debug_options.debug_tensor_watch_opts] == ["a", "b"]


def test_a_hook_that_requests_a_stop_ends_the_loop(open_session: Any, recorder: Any) -> None:
    """All hooks get the call; then should_stop() is true, and another call is refused."""
    hook, later = recorder(act={"after_run": lambda context, values: context.request_stop()}), recorder()
    two = tf.constant(2)
    with open_session(hook, later) as sess:
        assert not sess.should_stop()
        assert sess.run(two) == 2
        assert sess.should_stop()
        assert later.notes[-1] == ("hook", "after_run")
        with pytest.raises(RuntimeError, match="Run called even after should_stop requested"):
            sess.run(two)
    assert later.notes[-1] == ("hook", "end")


@pytest.mark.parametrize("phase", PHASES)
def test_an_exception_in_a_phase_is_raised_as_it_is(open_session: Any, recorder: Any, raises: Any, phase: str) -> None:
    """Whatever phase it comes from; ``end`` is then called of no hook, and the other hooks of the phase are not."""
    error = KeyError("a hook's own")
    notes: list[Any] = []
    two = tf.constant(2)
    hooks = [recorder("a", notes, act={phase: raises(error)}), recorder("b", notes)]
    with pytest.raises(KeyError) as raised, open_session(*hooks) as sess:
        sess.run(two)
    assert raised.value is error
    assert notes[-1] == ("a", phase)


@pytest.mark.parametrize("kind", [tf.errors.OutOfRangeError, StopIteration])
def test_the_end_of_the_input_is_a_clean_end(open_session: Any, recorder: Any, kind: Any) -> None:
    """Contract, item 22: OutOfRangeError and StopIteration end the block without an error, and ``end`` is called."""
    hook = recorder()
    with open_session(hook):
        raise kind(None, None, "done") if kind is tf.errors.OutOfRangeError else kind
    assert hook.notes[-1] == ("hook", "end")


def test_a_subclass_of_out_of_range_is_no_clean_end(open_session: Any, recorder: Any) -> None:
    """Contract, item 22: only the very types count."""

    class MyOutOfRange(tf.errors.OutOfRangeError):  # type: ignore[misc]
        pass

    hook = recorder()
    with pytest.raises(MyOutOfRange), open_session(hook):
        raise MyOutOfRange(None, None, "mine")
    assert hook.notes[-1] == ("hook", "after_create_session")

"""The supervised session: TensorFlow's own in every respect, with a step lock and an observer of each run."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.client import session as client

from supervisor_core.engine.step_lock import StepLock
from supervisor_core.tf1.session import SupervisedSession
from supervisor_core.tf1.step_detection import TrainingOps

v1 = tf.compat.v1


class Diary:
    """A step lock, an observer and a clock which write down what they see."""

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self.now = 0.0

    def acquire_shared(self) -> None:
        self.now += 100.0
        self.lines.append("enter")

    def release_shared(self) -> None:
        self.lines.append("leave")

    def run_ended(self, is_step: bool, started: float, ended: float, changes: bool = True) -> None:
        self.lines.append("step" if is_step else "run")
        self.times = started, ended

    def first_call(self, is_step: bool) -> Any:
        return nullcontext()

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture
def diary() -> Diary:
    """An empty diary."""
    return Diary()


@pytest.fixture
def model(graph: Any, build_model: Callable[..., Any]) -> Any:
    """The smallest model, in the test's own graph."""
    return build_model()


@pytest.fixture
def sess(model: Any, diary: Diary) -> Iterator[SupervisedSession]:
    """A session on the model, initialized, with an empty diary as step_lock, observer and clock."""
    with SupervisedSession(step_lock=diary, observer=diary, global_step=model.global_step, clock=diary) as session:
        session.run_internal(v1.global_variables_initializer())
        yield session


STEP, RUN = ["enter", "leave", "step"], ["enter", "leave", "run"]


def test_it_is_a_session(sess: SupervisedSession, model: Any) -> None:
    """Programs and libraries that ask for a tf.Session get one, with everything that it has."""
    assert isinstance(sess, v1.Session)
    assert isinstance(sess, client.BaseSession)
    assert v1.get_default_session() is sess
    assert sess.graph is model.global_step.graph
    assert sess.graph_def == sess.graph.as_graph_def()
    assert [device.device_type for device in sess.list_devices()].count("CPU") == 1
    assert not sess.sess_str
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = sess.nothing  # type: ignore[attr-defined]


def test_every_run_passes_the_step_lock_and_is_observed(sess: SupervisedSession, model: Any, diary: Diary) -> None:
    """First runs, planned ones and those of Session.run hold the step lock once, and are seen once, as they end."""
    for _ in range(4):
        sess.run(model.train_op)
    assert diary.lines == STEP * 4
    diary.lines.clear()
    for _ in range(4):
        sess.run([model.weight, model.global_step])
    assert diary.lines == RUN * 4
    diary.lines.clear()
    sess.run(model.train_op, options=v1.RunOptions())
    sess.run({"a": [model.train_op]}, run_metadata=v1.RunMetadata())
    sess.run("weight:0")
    sess.run([])
    assert diary.lines == STEP * 2 + RUN * 2


def test_a_failed_run_leaves_the_gate_and_is_not_counted(
    graph: Any, build_model: Callable[..., Any], diary: Diary
) -> None:
    """Whatever a run raises, planned or not, the step lock is left; the observer hears only of runs that went well."""
    model = build_model()
    fed = v1.placeholder(tf.float32, [])
    checked = v1.check_numerics(fed, "not finite")
    with SupervisedSession(step_lock=diary, observer=diary, global_step=model.global_step) as sess:
        for value in (1.0, 1.0, np.inf, 1.0):
            if np.isinf(value):
                with pytest.raises(tf.errors.InvalidArgumentError):
                    sess.run(checked, {fed: value})
            else:
                sess.run(checked, {fed: value})
        with pytest.raises(TypeError):
            sess.run(None)
    assert diary.lines == RUN * 2 + ["enter", "leave"] + RUN + ["enter", "leave"]


def test_made_callables_are_runs(sess: SupervisedSession, model: Any, diary: Diary) -> None:
    """Each call of what make_callable returns passes the step lock and is observed, with feeds and without."""
    step = sess.make_callable(model.train_op)
    look = sess.make_callable([model.weight], accept_options=True)
    feed = sess.make_callable(model.weight, [model.weight.value()])
    assert diary.lines == []
    assert step() is None
    assert look(options=v1.RunOptions(), run_metadata=v1.RunMetadata()) == [1.0]
    assert [feed(5.0) for _ in range(3)] == [1.0] * 3
    assert diary.lines == STEP + RUN * 4


def test_filling_queues_goes_around_the_step_lock(graph: Any, diary: Diary) -> None:
    """A run that only fills or closes a queue is not supervised, whoever runs it; one that also trains is."""
    queue = v1.FIFOQueue(100, tf.float32, shapes=[[]])
    enqueue, close = queue.enqueue(1.0), queue.close()
    grouped = tf.group(queue.enqueue(2.0))
    v1.train.add_queue_runner(v1.train.QueueRunner(queue, [grouped]))
    with SupervisedSession(step_lock=diary, observer=diary) as sess:
        for _ in range(4):
            sess.run(enqueue)
            sess.run([enqueue, enqueue])
            sess.run(grouped)
        sess.make_callable(enqueue)()
        sess.run(close)
        assert diary.lines == []
        sess.run(queue.dequeue())
        assert diary.lines == STEP


class InterruptedLock(StepLock):
    """A step lock in which Ctrl-C arrives, before or after a run is inside."""

    when: str | None = None

    def acquire_shared(self) -> None:
        if self.when == "before":
            raise KeyboardInterrupt
        super().acquire_shared()
        if self.when == "after":
            raise KeyboardInterrupt


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("runs", [0, 3], ids=["without a plan", "planned"])
def test_an_interrupt_at_the_gate_leaves_no_thread_inside(graph: Any, build_model: Any, when: str, runs: int) -> None:
    """A later snapshot has the step lock to itself, wherever the interrupt came."""
    model, step_lock = build_model(), InterruptedLock()
    with SupervisedSession(step_lock=step_lock) as sess:
        sess.run(v1.global_variables_initializer())
        for _ in range(runs):
            sess.run(model.train_op)
        step_lock.when = when
        with pytest.raises(KeyboardInterrupt):
            sess.run(model.train_op)
        with step_lock.exclusive(timeout_secs=0.0) as held:
            assert held.consistent


@pytest.mark.parametrize("runs", [1, 3])
def test_a_blocked_enqueue_locks_no_snapshot_out(graph: Any, runs: int, wait_until: Any) -> None:
    """While an enqueue waits for room, a snapshot has the step lock to itself at once."""
    step_lock = StepLock()
    queue = v1.FIFOQueue(runs, tf.float32, shapes=[[]])
    enqueue, size, cancel = queue.enqueue(1.0), queue.size(), queue.close(cancel_pending_enqueues=True)
    with SupervisedSession(step_lock=step_lock) as sess:
        for _ in range(runs):
            sess.run(enqueue)
        full = sess.run(size)
        assert full == runs
        blocking = threading.Event()

        def fill() -> None:
            blocking.set()
            with pytest.raises(tf.errors.CancelledError):
                sess.run(enqueue)

        thread = threading.Thread(target=fill)
        thread.start()
        blocking.wait()
        with step_lock.exclusive(timeout_secs=60.0) as held:
            assert held.consistent
        sess.run(cancel)
        thread.join()


def test_closed_sessions_say_so(sess: SupervisedSession, model: Any) -> None:
    """A run in a closed session raises what it always raised, planned or not; closing twice is no error."""
    for _ in range(3):
        sess.run(model.train_op)
    sess.close()
    for fetches in (model.train_op, model.weight):
        with pytest.raises(RuntimeError, match=r"^Attempted to use a closed Session\.$"):
            sess.run(fetches)
    with pytest.raises(RuntimeError, match=r"^Attempted to use a closed Session\.$"):
        sess.run_internal(model.train_op)
    sess.close()


def test_it_is_freed_with_its_last_user(model: Any, wait_until: Callable[..., None]) -> None:
    """Without the garbage collector's help: plans and callables do not keep a session without users. A thread that
    looks at the stacks may hold a frame for a moment."""
    gc.disable()
    try:
        sess = SupervisedSession(step_lock=StepLock(), global_step=model.global_step)
        sess.run(v1.global_variables_initializer())
        for _ in range(3):
            sess.run(model.train_op)
            sess.run([model.weight, model.global_step])
        plan = sess._run_cache.find(model.train_op, None)
        plan.make_callable()
        assert plan.prepared is not None
        sess.run(model.train_op)
        del plan
        plain = sess.plain_session()
        gone = weakref.ref(plain)
        del sess
        plain.run(model.train_op)
        del plain
        wait_until(lambda: gone() is None)
    finally:
        gc.enable()


def test_many_threads_run_at_once(model: Any) -> None:
    """Threads that run the same and different structures get their own results, and every step counts once."""
    lock = threading.Lock()
    counted: list[bool] = []

    class Counter:
        def run_ended(self, is_step: bool, started: float, ended: float, changes: bool = True) -> None:
            with lock:
                counted.append(is_step)

        def first_call(self, is_step: bool) -> Any:
            return nullcontext()

    fed = v1.placeholder(tf.float32, [None])
    doubled = fed * 2.0
    wrong: list[Any] = []
    with SupervisedSession(step_lock=StepLock(), observer=Counter(), global_step=model.global_step) as sess:
        sess.run_internal(v1.global_variables_initializer())
        start = threading.Barrier(6)

        def work(number: int) -> None:
            start.wait()
            for i in range(150):
                value = [float(number), float(i)]
                result = sess.run([doubled, {"n": (doubled,)}], {fed: value})
                if result[0].tolist() != [2.0 * each for each in value] or result[1]["n"][0] is not result[0]:
                    wrong.append(result)
                sess.run(model.train_op)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert sess.run(model.global_step) == counted.count(True) == 900


def test_the_first_run_of_some_fetches_is_known(model: Any) -> None:
    """TensorFlow prepares and may compile it: the observer learns of it, once, and whether it is a step."""
    first: list[bool] = []

    class Observer:
        def run_ended(self, is_step: bool, started: float, ended: float, changes: bool = True) -> None:
            pass

        @contextmanager
        def first_call(self, is_step: bool) -> Iterator[None]:
            first.append(is_step)
            yield

    with SupervisedSession(step_lock=StepLock(), observer=Observer(), global_step=model.global_step) as sess:
        sess.run_internal(v1.global_variables_initializer())
        for _ in range(3):
            sess.run(model.train_op)
            sess.run([model.global_step])
            sess.run({"step": model.global_step})
    assert first == [True, False, False]


def test_counting_never_costs_a_run(
    sess: SupervisedSession, model: Any, diary: Diary, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the graph cannot be made out, runs go on uncounted, and that is said once."""

    def stumble(*arguments: Any) -> bool:
        raise RuntimeError("what is this?")

    monkeypatch.setattr(TrainingOps, "updates", stumble)
    for _ in range(3):
        sess.run(model.train_op)
    assert diary.lines == RUN * 3
    assert [record.getMessage() for record in caplog.records] == [
        "The graph does not show which runs are steps; some are not counted."
    ]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_constructor_errors_are_the_originals(graph: Any) -> None:
    """Wrong arguments are refused in TensorFlow's words, and leave nothing behind that fails later."""
    config = v1.ConfigProto()

    def refusal(kind: Any, arguments: Any) -> str:
        try:
            kind(*arguments)
        except TypeError as refused:
            return str(refused)
        return "taken"

    for arguments in ((3,), (config,), ("", 3), ("", None, 3)):
        assert refusal(SupervisedSession, arguments) == refusal(v1.Session, arguments) != "taken"

"""Each name that TensorFlow may drop is taken away, one at a time: training goes on, with what the list says of it."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.distribute.distribute_coordinator import _WorkerContext

import supervisor_core
from supervisor_core.base.options import Options
from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1 import run_cache
from supervisor_core.tf1.native_runs import NativeCallable, PreparedRun
from supervisor_core.tf1.private_symbols import SYMBOLS, PrivateSymbol, tensorflow_version
from supervisor_core.tf1.services import service_policy
from supervisor_core.tf1.session import SupervisedSession

v1 = tf.compat.v1
MIN_RUNS = 10
STEPS = MIN_RUNS + 10
OLDER = [symbol for symbol in SYMBOLS if symbol.since > tensorflow_version()]


@dataclass(frozen=True)
class Outcome:
    """What can be seen of some sessions from outside."""

    sums: tuple[float, float] = (float(STEPS), STEPS + 2.0)
    """What the model had added up at the end of the first session, and of the one that resumed it."""
    counted: int = STEPS
    """Runs that were counted as steps, of these and one that only reads the step through a function."""
    cached: bool = True
    prepared: bool = True
    snapshot_prepared: bool = True
    ends_with_its_session: bool = True
    """Whether a service whose session was closed ends, rather than fail."""
    checkpoints: tuple[str, ...] = (f"model.ckpt-{STEPS:08d}", f"model.ckpt-{STEPS + 2:08d}")
    monitored_sum: float = 4.0
    consistent: bool = True
    """Whether the checkpoints of a monitored session, whose scaffold finalizes the graph, hold one step's values."""
    has_timeline: bool = True
    events_files: int = 1
    """Of a monitored session, in which a hook of TensorFlow's own writes, too."""
    grows_afterwards: bool = True
    empty_value: int = 3
    """What a graph without variables computed."""
    second_worker_saves_in: tuple[str, ...] = ("tmp_worker_1",)
    """Where the second worker of a collective strategy has its checkpoints, below the run's directory."""


UNCACHED = {"cached": False, "prepared": False}
UNPREPARED = {"prepared": False}
EFFECTS: dict[PrivateSymbol, dict[str, Any]] = {
    private.RUN: UNCACHED,
    private.BASE_SESSION: UNCACHED,
    private.EXPANSIONS: UNCACHED,
    private.AS_SCALAR: UNCACHED,
    private.AS_ARRAY: {},
    private.C_SESSION: UNCACHED,
    private.DO_CALL: UNCACHED,
    private.TF_OUTPUT: UNCACHED,
    private.C_OPERATION: UNCACHED,
    private.HANDLE_FEEDERS: UNCACHED,
    private.UNFEEDABLE: UNCACHED,
    private.UNFETCHABLE: UNCACHED,
    private.CLOSED: {**UNCACHED, "ends_with_its_session": False},
    private.RUN_CALLABLE: UNPREPARED,
    private.HANDLE: UNPREPARED,
    private.CALLABLE_OPTIONS: {**UNPREPARED, "snapshot_prepared": False},
    private.MAKE_FROM_OPTIONS: {**UNPREPARED, "snapshot_prepared": False},
    private.EXTEND_GRAPH: {},
    private.FUNCTION: {**UNPREPARED, "counted": STEPS + 1},
    private.CONTROL_OUTPUTS: {},
    private.GRAPH_ELEMENT: {},
    private.UNFINALIZE: {"grows_afterwards": False},
    private.PAD_STEP: {"checkpoints": (f"model.ckpt-{STEPS}", f"model.ckpt-{STEPS + 2}")},
    private.IS_EMPTY: {},
    private.LAST_CHECKPOINTS: {},
    private.WRITER_CACHE: {"events_files": 2},
    private.LOG_FIRST_N: {},
    private.WORKER_CONTEXT: {"second_worker_saves_in": (".",)},
    private.STRATEGY: {"second_worker_saves_in": ()},
    private.TIMELINE: {"has_timeline": False},
    private.SUMMARY_THREAD: {},
    private.STEP_COUNTER_THREAD: {},
    private.CHECKPOINT_THREAD: {},
}
AT_IMPORT = {private.SUMMARY_THREAD, private.STEP_COUNTER_THREAD, private.CHECKPOINT_THREAD}
"""What is read when the package is imported: `test_part3_subclasses` takes these away before that."""

IN_CLUSTERS = {private.EXTEND_GRAPH}
"""What only sessions in a cluster use."""


def supervised(logdir: str) -> dict[str, Any]:
    """Two sessions of a `Supervisor`, the second of which resumes the first; some of what can be seen of them."""
    sums, seen = [], {}
    for steps in (STEPS, 2):
        with tf.Graph().as_default():
            global_step = v1.train.get_or_create_global_step()
            fed = v1.placeholder(tf.float32, [])
            total = v1.get_variable("total", initializer=0.0, use_resource=True)
            with tf.control_dependencies([total.assign_add(fed)]):
                train_op = tf.group(global_step.assign_add(1), name="train")
            plain = v1.get_variable("plain", initializer=1.0, use_resource=False)
            with tf.control_dependencies([plain]):
                reads = tf.function(lambda step: step.read_value() + 0)(global_step)
            saver = v1.train.Saver(max_to_keep=2, pad_step_number=True)
            sv = supervisor_core.Supervisor(logdir=logdir, saver=saver, save_model_secs=3600, save_summaries_secs=0)
            with sv.managed_session() as sess:
                for _ in range(steps):
                    sess.run(train_op, {fed: 1.0})
                with pytest.raises(tf.errors.InvalidArgumentError, match="must feed"):
                    sess.run(train_op)
                sums.append(float(sess.run(total)))
                if steps == STEPS:
                    cache = sess._run_cache
                    plan = None if cache is None else cache.find(train_op, {fed: 1.0})
                    seen["cached"], seen["prepared"] = plan is not None, plan is not None and plan.prepared is not None
                    sess.run(reads)
                    seen["counted"] = sv.run_status().steps
                    seen["snapshot_prepared"] = PreparedRun(sess.plain_session(), fetches=[total])._callable is not None
                is_over = service_policy(Options(), sess.plain_session(), "summary").over
                sv.request_stop()
            seen["ends_with_its_session"] = is_over(RuntimeError("Attempted to use a closed Session."))
    found = {os.path.basename(path).removesuffix(".index") for path in glob.glob(f"{logdir}/*.index")}
    return {**seen, "sums": tuple(sums), "checkpoints": tuple(sorted(found))}


class Counter(supervisor_core.StepCounterHook):
    """Sees every run, as in a session that is not ours; so it warns of one that does not raise the step."""

    def before_run(self, run_context: Any) -> Any:
        return super().before_run(run_context)


def monitored(logdir: str, read_telemetry: Any) -> dict[str, Any]:
    """A monitored session, whose scaffold finalizes the graph, with hooks of the project's and of TensorFlow's."""
    with tf.Graph().as_default():
        v1.train.get_or_create_global_step()
        total = v1.get_variable("total", initializer=0.0, use_resource=True)
        with tf.control_dependencies([total.assign_add(1.0)]):
            train_op = v1.train.get_global_step().assign_add(1)
        summary = v1.train.SummarySaverHook(save_steps=1, output_dir=logdir, summary_op=tf.constant(b""))
        profiler = supervisor_core.ProfilerHook(save_steps=3, output_dir=logdir)
        with supervisor_core.MonitoredTrainingSession(
            checkpoint_dir=logdir,
            hooks=[summary, profiler, Counter()],
            save_summaries_steps=None,
            save_summaries_secs=None,
            log_step_count_steps=None,
        ) as sess:
            for _ in range(4):
                sess.run(train_op)
            value = max(float(sess.run(total)) for _ in range(2))
        try:
            tf.constant(0)
            grows = True
        except RuntimeError:
            grows = False
    kinds = [record for records in [read_telemetry(logdir)] for record in records if hasattr(record, "consistent")]
    return {
        "monitored_sum": value,
        "consistent": all(record.consistent for record in kinds) and bool(kinds),
        "has_timeline": bool(glob.glob(f"{logdir}/timeline-*.json")),
        "events_files": len(glob.glob(f"{logdir}/*tfevents*")),
        "grows_afterwards": grows,
    }


def without_variables(logdir: str) -> dict[str, Any]:
    """A monitored session of a graph in which there is nothing to save."""
    with tf.Graph().as_default():
        three = tf.constant(3)
        with supervisor_core.MonitoredTrainingSession(checkpoint_dir=logdir) as sess:
            return {"empty_value": int(sess.run(three))}


class MultiWorkerMirroredStrategy:
    """What a monitored session asks the strategy of that name, in a worker that is not to save."""

    extended = SimpleNamespace(experimental_should_init=True, should_checkpoint=False, should_save_summary=False)


def under_a_strategy(logdir: str) -> dict[str, Any]:
    """The second worker of a collective strategy."""
    with tf.Graph().as_default():
        v1.train.get_or_create_global_step()
        with (
            _WorkerContext(MultiWorkerMirroredStrategy(), None, "worker", 1),
            supervisor_core.MonitoredTrainingSession(checkpoint_dir=logdir, save_checkpoint_steps=1),
        ):
            pass
    found = glob.glob(f"{logdir}/**/checkpoint", recursive=True)
    return {"second_worker_saves_in": tuple(os.path.relpath(os.path.dirname(path), logdir) for path in found)}


ALIKE = {
    name: [symbol for symbol in SYMBOLS if EFFECTS[symbol] == effect]
    for name, effect in (("uncached", UNCACHED), ("unprepared", UNPREPARED))
}
"""Symbols without which only the quick way of a run is lost: all others are tried in each kind of session."""
ALONE = [private.CLOSED, private.CALLABLE_OPTIONS, private.MAKE_FROM_OPTIONS, private.WORKER_CONTEXT]
"""Symbols whose effect contains, or hides, that of another."""
APART = [symbol for symbol in SYMBOLS if symbol not in (*ALONE, *ALIKE["uncached"], *ALIKE["unprepared"])]
"""Symbols with effects that have nothing in common."""
GROUPS = {
    "nothing": [],
    **{repr(symbol): [symbol] for symbol in ALONE},
    "what has an effect of its own": [symbol for symbol in APART if EFFECTS[symbol]],
    "what has no effect": [symbol for symbol in APART if not EFFECTS[symbol]],
    **{f"{name} runs": symbols for name, symbols in ALIKE.items()},
}


@pytest.fixture
def take_away(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Returns a function that takes symbols away; nothing has warned yet."""
    for symbol in SYMBOLS:
        monkeypatch.setattr(symbol, "_warned", False)
    # On a machine with other work, too, a run is prepared as soon as it may be.
    monkeypatch.setattr(run_cache, "MIN_RUNS", MIN_RUNS)
    monkeypatch.setattr(run_cache, "SAVED_SECS", 60.0)
    monkeypatch.setattr(run_cache, "QUICK_SECS", 60.0)

    def take(*symbols: PrivateSymbol) -> None:
        for symbol in symbols:
            monkeypatch.setattr(symbol, "name", "_no_longer_there")

    return take


def everywhere(directory: Path, read_telemetry: Any) -> Outcome:
    """What is seen of each kind of session."""
    return Outcome(
        **supervised(str(directory / "supervised")),
        **monitored(str(directory / "monitored"), read_telemetry),
        **without_variables(str(directory / "empty")),
        **under_a_strategy(str(directory / "strategy")),
    )


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said of TensorFlow."""
    said = (record.getMessage() for record in caplog.records if record.name == "supervisor_core")
    return [text for text in said if text.startswith("TensorFlow ")]


def warning_of(symbol: PrivateSymbol) -> str:
    """What is said when it is missing."""
    return f"TensorFlow {tf.__version__} has no {symbol!r}: {symbol.without}."


@pytest.mark.parametrize("group", GROUPS)
def test_training_goes_on_without(
    group: str, tmp_path: Path, take_away: Callable[..., None], caplog: pytest.LogCaptureFixture, read_telemetry: Any
) -> None:
    """Sums, steps and checkpoints are right; what the list says is lost is lost, and nothing else; one warning each.

    Of symbols that are alike the first that is missed is enough to do without the others.
    """
    missing = GROUPS[group]
    take_away(*missing)
    with caplog.at_level(logging.WARNING, "supervisor_core"):
        seen = everywhere(tmp_path, read_telemetry)
    effects = {name: value for symbol in missing for name, value in EFFECTS[symbol].items()}
    assert seen == replace(Outcome(), **effects)
    loud = [symbol for symbol in missing if symbol not in (*OLDER, *AT_IMPORT, *IN_CLUSTERS)]
    said, expected = warnings_of(caplog), {warning_of(symbol) for symbol in loud}
    assert len(said) == len(set(said))
    assert set(said) == expected if missing not in ALIKE.values() else set() < set(said) <= expected


@pytest.mark.parametrize("missing", [symbol for alike in ALIKE.values() for symbol in alike], ids=repr)
def test_the_quick_way_of_a_run_is_lost_without_it(
    missing: PrivateSymbol, graph: Any, take_away: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """And nothing else: results and errors are the same; one warning."""
    take_away(missing)
    fed = v1.placeholder(tf.float32, [])
    doubled = fed * 2.0
    fetches = [doubled, tf.group(doubled)]
    with caplog.at_level(logging.WARNING, "supervisor_core"), SupervisedSession() as sess:
        for _ in range(STEPS):
            assert sess.run(fetches, {fed: 1.5}) == [3.0, None]
        with pytest.raises(tf.errors.InvalidArgumentError, match="must feed"):
            sess.run(fetches)
        plan = None if sess._run_cache is None else sess._run_cache.find(fetches, {fed: 1.5})
    assert (plan is not None) is (missing in ALIKE["unprepared"])
    assert plan is None or plan.prepared is None
    assert warnings_of(caplog) == ([] if missing in OLDER else [warning_of(missing)])


@pytest.mark.parametrize("missing", [None, private.EXTEND_GRAPH], ids=repr)
def test_a_session_in_a_cluster_goes_on(
    missing: PrivateSymbol | None, tmp_path: Path, take_away: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """Where a session in a cluster cannot be connected beforehand, the first run connects it; one warning."""
    if missing is not None:
        take_away(missing)
    server = v1.train.Server.create_local_server()
    with tf.Graph().as_default():
        train_op = v1.train.get_or_create_global_step().assign_add(1)
        sv = supervisor_core.Supervisor(logdir=str(tmp_path / "run"), save_summaries_secs=0)
        with sv.managed_session(server.target) as sess:
            assert [int(sess.run(train_op)) for _ in range(3)] == [1, 2, 3]
            sv.request_stop()
    assert tf.train.latest_checkpoint(str(tmp_path / "run")).endswith("-3")
    assert warnings_of(caplog) == ([] if missing is None else [warning_of(missing)])


def test_this_tensorflow_has_every_symbol() -> None:
    """In the TensorFlow that is tested, nothing is missing but what came later."""
    with tf.Graph().as_default() as graph, v1.Session() as sess:
        variable = v1.get_variable("v", initializer=0.0, use_resource=True)
        holders = [sess, graph, graph.get_operations()[0], tf.constant(0), variable, v1.train.Saver([variable])]
        holders.append(_WorkerContext(None, None, None, None))
        holders.append(NativeCallable(sess, [], [], [variable.initializer])._callable)
        missing = []
        for symbol in SYMBOLS:
            owner = symbol.owner_class()
            if owner is None:
                try:
                    symbol.load()
                except AttributeError:
                    missing.append(symbol)
            else:
                owned = [holder for holder in holders if isinstance(holder, owner)]
                if not any(hasattr(holder, symbol.name) for holder in (*owned, owner)):
                    missing.append(symbol)
    assert missing == OLDER


def test_it_is_the_page_that_says_so() -> None:
    """docs/dependencies.md lists every symbol with what happens without it, and no other."""
    page = (Path(__file__).parents[2] / "docs" / "dependencies.md").read_text()
    section = page.split("\n## Names of TensorFlow that are not public\n")[1].split("\n## ")[0]
    without, listed = "", []
    for line in section.splitlines():
        if line.startswith("* "):
            without = line[2:].removesuffix(":")
        elif line.startswith("    * "):
            listed.append((line[6:], without))
    wanted = [(f"`{symbol!r}`", symbol.without[0].upper() + symbol.without[1:]) for symbol in SYMBOLS]
    assert sorted(listed) == sorted(wanted)

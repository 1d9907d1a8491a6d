"""Each name that TensorFlow may drop is taken away: training goes on, and a warning says what is lost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.distribute.distribute_coordinator import _WorkerContext

import supervisor_core
from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.native_runs import NativeCallable
from supervisor_core.tf1.private_symbols import SYMBOLS, PrivateSymbol, tensorflow_version

v1 = tf.compat.v1
OLDER = [symbol for symbol in SYMBOLS if symbol.since > tensorflow_version()]
NEEDED_FOR_PLANS = [symbol for symbol in SYMBOLS if symbol.without.startswith(private._UNCACHED)]
GROUPS = {"nothing": [], "each": list(SYMBOLS), **{repr(symbol): [symbol] for symbol in NEEDED_FOR_PLANS}}


@pytest.fixture
def take_away(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Returns a function that takes symbols away; nothing has warned yet."""
    for symbol in SYMBOLS:
        monkeypatch.setattr(symbol, "_warned", False)

    def take(*symbols: PrivateSymbol) -> None:
        for symbol in symbols:
            monkeypatch.setattr(symbol, "name", "_no_longer_there")

    return take


def build() -> Any:
    """A step that also adds to a variable."""
    total = v1.get_variable("total", initializer=0.0, use_resource=True)
    with tf.control_dependencies([total.assign_add(1.0)]):
        return tf.group(v1.train.get_or_create_global_step().assign_add(1))


def supervised(logdir: str) -> bool:
    """Train four steps, then two more from their checkpoint; return whether runs had plans."""
    for last in (4, 6):
        with tf.Graph().as_default():
            train_op = build()
            sv = supervisor_core.Supervisor(logdir=logdir, save_model_secs=3600, save_summaries_secs=0)
            with sv.managed_session() as sess:
                total = v1.global_variables("total")[0]
                for _ in range(4 if last == 4 else 2):
                    sess.run([train_op, total])
                plans = sess._run_cache
                has_plans = plans is not None and plans.find([train_op, total], None) is not None
                assert float(sess.run(total)) == last
                sv.request_stop()
            assert tf.train.latest_checkpoint(logdir).endswith(f"model.ckpt-{last}")
    return has_plans


def monitored(logdir: str) -> None:
    """Likewise, in a monitored session with hooks of the project's and of TensorFlow's."""
    for last in (4, 6):
        with tf.Graph().as_default():
            train_op = build()
            hooks = [
                supervisor_core.StopAtStepHook(last_step=last),
                supervisor_core.ProfilerHook(save_steps=3, output_dir=logdir),
                v1.train.SummarySaverHook(save_steps=1, output_dir=logdir, summary_op=tf.constant(b"")),
            ]
            with supervisor_core.MonitoredTrainingSession(checkpoint_dir=logdir, hooks=hooks) as sess:
                while not sess.should_stop():
                    sess.run(train_op)
    assert tf.train.load_variable(tf.train.latest_checkpoint(logdir), "total") == 6.0


@pytest.mark.parametrize("group", GROUPS)
def test_training_goes_on_without(
    group: str, tmp_path: Path, take_away: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """Sums, steps and checkpoints are right in both facades; runs have plans only with all that these need; each
    symbol that is missed is warned of once, with what is lost."""
    missing = GROUPS[group]
    take_away(*missing)
    with caplog.at_level(logging.WARNING, "supervisor_core"):
        has_plans = supervised(str(tmp_path / "supervised"))
        monitored(str(tmp_path / "monitored"))
    assert has_plans == (not set(missing) & set(NEEDED_FOR_PLANS) or missing == [private.AS_ARRAY])
    said = [item.getMessage() for item in caplog.records if item.getMessage().startswith("TensorFlow ")]
    expected = [f"TensorFlow {tf.__version__} has no {symbol!r}: {symbol.without}." for symbol in missing]
    assert len(said) == len(set(said))
    assert set(said) <= set(expected)
    assert said or set(missing) <= set(OLDER)


def test_this_tensorflow_has_every_symbol() -> None:
    """In the TensorFlow that is tested, nothing is missing but what came later."""
    with tf.Graph().as_default() as graph, v1.Session() as sess:
        variable = v1.get_variable("v", initializer=0.0, use_resource=True)
        holders = [sess, graph, graph.get_operations()[0], tf.constant(0), variable, v1.train.Saver([variable])]
        holders.append(_WorkerContext(None, None, None, None))
        holders.append(NativeCallable(sess, [], [], [variable.initializer])._callable)

        def is_there(symbol: PrivateSymbol) -> bool:
            owner = symbol.owner_class()
            if owner is not None:
                return any(
                    hasattr(item, symbol.name) for item in (owner, *holders) if item is owner or isinstance(item, owner)
                )
            try:
                return symbol.load() is not None
            except AttributeError:
                return False

        assert [symbol for symbol in SYMBOLS if not is_there(symbol)] == OLDER


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

"""A model whose loss is not finite is not saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.base.errors import OptionsError
from supervisor_core.base.options import Options
from supervisor_core.tf1 import snapshot
from supervisor_core.tf1.saver_graph import CannotSnapshot

v1 = tf.compat.v1


def test_a_model_whose_loss_is_not_finite_is_not_saved(graph: Any, bench: Any) -> None:
    """With a watched loss, a checkpoint is refused while it is nan or infinite, and taken again when it is finite."""
    loss = v1.get_variable("last_loss", initializer=0.5)
    becomes = v1.placeholder(tf.float32, [])
    change = loss.assign(becomes)
    model = bench(options=Options(watched_loss=tf.identity(loss, name="loss")))
    model.save()
    before = model.names()
    for bad in (float("nan"), float("inf")):
        model.session.run(change, {becomes: bad})
        model.train()
        result = model.checkpoints.save(model.session, "timer")
        assert (result.path, result.cause, result.consistent) == (None, None, None)
        assert result.error is not None and f"watched loss is {bad}" in result.error
        assert model.names() == before
    assert result.step == 3
    model.session.run(change, {becomes: 0.5})
    assert model.save().step == 4


def needs_input() -> dict[str, Callable[[], Any]]:
    """Losses that cannot be read without taking input, having an effect, or being another each time."""

    def after_training() -> Any:
        with tf.control_dependencies([v1.assign_add(v1.get_variable("v", [], use_resource=False), 1.0)]):
            return tf.constant(1.0)

    return {
        "Placeholder": lambda: v1.placeholder(tf.float32, []) * 2.0,
        "QueueDequeueV2": lambda: v1.train.range_input_producer(3).dequeue(),
        "RandomUniform": lambda: tf.random.uniform([]),
        "AssignAdd": after_training,
        "IteratorGetNext": lambda: v1.data.make_one_shot_iterator(tf.data.Dataset.range(3)).get_next(),
    }


@pytest.mark.parametrize("kind", sorted(needs_input()))
def test_a_loss_that_needs_input_is_refused_at_once(graph: Any, bench: Any, kind: str) -> None:
    """A watched loss that would consume input is an error when the saver is made, which says why and what to do."""
    loss = needs_input()[kind]()
    with pytest.raises(OptionsError, match=rf"{kind}\).*in a variable that the training op assigns"):
        bench(options=Options(watched_loss=loss))


def test_a_loss_that_is_not_finite_stops_every_kind_of_save(
    graph: Any, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watched loss counts for savers that are run as they are, too; so does what is not new."""

    def unknown(graph: Any, saver: Any) -> Any:
        raise CannotSnapshot("of a reason")

    monkeypatch.setattr(snapshot, "read_saver", unknown)
    loss = v1.get_variable("last_loss", initializer=float("nan"))
    model = bench(options=Options(watched_loss=loss), make_saver=v1.train.Saver)
    assert "nan" in (model.checkpoints.save(model.session, "timer").error or "")
    model.session.run(loss.initializer, {loss.initial_value: 1.0})
    assert model.checkpoints.save(model.session, "timer", lambda step: step != 0).skipped
    assert model.names() == []


def test_a_loss_of_no_graph_is_refused_at_once(bench: Any) -> None:
    """A watched loss that is not there is an error that names it."""
    with pytest.raises(OptionsError, match="'no_such_loss:0', which is not in the graph"):
        bench(options=Options(watched_loss="no_such_loss:0"))

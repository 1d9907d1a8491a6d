"""Contract part 2: what services do with their errors, and what they need from the graph."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.base.options import Options

v1 = tf.compat.v1


@pytest.fixture
def summaries(logdir: str, read_events: Any) -> Callable[[str], list[float]]:
    """Returns a function that reads all values of a tag."""

    def read(tag: str) -> list[float]:
        events = [event for file in read_events(logdir, telemetry=False) for event in file]
        return [value.simple_value for event in events for value in event.summary.value if value.tag == tag]

    return read


def add_fed_summary(model: Any) -> Any:
    """Add a summary that needs a placeholder fed; return the placeholder."""
    images = v1.placeholder(tf.float32, [], name="images")
    v1.summary.scalar("loss", model.weight + images)
    return images


def test_an_unfed_placeholder_is_explained(
    ours: Any, build_model: Callable[..., Any], logdir: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A summary op that needs a placeholder stops the run; service, placeholder and remedies are named."""
    add_fed_summary(build_model())
    supervisor = ours.Supervisor(logdir=logdir, save_model_secs=0)
    with (
        caplog.at_level(logging.ERROR, logger="supervisor_core"),
        pytest.raises(tf.errors.InvalidArgumentError, match="placeholder tensor 'images'") as raised,
        supervisor.managed_session(),
    ):
        supervisor.wait_for_stop()
    message = " ".join([str(raised.value), *getattr(raised.value, "__notes__", [])])
    for text in (message, caplog.text) if hasattr(raised.value, "__notes__") else (caplog.text,):
        for word in ("summary", "'images'", "summary_feed_dict", "summary_op=None"):
            assert word in text


@pytest.mark.parametrize("by", ["tensor", "name"])
def test_summary_feed_dict_feeds_the_service(
    ours: Any, build_model: Callable[..., Any], logdir: str, summaries: Any, wait_until: Any, by: str
) -> None:
    """`Options.summary_feed_dict` gives the summary service what the summary op needs."""
    images = add_fed_summary(build_model())
    feeds = {images if by == "tensor" else "images:0": 2.5}
    supervisor = ours.Supervisor(logdir=logdir, save_model_secs=0, options=Options(summary_feed_dict=feeds))
    with supervisor.managed_session():

        def written() -> list[float]:
            supervisor.summary_writer.flush()
            return list(summaries("loss"))

        wait_until(written)
    assert summaries("loss") == [2.5]


def test_the_first_steps_per_second_are_true(
    ours: Any, build_model: Callable[..., Any], logdir: str, summaries: Any, wait_until: Any
) -> None:
    """There is no rate before there are two readings, so the first is never 0 in a run that trains."""
    model = build_model()
    supervisor = ours.Supervisor(logdir=logdir, save_model_secs=0, save_summaries_secs=9999)

    def has_counted() -> bool:
        return any(item.name == "step_counter" and item.last_tick_at for item in supervisor.run_status().threads)

    with supervisor.managed_session(start_standard_services=False) as sess:
        threads = supervisor.start_standard_services(sess)
        (counter,) = [thread for thread in threads if thread.status().name == "step_counter"]
        wait_until(has_counted)
        sess.run(model.train_op)
        counter.run_loop()
    (rate,) = summaries("global_step/sec")
    assert rate > 0


def test_a_resource_variable_is_found_as_global_step(ours: Any, build_model: Callable[..., Any], logdir: str) -> None:
    """A resource variable called global_step counts, names checkpoints, and dates summaries."""
    model = build_model(resource=True)
    supervisor = ours.Supervisor(logdir=logdir)
    assert supervisor.global_step.op.name.startswith("global_step")
    with supervisor.managed_session() as sess:
        for _ in range(3):
            sess.run(model.train_op)
    assert v1.train.latest_checkpoint(logdir) == f"{logdir}/model.ckpt-3"


@pytest.mark.parametrize("resource", [False, True])
def test_a_global_step_of_rank_1_counts(ours: Any, logdir: str, read_events: Any, resource: bool) -> None:
    """A global step that is `[7]` is 7."""
    step = v1.Variable([7], name="global_step", use_resource=resource)
    add = v1.assign_add(step, [1])
    v1.summary.scalar("loss", tf.constant(1.0))
    supervisor = ours.Supervisor(logdir=logdir, global_step=step, save_summaries_secs=9999)
    with supervisor.managed_session() as sess:
        sess.run(add)
        supervisor.summary_computed(sess, sess.run(supervisor.summary_op))
    assert v1.train.latest_checkpoint(logdir) == f"{logdir}/model.ckpt-8"
    steps = [event.step for file in read_events(logdir, telemetry=False) for event in file if event.summary.value]
    assert max(steps) == 8  # the service may write its first summary, of step 7, after this one


def test_an_op_added_too_late_is_explained(train: Any) -> None:
    """ "Graph is finalized" says which op was being added, at which line, and what to do."""

    def body(supervisor: Any, sess: Any, model: Any) -> None:
        tf.add(model.weight, 1.0, name="too_late")

    with pytest.raises(RuntimeError, match="Graph is finalized and cannot be modified") as raised:
        train(body=body)
    text = str(raised.value)
    assert "too_late" in text
    assert "test_part2_services.py" in text
    assert "before" in text
    assert "Supervisor(" in text

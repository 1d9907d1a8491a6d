"""Contract part 1, items 1 to 7 and 34: what the constructor makes of its arguments and of the graph."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.eager import context

v1 = tf.compat.v1
KEYS = v1.GraphKeys

OPS = {
    "ready_op": KEYS.READY_OP,
    "init_op": KEYS.INIT_OP,
    "saver": KEYS.SAVERS,
    "summary_op": KEYS.SUMMARY_OP,
    "global_step": KEYS.GLOBAL_STEP,
}


def test_item_01_use_default_is_the_integer_0(facade: Any) -> None:
    """`USE_DEFAULT` is 0, so that a program may pass either."""
    assert facade.Supervisor.USE_DEFAULT == 0
    assert type(facade.Supervisor.USE_DEFAULT) is int


def test_item_01_the_default_is_recognized_by_identity(facade: Any, build_model: Callable[..., Any]) -> None:
    """False equals 0 and is not taken for it: it is used as it came."""
    build_model()
    names = ("init_op", "summary_op", "global_step", "saver")
    supervisor = facade.Supervisor(**dict.fromkeys(names, False))
    assert [getattr(supervisor, name) for name in names] == [False] * 4


def test_item_01_none_disables(facade: Any, build_model: Callable[..., Any], logdir: str) -> None:
    """None means "do without", whatever the graph and its collections offer."""
    v1.summary.scalar("loss", build_model().weight)
    for key in OPS.values():
        v1.add_to_collection(key, object())
    names = (*OPS, "summary_writer")
    supervisor = facade.Supervisor(logdir=logdir, **dict.fromkeys(names))
    assert [getattr(supervisor, name) for name in names] == [None] * 6


def test_item_01_an_interval_of_0_disables_its_service(
    facade: Any, build_model: Callable[..., Any], logdir: str
) -> None:
    """`save_summaries_secs=0` and `save_model_secs=0` leave no service to start."""
    build_model()
    supervisor = facade.Supervisor(logdir=logdir, save_summaries_secs=0, save_model_secs=0)
    with supervisor.managed_session(start_standard_services=False) as sess:
        assert supervisor.start_standard_services(sess) == []


def test_item_02_the_first_item_of_the_collection_is_used(facade: Any, build_model: Callable[..., Any]) -> None:
    """With several items in its collection an argument left out takes the first, and adds none."""
    model = build_model()
    items = {name: [v1.no_op("first"), tf.constant("second")] for name in OPS}
    items["global_step"][0] = model.global_step
    items["saver"] = [v1.train.Saver(name="first"), v1.train.Saver(name="second")]
    for name, both in items.items():
        for item in both:
            v1.add_to_collection(OPS[name], item)
    supervisor = facade.Supervisor()
    for name, both in items.items():
        assert getattr(supervisor, name) is both[0]
        assert v1.get_collection(OPS[name]) == both


def test_item_02_what_is_made_is_added_to_the_collection(facade: Any, build_model: Callable[..., Any]) -> None:
    """With an empty collection a default is made and added, so that the next supervisor of the graph shares it."""
    v1.summary.scalar("loss", build_model().weight)
    supervisor = facade.Supervisor()
    for name, key in OPS.items():
        made = getattr(supervisor, name)
        assert made is not None
        assert [item is made for item in v1.get_collection(key)] == [True]


def test_item_02_the_first_local_init_op_of_the_collection_runs(facade: Any, build_model: Callable[..., Any]) -> None:
    """Of two local init ops in the collection the first runs with each session."""
    build_model()
    ran = [v1.Variable(0, collections=[KEYS.LOCAL_VARIABLES], use_resource=False) for _ in range(2)]
    for variable in ran:
        with tf.control_dependencies([v1.local_variables_initializer()]):
            v1.add_to_collection(KEYS.LOCAL_INIT_OP, variable.assign_add(1).op)
    with facade.Supervisor().managed_session() as sess:
        assert sess.run(ran) == [1, 0]


def test_item_02_local_variables_and_tables_are_initialized_by_default(
    facade: Any, build_model: Callable[..., Any]
) -> None:
    """Without a local init op one is made that initializes local variables and tables, and added to the collection."""
    build_model()
    local = v1.Variable(3, collections=[KEYS.LOCAL_VARIABLES], use_resource=False)
    words = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["seven"], [7]), -1)
    found = words.lookup(tf.constant("seven"))
    with facade.Supervisor().managed_session() as sess:
        assert sess.run([local, found]) == [3, 7]
    assert len(v1.get_collection(KEYS.LOCAL_INIT_OP)) == 1


def test_item_03_without_global_variables_there_is_no_saver(facade: Any) -> None:
    """A graph with local variables only gets no default saver."""
    v1.Variable(0, collections=[KEYS.LOCAL_VARIABLES])
    assert facade.Supervisor().saver is None
    assert v1.get_collection(KEYS.SAVERS) == []


def test_item_03_the_default_saver_is_unsharded(facade: Any, build_model: Callable[..., Any]) -> None:
    """The default saver writes one data file for all global variables."""
    build_model()
    saver_def = facade.Supervisor().saver.as_saver_def()
    assert saver_def.sharded is False
    assert saver_def.max_to_keep == 5


def test_item_04_ready_for_local_init_defaults_to_none(facade: Any, build_model: Callable[..., Any]) -> None:
    """Nothing is checked before the local init op unless the program asks, by argument or collection."""
    build_model()
    assert facade.Supervisor().ready_for_local_init_op is None
    with tf.Graph().as_default():
        op = tf.constant([], tf.string)
        v1.add_to_collection(KEYS.READY_FOR_LOCAL_INIT_OP, op)
        assert facade.Supervisor().ready_for_local_init_op is op


def test_item_05_the_constructor_makes_the_logdir_and_finalizes_the_graph(
    facade: Any, build_model: Callable[..., Any], graph: Any, logdir: str
) -> None:
    """After the constructor the logdir exists and the graph takes no more ops."""
    build_model()
    facade.Supervisor(logdir=os.path.join(logdir, "nested"))
    assert os.path.isdir(os.path.join(logdir, "nested"))
    assert graph.finalized


def test_item_05_a_constructor_that_fails_leaves_the_graph_open(
    facade: Any, build_model: Callable[..., Any], graph: Any
) -> None:
    """Finalizing comes last: a program that is asked to set its variables' devices can still do so."""
    build_model()
    with pytest.raises(ValueError, match="device"):
        facade.Supervisor(is_chief=False)
    assert not graph.finalized


def test_item_05_the_meta_graph_holds_the_default_ops(
    facade: Any, build_model: Callable[..., Any], logdir: str, read_events: Any
) -> None:
    """The meta graph event shows the graph with the defaults that the constructor added, and the saver."""
    build_model()
    supervisor = facade.Supervisor(logdir=logdir)
    supervisor.prepare_or_wait_for_session(start_standard_services=False).close()
    supervisor.stop()
    [events] = read_events(logdir)
    [data] = [event.meta_graph_def for event in events if event.HasField("meta_graph_def")]
    meta = v1.MetaGraphDef.FromString(data)
    names = {node.name for node in meta.graph_def.node}
    expected = {"global_step", "weight", supervisor.init_op.name, supervisor.ready_op.op.name}
    assert expected <= names
    assert meta.saver_def == supervisor.saver.as_saver_def()


def test_item_06_a_non_chief_writes_nowhere(facade: Any, build_model: Callable[..., Any], logdir: str) -> None:
    """Logdir, intervals, save path and writer are None even when passed; the ops are still built."""
    with tf.device("/cpu:0"):
        v1.summary.scalar("loss", build_model().weight)
    supervisor = facade.Supervisor(
        is_chief=False, logdir=logdir, save_summaries_secs=1, save_model_secs=1, summary_writer=object()
    )
    assert supervisor.is_chief is False
    written = ("save_summaries_secs", "save_model_secs", "save_path", "summary_writer")
    assert [getattr(supervisor, name) for name in written] == [None] * 4
    assert not os.path.exists(logdir)
    assert None not in [getattr(supervisor, name) for name in OPS]


@pytest.mark.parametrize("chief", [True, False])
def test_item_07_only_a_non_chief_asks_for_devices(facade: Any, build_model: Callable[..., Any], chief: bool) -> None:
    """A ref variable without a device is refused for a replica, by its name, and is fine for a chief."""
    build_model(resource=False)
    if chief:
        facade.Supervisor(is_chief=True)
        return
    with pytest.raises(ValueError, match=r"all Variables must have their device set(.|\n)*global_step"):
        facade.Supervisor(is_chief=False)


def test_item_07_resource_variables_need_devices_too(ours: Any, build_model: Callable[..., Any]) -> None:
    """What the original overlooks: a resource variable without a device is refused as well."""
    build_model(resource=True)
    with pytest.raises(ValueError, match="all Variables must have their device set"):
        ours.Supervisor(is_chief=False)


def test_item_34_constructed_under_eager_execution(facade: Any) -> None:
    """Under eager execution the constructor refuses."""
    with context.eager_mode(), pytest.raises(RuntimeError, match="Supervisors are incompatible with eager execution"):
        facade.Supervisor()


def test_item_34_queue_runners_under_eager_execution(facade: Any, build_model: Callable[..., Any]) -> None:
    """Under eager execution queue runners are refused."""
    build_model()
    supervisor = facade.Supervisor()
    with (
        supervisor.managed_session(start_standard_services=False) as sess,
        context.eager_mode(),
        pytest.raises(RuntimeError, match="Queues are not compatible with eager execution"),
    ):
        supervisor.start_queue_runners(sess)


def test_item_34_the_error_says_what_to_do(ours: Any, build_model: Callable[..., Any]) -> None:
    """Both errors name the remedy."""
    build_model()
    supervisor = ours.Supervisor()
    with context.eager_mode(), pytest.raises(RuntimeError, match=r"with tf\.Graph\(\)\.as_default\(\):"):
        ours.Supervisor()
    with (
        supervisor.managed_session(start_standard_services=False) as sess,
        context.eager_mode(),
        pytest.raises(RuntimeError, match=r"with tf\.Graph\(\)\.as_default\(\):"),
    ):
        supervisor.start_queue_runners(sess)

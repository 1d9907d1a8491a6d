"""What is read, verified, written and swept without tensorflow is what tensorflow itself reads and writes."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from supervisor_core.base.errors import DamagedCheckpointError
from supervisor_core.checkpoint.bundle import read_index, verify
from supervisor_core.checkpoint.retention import Saved
from supervisor_core.checkpoint.state_file import SaveId, read_state
from supervisor_core.checkpoint.store import CheckpointStore

tf1 = tf.compat.v1


@pytest.fixture
def session() -> Iterator[Any]:
    """A session over a model of every kind of variable that a saver saves."""
    with tf.Graph().as_default(), tf1.Session() as sess:
        step = tf1.train.get_or_create_global_step()
        tf1.get_variable("dense/kernel", initializer=np.arange(5000, dtype=np.float32).reshape(50, 100))
        tf1.get_variable("half", initializer=np.ones(7, np.float16))
        tf1.get_variable("flag", initializer=True, use_resource=False)
        tf1.get_variable("words", initializer=np.array([b"a", b"", b"w" * 300], object), dtype=tf.string)
        tf1.get_variable(
            "parts", shape=[10, 3], initializer=tf1.ones_initializer(), partitioner=tf1.fixed_size_partitioner(3)
        )
        sess.run(tf1.global_variables_initializer())
        sess.run(tf1.assign(step, 1200))
        yield sess


@pytest.mark.parametrize("sharded", [False, True])
def test_a_saver_s_checkpoint_verifies(session: Any, tmp_path: Path, sharded: bool) -> None:
    """Names, types and shapes agree with tensorflow's own reader; step, size and count are right."""
    prefix = tf1.train.Saver(sharded=sharded).save(session, str(tmp_path / "model.ckpt"), global_step=1200)
    verified = verify(prefix)
    shapes = tf1.train.NewCheckpointReader(prefix).get_variable_to_shape_map()
    assert (verified.step, verified.tensors) == (1200, len(shapes))
    files = [path for path in tmp_path.glob("model.ckpt-1200.*") if path.suffix != ".meta"]
    assert verified.bytes == sum(path.stat().st_size for path in files)
    entries = read_index(prefix).entries
    assert {name: list(entries[name].shape) for name in shapes} == shapes
    assert entries["half"].dtype == "float16"
    assert verify(prefix).step == 1200


def test_every_type_that_tensorflow_saves_verifies(tmp_path: Path) -> None:
    """Each dtype, empty tensors, and variants (lists of tensors) verify."""
    kinds = [
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
    ]
    kinds += ["uint64", "bool", "complex64", "complex128"]
    values = {kind: tf.cast(tf.ones([3]), kind) for kind in kinds}
    values["none"] = tf.zeros([0, 4])
    values["no strings"] = tf.constant([], tf.string)
    values["list"] = tf.raw_ops.TensorListFromTensor(tensor=tf.zeros([3, 2]), element_shape=tf.constant([2]))
    values["lists"] = tf.stack([values["list"], values["list"]])
    prefix = str(tmp_path / "model.ckpt-1")
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=list(values), shape_and_slices=[""] * len(values), tensors=list(values.values())
    )
    assert verify(prefix).tensors == len(values)
    assert {entry.dtype for entry in read_index(prefix).entries.values()} >= {*kinds, "string", "variant"}


def test_checkpoints_of_the_newer_api_verify(tmp_path: Path) -> None:
    """What tf.train.Checkpoint writes, object graph and all, verifies, and its manager's state file is read."""
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(v=tf.Variable([1.0, 2.0])), str(tmp_path), max_to_keep=3)
    for _ in range(2):
        manager.save()
    recovery = CheckpointStore(tmp_path, "ckpt").newest_usable()
    assert recovery.chosen is not None
    assert recovery.chosen.path == manager.latest_checkpoint
    state = read_state(tmp_path / "checkpoint").state
    assert state is not None
    assert len(state.timestamps) == 2
    assert verify(manager.latest_checkpoint, step_name="save_counter/.ATTRIBUTES/VARIABLE_VALUE").step == 2


def test_what_verifies_restores_and_what_does_not_verify_does_not(session: Any, tmp_path: Path) -> None:
    """60 random damages: tensorflow refuses none that verifies, and no damage of a byte in use goes unnoticed."""
    saver = tf1.train.Saver()
    original = tmp_path / "original"
    original.mkdir()
    saver.save(session, str(original / "model.ckpt"), global_step=1200, write_meta_graph=False)
    chance = random.Random(7)
    found = 0
    for _ in range(60):
        case = tmp_path / "case"
        shutil.rmtree(case, ignore_errors=True)
        shutil.copytree(original, case)
        victim = case / chance.choice(["model.ckpt-1200.index", "model.ckpt-1200.data-00000-of-00001"])
        content = bytearray(victim.read_bytes())
        at = chance.randrange(len(content))
        if chance.random() < 0.5:
            content[at] ^= 1 << chance.randrange(8)
        else:
            content = content[:at]
        victim.write_bytes(content)
        try:
            verify(case / "model.ckpt-1200")
        except DamagedCheckpointError:
            found += 1
        else:
            saver.restore(session, str(case / "model.ckpt-1200"))
    assert found == 60


def test_tensorflow_understands_our_state_file(session: Any, tmp_path: Path) -> None:
    """Its latest_checkpoint and get_checkpoint_state read what is written here, also after the run was moved."""
    saver = tf1.train.Saver()
    store = CheckpointStore(tmp_path)
    kept = [
        Saved(saver.save(session, str(tmp_path / "model.ckpt"), global_step=step, write_state=False), step + 0.5)
        for step in (5, 6)
    ]
    store.record(kept[-1].path, kept=kept, last_preserved_at=4.25, save_id=SaveId(3, 1))
    assert "# supervisor_core: attempt 3" in (tmp_path / "checkpoint").read_text()
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-6")
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert list(state.all_model_checkpoint_paths) == [saved.path for saved in kept]
    assert list(state.all_model_checkpoint_timestamps) == [5.5, 6.5]
    assert state.last_preserved_timestamp == 4.25
    shutil.move(tmp_path, tmp_path.parent / "moved")
    assert tf.train.latest_checkpoint(str(tmp_path.parent / "moved")) == str(tmp_path.parent / "moved" / "model.ckpt-6")
    tmp_path.mkdir()


def test_names_in_other_alphabets(session: Any, tmp_path: Path) -> None:
    """A logdir and a basename in other letters work on both sides, in each direction."""
    logdir = tmp_path / "训练 1"
    prefix = tf1.train.Saver().save(session, str(logdir / "模型"), global_step=3)
    chosen = CheckpointStore(logdir, "模型").newest_usable().chosen
    assert chosen is not None
    assert chosen.path == prefix
    CheckpointStore(logdir, "模型").record(prefix)
    assert tf.train.latest_checkpoint(str(logdir)) == prefix

"""Which losses are not finite at present, seen where events are encoded."""

from __future__ import annotations

import math
from pathlib import Path

from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto

from supervisor_core.events.file_writer import FileWriter
from tests.cases import each

NAN, INF = math.nan, math.inf


def as_scalar(writer: FileWriter, tag: str, value: float) -> None:
    """As `run.log` does."""
    writer.scalar(tag, value, 1)


def as_summary(writer: FileWriter, tag: str, value: float) -> None:
    """As a summary op, and PyTorch's SummaryWriter do, among other values."""
    values = [Summary.Value(tag="other", simple_value=1.0), Summary.Value(tag=tag, simple_value=value)]
    writer.add_summary(Summary(value=values).SerializeToString(), 1)


def as_tensor(writer: FileWriter, tag: str, value: float) -> None:
    """As ``tf.summary.scalar`` of TensorFlow 2 does."""
    tensor = TensorProto(dtype=1, float_val=[value])
    writer.add_summary(Summary(value=[Summary.Value(tag=tag, tensor=tensor)]), 1)


@each("add", [as_scalar, as_summary, as_tensor])
def test_the_newest_value_of_a_loss_counts(tmp_path: Path, add: object) -> None:
    """However it is written. A tag that is no loss does not count; nor does a value that was followed by another."""
    assert callable(add)
    with FileWriter(str(tmp_path)) as writer:
        add(writer, "accuracy", NAN)
        assert writer.losses_not_finite(60) == ()
        for bad in (NAN, INF, -INF):
            add(writer, "train/loss", bad)
            add(writer, "val_loss", 0.5)
            assert writer.losses_not_finite(60) == ("train/loss",)
        add(writer, "train/loss", 0.25)
        assert writer.losses_not_finite(60) == ()


def test_a_summary_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    """It is written as it came, and what follows counts."""
    with FileWriter(str(tmp_path)) as writer:
        writer.add_event(type("Event", (), {"DESCRIPTOR": type("D", (), {"name": "Event"}),
                                            "SerializeToString": lambda self: b"\x2a\x7floss"})())  # fmt: skip
        writer.scalar("loss", NAN, 1)
        assert writer.losses_not_finite(60) == ("loss",)


def test_what_a_checkpoint_said_of_the_losses_goes_on(tmp_path: Path) -> None:
    """Until there is a new value."""
    with FileWriter(str(tmp_path)) as writer:
        writer.take_up_losses(["loss", "val/loss"])
        assert writer.losses_not_finite(60) == ("loss", "val/loss")
        writer.scalar("loss", 0.5, 1)
        assert writer.losses_not_finite(60) == ("val/loss",)

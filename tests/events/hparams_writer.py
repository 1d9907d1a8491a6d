"""Writes hyperparameters as TensorBoard's own HParams plugin does. Who uses it is skipped without TensorFlow."""

from __future__ import annotations

from typing import Any

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

from supervisor_core.events import event_format
from supervisor_core.events.hparams import HParam


def library() -> Any:
    """The plugin's own."""
    return pytest.importorskip("tensorboard.plugins.hparams.summary", reason="its writer needs TensorFlow")


def started(hparams: dict[str, HParam], *, with_tensor: bool = True) -> Summary:
    """What the plugin's library writes when a training begins; PyTorch and Lightning write no tensor."""
    found = Summary.FromString(library().session_start_pb(hparams).SerializeToString())
    if not with_tensor:
        found.value[0].ClearField("tensor")
    return found


def event(hparams: dict[str, HParam], **how: bool) -> bytes:
    """The same as an event."""
    made: bytes = Event(wall_time=1.7e9, summary=started(hparams, **how)).SerializeToString()
    return made


def framed(hparams: dict[str, HParam]) -> bytes:
    """The same as a record."""
    return event_format.frame(event(hparams))

"""`as_unavailable`: which errors mean that a process of the cluster is gone, or not quite there yet."""

from __future__ import annotations

import pytest
import tensorflow as tf

from supervisor_core.tf1.cluster.connect import as_unavailable, raised_as_unavailable
from tests.cases import each

STARTING = (
    "Additional GRPC error information from remote target /job:ps/replica:0/task:0:\n"
    ':UNKNOWN:Error received from peer  {grpc_message:"/job:ps/replica:0/task:0/device:CPU:0 unknown device."}'
)


@each("kind", [tf.errors.AbortedError, tf.errors.UnavailableError])
def test_what_tensorflow_raises_of_a_process_that_is_gone(kind: type[Exception]) -> None:
    """The very error."""
    error = kind(None, None, "Socket closed")
    assert as_unavailable(error) is error


def test_a_server_that_is_being_started_does_not_know_its_own_device() -> None:
    """TensorFlow raises that as a wrong argument; here it is raised as unavailable."""
    error = tf.errors.InvalidArgumentError(None, None, STARTING)
    assert isinstance(as_unavailable(error), tf.errors.UnavailableError)
    with pytest.raises(tf.errors.UnavailableError, match="unknown device") as raised, raised_as_unavailable():
        raise error
    assert raised.value.__cause__ is error


@each(
    "error",
    [
        tf.errors.InvalidArgumentError(None, None, "Cannot assign a device for operation a: /job:ps is not valid"),
        tf.errors.NotFoundError(None, None, "no such file"),
        ValueError("unknown device."),
    ],
)
def test_all_other_errors_stay_what_they_are(error: Exception) -> None:
    """A mistake of the program's is no reason to wait."""
    assert as_unavailable(error) is None
    with pytest.raises(type(error)) as raised, raised_as_unavailable():
        raise error
    assert raised.value is error

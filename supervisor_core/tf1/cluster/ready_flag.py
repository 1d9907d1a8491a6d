"""`ReadyFlag`: a variable in the cluster by which a chief marks its model as ready, ``init_fn`` included.

Workers see the variables, but these are initialised before ``init_fn`` has run. So the chief sets one more variable
when it is done, in no collection and on the device of the first shared variable, and clears it before it starts. Its
value is a digest of the model's variables and the chief's session id: after a crash the next chief recognises the model
that its run left in the cluster, and does not adopt one that has changed.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import tensorflow as tf

_SERVERS = "ps"
_NAME = "supervisor_model_is_ready"
_MISSING = "the chief is still initialising the model (init_fn)"


class ReadyFlag:
    """The ops that set, clear and read the flag. Adds them to the graph.

    Args:
        graph: the model's graph, not yet finalized.
        device: a device that chief and workers share.
    """

    def __init__(self, graph: Any, device: str) -> None:
        self._model = _digest(graph)
        with graph.as_default(), tf.name_scope(_NAME), tf.device(device), tf.control_dependencies(None):
            flag = tf.raw_ops.VarHandleOp(dtype=tf.string, shape=[], shared_name=_NAME)
            self._session = tf.compat.v1.placeholder(tf.string, [], name="session")
            self._set = tf.raw_ops.AssignVariableOp(resource=flag, value=self._session)
            self._clear = tf.raw_ops.DestroyResourceOp(resource=flag, ignore_lookup_error=True)
            self._is_set = tf.raw_ops.VarIsInitializedOp(resource=flag)
            self._value = tf.raw_ops.ReadVariableOp(resource=flag, dtype=tf.string)
            self.missing = tf.boolean_mask(tf.constant([_MISSING]), tf.reshape(tf.logical_not(self._is_set), [1]))
            """What is missing, as a 1-D string tensor; empty once the flag is set."""

    def set(self, sess: Any, session: str) -> None:
        """Mark the model as ready.

        Args:
            sess: the TensorFlow session.
            session: the id of the chief's session.
        """
        sess.run(self._set, feed_dict={self._session: f"{self._model} {session}"})

    def clear(self, sess: Any) -> None:
        """Mark the model as not ready."""
        sess.run(self._clear)

    def set_by(self, sess: Any) -> str | None:
        """Return the session that marked this model as ready; None if none did, or if it was another model."""
        if not sess.run(self._is_set):
            return None
        value: bytes = sess.run(self._value)
        model, _, session = value.decode("utf-8", "replace").partition(" ")
        return session if model == self._model else None


def ready_flag_for(graph: Any) -> ReadyFlag | None:
    """Return a ready_flag for a graph whose variables are placed on devices, as those of replicas must be.

    It is on the device of the first global variable on a parameter server, or else of the first global variable: others
    may belong to one worker. Always in CPU memory, since a GPU cannot hold a string.
    """
    variables = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    devices = [tf.DeviceSpec.from_string(device) for each in variables if (device := getattr(each, "device", None))]
    devices.sort(key=lambda device: device.job != _SERVERS)
    if not devices:
        return None
    return ReadyFlag(graph, devices[0].replace(device_type="CPU", device_index=0).to_string())


def _digest(graph: Any) -> str:
    """Return a digest of the variables' names, types, shapes and devices."""
    variables = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    properties = [[str(getattr(each, name, "")) for name in ("name", "dtype", "shape", "device")] for each in variables]
    return sha256(repr(sorted(properties)).encode()).hexdigest()[:16]

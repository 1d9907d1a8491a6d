"""`Announcement`: how a chief tells its workers that the model is ready, ``init_fn`` included, and by whom.

Workers see the variables, which are initialised before ``init_fn`` has run. So the chief sets one more when it is
through, beside the first variable that they share and in no collection, and takes it back before it begins. Its value
is the chief's session, so that a chief which comes after a crash knows the model that its run has left in the cluster;
and a digest of the model's variables, so that it is not taken for one that has been changed meanwhile.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import tensorflow as tf

_SERVERS = "ps"
_NAME = "supervisor_model_is_ready"
_MISSING = "the chief is still initialising the model (init_fn)"


class Announcement:
    """The ops to announce, to take back, and to look. Adds them to the graph.

    Args:
        graph: the model's graph, not yet finalized.
        device: where the mark is kept: a device that chief and workers share.
    """

    def __init__(self, graph: Any, device: str) -> None:
        self._model = _digest(graph)
        with graph.as_default(), tf.name_scope(_NAME), tf.device(device), tf.control_dependencies(None):
            mark = tf.raw_ops.VarHandleOp(dtype=tf.string, shape=[], shared_name=_NAME)
            self._session = tf.compat.v1.placeholder(tf.string, [], name="session")
            self._announce = tf.raw_ops.AssignVariableOp(resource=mark, value=self._session)
            self._take_back = tf.raw_ops.DestroyResourceOp(resource=mark, ignore_lookup_error=True)
            self._is_set = tf.raw_ops.VarIsInitializedOp(resource=mark)
            self._value = tf.raw_ops.ReadVariableOp(resource=mark, dtype=tf.string)
            self.missing = tf.boolean_mask(tf.constant([_MISSING]), tf.reshape(tf.logical_not(self._is_set), [1]))
            """What is missing, as a 1-D string tensor; empty once the chief has announced."""

    def announce(self, sess: Any, session: str) -> None:
        """Say that the model is ready.

        Args:
            sess: the session to say it in.
            session: the chief's session.
        """
        sess.run(self._announce, feed_dict={self._session: f"{self._model} {session}"})

    def take_back(self, sess: Any) -> None:
        """Say that the model is not ready, or not yet."""
        sess.run(self._take_back)

    def announced_by(self, sess: Any) -> str | None:
        """Return the session that has announced this model; None if none has, or it was another model."""
        if not sess.run(self._is_set):
            return None
        value: bytes = sess.run(self._value)
        model, _, session = value.decode("utf-8", "replace").partition(" ")
        return session if model == self._model else None


def announcement_for(graph: Any) -> Announcement | None:
    """Return an announcement for a graph whose variables are placed on devices, as those of replicas must be.

    It is where the first global variable is, and if there are any on parameter servers, where the first of those is:
    all others may be a worker's own. Always in the memory of its task's CPU, since a GPU cannot hold it.
    """
    variables = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    places = [tf.DeviceSpec.from_string(device) for each in variables if (device := getattr(each, "device", None))]
    places.sort(key=lambda place: place.job != _SERVERS)
    if not places:
        return None
    return Announcement(graph, places[0].replace(device_type="CPU", device_index=0).to_string())


def _digest(graph: Any) -> str:
    """Return what tells models apart: their variables' names, types, shapes and places."""
    variables = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    facts = [[str(getattr(each, fact, "")) for fact in ("name", "dtype", "shape", "device")] for each in variables]
    return sha256(repr(sorted(facts)).encode()).hexdigest()[:16]

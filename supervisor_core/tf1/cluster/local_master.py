"""`LocalMaster`: the master string ``local``, a session of this process that goes through a server all the same."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

LOCAL = ("local", b"local")


class LocalMaster:
    """Makes a server when ``local`` is first asked for, and keeps it. TensorFlow 2 knows no such master any more.

    Source: "What master string to use" in seed document 003.
    """

    def __init__(self) -> None:
        self._server: Any = None

    def target_of(self, master: str) -> str:
        """Return the target to connect to: the server's for ``local``, any other master as it is."""
        if master not in LOCAL:
            return master
        if self._server is None:
            self._server = tf.compat.v1.train.Server.create_local_server()
        return str(self._server.target)

"""`close_session`: closes a TensorFlow session, though a process of its cluster may be gone."""

from __future__ import annotations

import logging
from typing import Any

from supervisor_core.runtime.blocking_call import BlockingCall

_LOG = logging.getLogger("supervisor_core")

CLOSE_SECS = 5.0
"""How long a session in a cluster has to be closed, in seconds."""


def close_session(session: Any) -> None:
    """Close a plain session. TensorFlow waits for every process that it reached to answer, for ever: this does not.

    Raises:
        Exception: what closing it raises.
    """
    if not is_remote(getattr(session, "sess_str", None) or ""):
        session.close()
        return
    closing = BlockingCall(session.close, name="supervisor_close")
    if closing.wait(CLOSE_SECS):
        closing.result()
    else:
        _LOG.warning("A process of the cluster does not answer: the session is left without having been closed.")


def is_remote(master: str | bytes) -> bool:
    """Whether a session on this master goes through a server, whose cluster may keep it waiting for ever."""
    return "://" in (master.decode() if isinstance(master, bytes) else master)

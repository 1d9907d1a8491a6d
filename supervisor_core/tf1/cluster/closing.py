"""`close_session`: closes a TensorFlow session, though a process of its cluster may be gone."""

from __future__ import annotations

import logging
from typing import Any

from supervisor_core.runtime.blocking_call import BlockingCall

_LOG = logging.getLogger("supervisor_core")

CLOSE_SECS = 5.0
"""How long a session in a cluster has to be closed, in seconds."""


def close_session(session: Any) -> None:
    """Close a plain session. TensorFlow waits for every process that it reached to answer, forever: this does not.

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


def close_at_end(session: Any, secs: float) -> None:
    """Close a session because training has ended; never raises.

    TensorFlow waits for a run that hangs, in native code, where no Ctrl-C reaches it. So this waits for so long at
    most, and leaves the session as it is then.
    """
    try:
        try:
            closing = BlockingCall(session.close, name="supervisor_close")
        except RuntimeError:  # no more threads, as at the interpreter's end
            session.close()
            return
        if closing.wait(secs):
            closing.result()
        else:
            _LOG.warning("A run that does not return keeps the session from being closed: it is left as it is.")
    except Exception as error:  # as in the original: pending calls end with it, and whatever it raises is of no use
        _LOG.info("Closing the session failed: %s", error)


def is_remote(master: str | bytes) -> bool:
    """Whether a session on this master goes through a server, whose cluster may keep it waiting forever."""
    return "://" in (master.decode() if isinstance(master, bytes) else master)

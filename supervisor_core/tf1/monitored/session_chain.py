"""The sessions that programs find behind a monitored one: ``sess._sess._sess._sess._sess``, ``_coordinated_creator``.

TensorFlow's monitored session is a chain: one that recovers, one that coordinates threads, one that calls hooks, and
the plain session. Programs and libraries go along it to the end, or ask one link for its coordinator. Here one object
does all of that, so the links are views of it: they hold nothing, and go on working when the session is recovered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from supervisor_core.tf1.monitored.monitored import Monitored


class CoordinatedCreator:
    """What ``MonitoredSession._coordinated_creator`` is asked for: the coordinator, and the session inside.

    Args:
        monitored: the monitored session.
    """

    def __init__(self, monitored: Monitored) -> None:
        self._monitored = monitored

    @property
    def coord(self) -> Any:
        """The coordinator of the present session; None once it is closed."""
        return self._monitored._coordinator

    @property
    def tf_sess(self) -> Any:
        """The session inside; None once it is closed."""
        return self._monitored._inner


class _Link:
    def __init__(self, monitored: Monitored) -> None:
        self._monitored = monitored

    @property
    def _sess(self) -> Any:
        """The next session of the chain."""
        raise NotImplementedError

    @property
    def graph(self) -> Any:
        """The graph that was launched."""
        return self._monitored.graph

    @property
    def sess_str(self) -> Any:
        """The TensorFlow master."""
        return self._monitored._inner.sess_str

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Run as ``tf.compat.v1.Session.run`` does, hooks included."""
        return self._monitored._open_runs().run(fetches, feed_dict, options, run_metadata)

    def should_stop(self) -> bool:
        """Return whether the loop should end."""
        return self._monitored.should_stop()

    def close(self) -> None:
        """Close the monitored session."""
        self._monitored.close()


class RecoverableLink(_Link):
    """The link that recreates a session that is lost."""

    @property
    def _sess_creator(self) -> CoordinatedCreator:
        return self._monitored._coordinated_creator

    @property
    def _sess(self) -> CoordinatedLink:
        return CoordinatedLink(self._monitored)

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Run as ``tf.compat.v1.Session.run`` does, hooks and recovery included."""
        return self._monitored.run(fetches, feed_dict, options, run_metadata)


class CoordinatedLink(_Link):
    """The link that stops with its coordinator."""

    @property
    def _coord(self) -> Any:
        return self._monitored._coordinator

    @property
    def _sess(self) -> HookedLink:
        return HookedLink(self._monitored)


class HookedLink(_Link):
    """The link that calls hooks; the session inside is next."""

    @property
    def _hooks(self) -> list[Any]:
        return self._monitored._hooks

    @property
    def _sess(self) -> Any:
        return self._monitored._inner

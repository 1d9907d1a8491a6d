"""A session in a cluster is closed, or left open: closing never waits forever for an unavailable process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.tf1.cluster import connect
from supervisor_core.tf1.cluster.connect import close_session
from supervisor_core.tf1.session import SupervisedSession
from tests.cases import each

v1 = tf.compat.v1


class Session:
    """A session whose end is as the test has it."""

    def __init__(self, master: str | bytes | None, error: Exception | None = None) -> None:
        self.sess_str = master
        self.error = error
        self.let_go = threading.Event()
        self.let_go.set()
        self.closed_in: list[threading.Thread] = []

    def close(self) -> None:
        assert self.let_go.wait(60.0)
        self.closed_in.append(threading.current_thread())
        if self.error is not None:
            raise self.error


@pytest.fixture(autouse=True)
def _time_to_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that can be closed is, however busy the machine is."""
    monkeypatch.setattr(connect, "CLOSE_SECS", 60.0)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session in a cluster that does not answer until the test has ended, with no time to wait for it."""
    monkeypatch.setattr(connect, "CLOSE_SECS", 0.0)
    session = Session("grpc://a:1")
    session.let_go.clear()
    yield session
    session.let_go.set()


def test_a_session_whose_cluster_does_not_answer_is_left(hanging: Session, caplog: pytest.LogCaptureFixture) -> None:
    """After a while, and that is said."""
    close_session(hanging)
    assert hanging.closed_in == []
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert caplog.messages == ["A process of the cluster does not answer: the session was not closed."]


def test_supervised_sessions_close_like_that(graph: Any) -> None:
    """Here and in a cluster: afterwards nothing can be run in them; twice is once."""
    for master in ("", v1.train.Server.create_local_server().target):
        session = SupervisedSession(master)
        assert session.run(tf.constant(1)) == 1
        session.close()
        session.close()
        with pytest.raises(RuntimeError, match="closed"):
            session.run(tf.constant(2))


@each("master", ["grpc://a:1", b"grpc://a:1"])
def test_a_session_in_a_cluster_is_closed(master: str | bytes) -> None:
    """In time, and what that raises is raised here."""
    session = Session(master)
    close_session(session)
    assert len(session.closed_in) == 1
    with pytest.raises(tf.errors.AbortedError):
        close_session(Session(master, tf.errors.AbortedError(None, None, "gone")))


def test_at_the_interpreters_end_a_session_in_a_cluster_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can be started, closing it could last forever; one of this process is closed here."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    session, own = Session("grpc://a:1"), Session("")
    with pytest.raises(RuntimeError, match="can't start new thread"):
        close_session(session)
    connect.close_with_timeout(own, 60.0)
    assert (session.closed_in, own.closed_in) == ([], [threading.current_thread()])

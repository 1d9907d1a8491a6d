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

"""A program closes the summary writer in mid-run: its session is recorded to the end, whichever way it is closed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import supervisor_core
from supervisor_core.run.model.run import Session
from supervisor_core.run.watch.liveness import LIVENESS_DIRECTORY
from supervisor_core.run.watch.logdir_watch import LogdirWatch

v1 = tf.compat.v1
Begun = tuple[Any, Callable[[], None]]
STEPS = 20


@contextmanager
def _supervisor(logdir: str, **given: Any) -> Iterator[Begun]:
    supervisor = supervisor_core.Supervisor(logdir=logdir, save_model_secs=0, save_summaries_secs=0, **given)
    with supervisor.managed_session() as session:
        yield session, supervisor.summary_writer.close


@contextmanager
def _own_writer(logdir: str) -> Iterator[Begun]:
    with _supervisor(logdir, summary_writer=v1.summary.FileWriter(logdir)) as begun:
        yield begun


@contextmanager
def _monitored(logdir: str) -> Iterator[Begun]:
    with supervisor_core.MonitoredTrainingSession(checkpoint_dir=logdir, save_summaries_steps=None) as session:
        yield session, v1.summary.FileWriterCache.clear


@contextmanager
def _supervised(logdir: str) -> Iterator[Any]:
    with supervisor_core.supervise(logdir) as run:
        yield run.writer


@contextmanager
def _of_supervisor(logdir: str) -> Iterator[Any]:
    supervisor = supervisor_core.Supervisor(logdir=logdir, save_model_secs=0, save_summaries_secs=0)
    with supervisor.managed_session():
        yield supervisor.summary_writer


@contextmanager
def _of_monitored(logdir: str) -> Iterator[Any]:
    with supervisor_core.MonitoredTrainingSession(checkpoint_dir=logdir, save_summaries_steps=None):
        yield v1.summary.FileWriterCache.get(logdir)


ADDS: dict[str, Callable[[Any, Any], None]] = {
    "add_summary": lambda writer, summary: writer.add_summary(summary, 7),
    "serialized": lambda writer, summary: writer.add_summary(summary.SerializeToString(), 7),
    "add_event": lambda writer, summary: writer.add_event(v1.Event(wall_time=1e9, step=7, summary=summary)),
    "scalar": lambda writer, summary: writer.scalar("loss/after", 2.0, 7),
}
"""Each way to add a value."""


@pytest.mark.parametrize("add", ADDS.values(), ids=ADDS)
@pytest.mark.parametrize("begin", [_supervised, _of_supervisor, _of_monitored])
def test_nothing_is_lost_after_it(
    tmp_path: Path, begin: Callable[[str], Any], add: Callable[[Any, Any], None], recwarn: pytest.WarningsRecorder
) -> None:
    """What is added next is written, whichever way, and not only after the next record; and after the end a warning
    says at once that it is not, as in the original."""
    after = v1.Summary(value=[v1.Summary.Value(tag="loss/after", simple_value=2.0)])
    with v1.Graph().as_default():
        v1.train.get_or_create_global_step()
        with begin(str(tmp_path)) as writer:
            writer.close()
            add(writer, after)
            assert not recwarn.list
        tags = LogdirWatch(str(tmp_path)).refresh().runs["."].run.last_values
    with pytest.warns(UserWarning, match="closed FileWriter"):
        add(writer, after)
    assert [item.tag for item in tags] == ["loss/after"]


def test_a_writer_of_tensorflows_says_it_at_once(tmp_path: Path) -> None:
    """Its own warning: what the program adds to it is lost until the next record."""
    with v1.Graph().as_default():
        writer = v1.summary.FileWriter(str(tmp_path))
        v1.train.get_or_create_global_step()
        with _supervisor(str(tmp_path), summary_writer=writer):
            writer.close()
            with pytest.warns(UserWarning, match="closed FileWriter"):
                writer.add_summary(v1.Summary(), 7)


@pytest.mark.parametrize("begin", [_supervisor, _own_writer, _monitored])
def test_the_end_is_recorded(tmp_path: Path, begin: Callable[[str], Any]) -> None:
    """In the events file, too: without a liveness file the session has its outcome and its last step."""
    with v1.Graph().as_default():
        step = v1.assign_add(v1.train.get_or_create_global_step(), 1)
        with begin(str(tmp_path)) as (session, close):
            for number in range(STEPS):
                session.run(step)
                if number == STEPS // 2:
                    close()
    shutil.rmtree(tmp_path / LIVENESS_DIRECTORY)
    last: Session = LogdirWatch(str(tmp_path)).refresh().runs["."].run.sessions[-1]
    assert (last.outcome, last.last_step) == ("completed", STEPS)

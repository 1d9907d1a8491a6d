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

"""A checkpoint is of one step, or says that it is not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.base.options import Options
from supervisor_core.checkpoint import bundle

v1 = tf.compat.v1


def test_a_step_that_does_not_end_does_not_hold_saves_up(bench: Any) -> None:
    """When the wait is over a snapshot is taken regardless; its record says so, and its name is still its step."""
    model = bench(options=Options(snapshot_wait_secs=0.0))
    model.session.plain_session().run(model.train_op)
    inside, done = threading.Event(), threading.Event()

    def stuck() -> None:
        model.step_lock.acquire_shared()
        inside.set()
        done.wait()
        model.step_lock.release_shared()

    thread = threading.Thread(target=stuck)
    thread.start()
    inside.wait()
    result = model.checkpoints.save(model.session, "final")
    done.set()
    thread.join()
    assert (result.consistent, result.verified, result.step) == (False, True, 1)
    assert bundle.verify(result.path or "").step == 1


def test_through_a_server_training_waits_for_the_saver(bench: Any, value: Any) -> None:
    """In a session of a server of this process' own the saver writes while steps wait, so its checkpoints are of one
    step too."""
    model = bench(target=tf.distribute.Server.create_local_server().target, size=100_000)
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            model.train()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        for _ in range(5):
            result = model.save(steps=0)
            assert (result.consistent, result.verified) == (True, True)
            assert set(value(result.path)) == {float(result.step or 0)}
            assert value(result.path, "global_step") == result.step
    finally:
        stop.set()
        thread.join()
    assert model.listed()[-1] == f"model.ckpt-{result.step}"


@pytest.mark.parametrize("is_snapshot", [True, False], ids=["snapshot", "the saver itself"])
def test_training_waits_for_a_snapshot_only_while_it_is_taken(
    bench: Any, monkeypatch: pytest.MonkeyPatch, is_snapshot: bool
) -> None:
    """What is written afterwards keeps no step waiting, so that a hang meanwhile is judged as any other. A saver of
    which no snapshot can be taken may keep steps waiting to its end."""
    model = bench(options=Options(snapshot_wait_secs=0.0))
    waits: list[str] = []

    @contextmanager
    def training_waits() -> Iterator[None]:
        waits.append("waits")
        yield
        waits.append("goes on")

    verify = bundle.verify
    monkeypatch.setattr(bundle, "verify", lambda *args, **options: waits.append("written") or verify(*args, **options))
    if not is_snapshot:
        monkeypatch.setattr(model.checkpoints, "_snapshot", None)
    result = model.checkpoints.save(model.session, "timer", training_waits=training_waits)
    assert result.error is None and result.path is not None
    assert waits == (["waits", "goes on", "written"] if is_snapshot else ["waits", "written", "goes on"])

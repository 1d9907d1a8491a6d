"""How far a run is, as a restarter sees it in the logdir, and the state that it keeps there."""

from __future__ import annotations

import errno
import json
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from supervisor_core.events.writer import EventsWriter
from supervisor_core.process.identity import boot_id
from supervisor_core.restarter.launch import LaunchFacts, RestarterOptions
from supervisor_core.restarter.logdir_view import (
    SAID_EVERY_SECS,
    STATE_NAME,
    LogdirThread,
    LogdirView,
    encode_state,
)
from supervisor_core.restarter.nodes import CALL_SUFFIX, NodeCall, encode
from supervisor_core.restarter.policy import Failure, RestartState
from supervisor_core.restarter.restarter import Restarter
from supervisor_core.restarter.running import Node
from supervisor_core.training import supervise
from tests.cases import each


@pytest.fixture(scope="session")
def bundles(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """The module that writes checkpoints byte by byte."""
    return module_at("checkpoint/bundle_writer.py")


def scalars(directory: Path, steps: int) -> None:
    """Events of some steps."""
    with EventsWriter(directory) as writer:
        for step in range(steps):
            writer.scalar("loss", 0.5, step=step)


def test_a_checkpoint_counts_if_it_verifies(tmp_path: Path, bundles: ModuleType) -> None:
    """The newest one is damaged, so the one before it is how far the run is; a run below the logdir counts as well."""
    bundles.write_run(tmp_path / "train", [100, 200])
    scalars(tmp_path / "train", 5)
    view = LogdirView(str(tmp_path))
    position = view.read_position()
    assert (position.is_known, position.saved_step, position.reached_step) == (True, 200, 4)
    assert position.directory == f"{tmp_path}/train"
    data = next((tmp_path / "train").glob("model.ckpt-200.data*"))
    data.write_bytes(b"\xff" * data.stat().st_size)
    os.utime(tmp_path / "train" / "model.ckpt-200.index", (1.0, 1.0))  # another file than the one that was verified
    assert view.read_position().saved_step == 100


def test_a_sealed_checkpoint_counts_as_well(tmp_path: Path) -> None:
    """That of `supervise`, of any framework; a damaged one does not."""
    with supervise(tmp_path, save_secs=None, save_steps=2) as run:
        for _ in run.steps(4):
            run.wait_until_saved()
    position = LogdirView(str(tmp_path)).read_position()
    assert (position.is_known, position.saved_step) == (True, 4)
    assert position.session is not None and position.session.outcome == "completed"
    (tmp_path / "checkpoints" / "ckpt-4" / "tree.json").write_text("{}")
    assert LogdirView(str(tmp_path)).read_position().saved_step == 2


def test_a_logdir_that_says_nothing_is_unknown(tmp_path: Path) -> None:
    """Empty, or with another program's files: whether there was progress is unknown, not none."""
    (tmp_path / "weights.pt").write_text("")
    position = LogdirView(str(tmp_path)).read_position()
    assert (position.is_known, position.saved_step, position.reached_step) == (False, None, None)


def test_the_state_is_read_back_and_a_damaged_one_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With the launch under way; what cannot be read begins the counts again, and the log says so."""
    caplog.set_level("WARNING", "supervisor_core")
    view = LogdirView(str(tmp_path))
    assert view.read_state() is None
    failure = Failure(type="hang", where="a.py:1 in f", step=7)
    state = RestartState(attempt=3, best_saved_step=200, failures=(failure,), launched_at=5.0, boot="b")
    view.write_state(state)
    assert LogdirView(str(tmp_path)).read_state() == state
    kept = json.loads((tmp_path / STATE_NAME).read_text())
    times = [json.dumps({**kept, "state": {"counted_at": [at]}}) for at in (10**400, math.nan, math.inf, True)]
    for text in (
        "",
        "[]",
        json.dumps({**kept, "v": 1}),
        json.dumps({**kept, "state": {"attempt": "x"}}),
        "[" * 9999,
        *times,
    ):
        (tmp_path / STATE_NAME).write_text(text)
        assert view.read_state() is None
    assert caplog.text.count("so the counts begin again") == 9


def test_a_logdir_that_hangs_keeps_nothing_waiting() -> None:
    """The call goes on in its thread, later ones come after it."""
    thread, hang = LogdirThread(), threading.Event()
    assert thread.do(lambda: hang.wait(60.0), 0.01) is None
    assert thread.do(lambda: 7, 0.01) is None
    hang.set()
    assert thread.do(lambda: 8, 60.0) == 8


def test_an_error_that_stays_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """A log does not grow with every look at a logdir that cannot be read."""
    now = 0.0
    thread = LogdirThread(clock=SimpleNamespace(monotonic=lambda: now))  # type: ignore[arg-type]

    def fail(error: Exception) -> None:
        def call() -> None:
            raise error

        assert thread.do(call, 60.0) is None

    for number in range(5):
        fail(OSError(errno.EACCES, "Permission denied", f"/runs/{number}"))
        fail(ValueError("of a client"))
    fail(OSError(errno.EIO, "Input/output error"))
    now = SAID_EVERY_SECS
    fail(OSError(errno.EACCES, "Permission denied", "/runs/later"))
    client = "The logdir could not be read or written"
    denied = "/runs/{}: Permission denied".format
    assert caplog.messages == [denied(0), client, "Input/output error", denied("later")]


class Launches:
    """Keeps the launches that have ended."""

    def __init__(self) -> None:
        self.launches: list[LaunchFacts] = []

    def runs(self, *_: object) -> None:
        """Nothing."""

    def ended(self, launch: LaunchFacts) -> None:
        """Keep it."""
        self.launches.append(launch)


@each("is_same, cause, counted", [(True, "lost", 1), (False, "preempted", 0)])
def test_a_launch_that_was_lost_with_its_restarter_counts_on_the_same_machine_only(
    tmp_path: Path, is_same: bool, cause: str, counted: int
) -> None:
    """A container that is killed again and again comes to an end; a machine that goes away is preemption."""
    scalars(tmp_path, 5)
    view = LogdirView(str(tmp_path))
    boot = boot_id() if is_same else "another"
    view.write_state(RestartState(attempt=2, best_reached_step=100, launched_at=time.time(), boot=boot))
    silent = Launches()
    restarter = Restarter(Node(RestarterOptions(logdir=str(tmp_path), command=("x",)), view), journal=silent)
    decision = restarter._begin()
    assert decision is not None and decision.action == "restart"
    assert [item.cause for item in silent.launches] == [cause]
    state = view.read_state()
    assert state is not None and (state.attempt, state.without_progress, state.launched_at) == (2, counted, None)


def test_a_keeper_that_cannot_be_started_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit of processes, or without memory, as right after the kernel killed some: a counted restart."""

    def refuse(*_: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("supervisor_core.restarter.running.Child", refuse)
    silent = Launches()
    options = RestarterOptions(logdir=str(tmp_path), command=("x",))
    restarter = Restarter(Node(options, LogdirView(str(tmp_path))), journal=silent)
    restarter._begin()
    decision = restarter._judge(restarter._launch())
    assert (decision.action, decision.counted) == ("restart", True)


def test_one_restarter_per_logdir(tmp_path: Path) -> None:
    """The first one keeps the second one out for as long as it lives."""
    first = LogdirView(str(tmp_path / "logs"))
    assert first.take() is None
    assert LogdirView(str(tmp_path / "logs")).take() is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
@each("how", ["owner", "link"])
def test_another_user_neither_counts_nor_calls(how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who may write into the logdir: forged counts ended a training before its first launch, and a forged call ended a
    node with the status 0."""
    view, forged = LogdirView(str(tmp_path)), RestartState(attempt=3, counted_at=tuple(map(float, range(50))))
    call = encode(NodeCall(job="j", state="ends", admitted=("a",)))
    for name, data in ((STATE_NAME, encode_state(forged)), (STATE_NAME + CALL_SUFFIX, call)):
        path = tmp_path / name
        path.write_bytes(data)
        if how == "link":
            path.symlink_to(path.rename(tmp_path / f"other{name}"))
        else:
            os.chown(path, 65534, 65534)
    assert view.read_state() is None
    assert "so the counts begin again" in caplog.text
    with pytest.raises(PermissionError, match="it is a link" if how == "link" else "it belongs to user 65534"):
        view.read_beside(CALL_SUFFIX)
    view.write_beside(CALL_SUFFIX, call)
    assert view.read_beside(CALL_SUFFIX) == call

"""`supervise`: resumes exactly and says so, saves in the background, ends as `docs/stopping.md` says."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from supervisor_core import NoUsableCheckpointError, Options, SaveFailedError, supervise
from supervisor_core.base.clock import SystemClock
from supervisor_core.checkpoint.sealed_store import SealedStore
from supervisor_core.engine.deadline import NEVER, Deadline
from supervisor_core.training import state as states
from supervisor_core.training.run import Run
from supervisor_core.training.save_point import SavePolicy
from supervisor_core.training.state import NO_DATA_POSITION, TrainingState
from supervisor_core.training.tree import NumpyArrays
from tests.training.parts import Part, run_of, training


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What an uninterrupted training of 30 steps prints at its end."""
    done = training(tmp_path_factory.mktemp("truth") / "run", 30)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("event", "status", "outcome", "saved"),
    [("kill", -signal.SIGKILL, "lost", 16), ("SIGTERM", -signal.SIGTERM, "signal", 18)],
)
def test_an_ended_training_goes_on_bit_by_bit(
    tmp_path: Path, truth: str, event: str, status: int, outcome: str, saved: int
) -> None:
    """However it ended: the same bits at the end as without the end, and the records say what happened."""
    first = training(tmp_path, 30, event, 17)
    assert first.returncode == status, first.stderr
    run = run_of(tmp_path)
    assert run.checkpoints[-1].step == saved and run.checkpoints[-1].ok
    second = training(tmp_path, 30)
    assert second.stdout.splitlines() == ["exact", "left", truth], second.stderr
    run = run_of(tmp_path)
    one, two = run.sessions
    assert (one.outcome, two.outcome, run.state) == (outcome, "completed", "completed")
    assert (two.resume_exact, two.resume_reasons, two.restored_step) == (True, (), saved)
    assert {thread.name for thread in run.threads} == {"checkpoint"}


WITHOUT_NUMPY = """
import random, sys
import supervisor_core

class Data:
    state = {"n": 0}
    def state_dict(self): return self.state
    def load_state_dict(self, state): self.state = state

assert "numpy" not in sys.modules
with supervisor_core.supervise(sys.argv[1], state={"data": Data()}) as run:
    list(run.steps(int(sys.argv[2])))
print(run.exactness and run.exactness.reasons)
"""


def test_a_program_without_numpy_goes_on_exactly(tmp_path: Path) -> None:
    """The session imports numpy after it has restored: that is no reason against an exact resume."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", WITHOUT_NUMPY, str(tmp_path / "run")]
    printed = [
        subprocess.run(
            [*command, steps], capture_output=True, text=True, check=True, timeout=300, env=environment
        ).stdout
        for steps in ("3", "6")
    ]
    assert printed == ["None\n", "()\n"]


def test_reasons_against_an_exact_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by its name: nothing is called exact that is not."""
    facts = {"number of workers": "2"}

    def state(**parts: Part) -> TrainingState:
        return TrainingState(objects=parts, facts=lambda: facts)

    with supervise(tmp_path, state=state(model=Part(1), ema=Part(2)), save_secs=None) as run:
        assert run.exactness is None
        list(run.steps(3))
    facts["number of workers"] = "4"
    monkeypatch.setattr("supervisor_core.training.run.versions", lambda: {"python": "3.99"})
    with supervise(tmp_path, state=state(model=Part(), scaler=Part()), save_secs=None) as run:
        assert run.global_step == 3 and run.restored == str(tmp_path / "checkpoints" / "ckpt-3")
        assert run.exactness is not None
        reasons = run.exactness.reasons
    python = ".".join(map(str, sys.version_info[:3]))
    assert reasons == (
        NO_DATA_POSITION,
        '"scaler" is not in the checkpoint: it starts fresh.',
        '"ema" is in the checkpoint, and this program has no state of that name.',
        "Another number of workers: 2 at the save, 4 now.",
        f"Another version of python: {python} at the save, 3.99 now.",
    )
    assert run_of(tmp_path).sessions[-1].resume_reasons == reasons


def test_data_that_does_not_go_back_to_its_position(tmp_path: Path) -> None:
    """It is asked after the restore: a position that it ignores is no exact resume."""

    class Forgetful(Part):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

    data = Forgetful(7)
    with supervise(tmp_path, state={states.DATA: data}, save_secs=None) as run:
        list(run.steps(1))
    data.value = 0
    with supervise(tmp_path, state={states.DATA: data}) as run:
        assert run.exactness is not None
        assert run.exactness.reasons == (
            "The position in the data is not the saved one: batches may repeat or be left out.",
        )


def test_a_dict_is_restored_in_place_to_what_it_was(tmp_path: Path) -> None:
    """With its arrays; what a new program has put into it is not there any more."""
    with supervise(tmp_path, state={"best": {"loss": 0.5, "at": np.arange(3)}, "data": {"next": 7}}) as run:
        run.step()
    best: dict[str, Any] = {"loss": 1e9, "new": 1}
    data = {"next": 0}
    with supervise(tmp_path, state={"best": best, "data": data}) as run:
        assert (best["loss"], best["at"].tolist(), data) == (0.5, [0, 1, 2], {"next": 7}) and "new" not in best
        assert run.exactness is not None and run.exactness.is_exact


def test_saves_by_steps_are_of_the_step_in_their_name(tmp_path: Path) -> None:
    """The training changes its arrays while they are written; the snapshot does not change."""
    part = Part(np.zeros(100_000))
    with supervise(tmp_path, state={"part": part}, save_secs=None, save_steps=1, max_to_keep=None) as run:
        for step in run.steps(20):
            part.value += 1
            assert part.value[0] == step + 1
    store = SealedStore(tmp_path / "checkpoints")
    found = store.candidates()
    assert found[0].step == 20
    for candidate in found:
        with supervise(tmp_path, state={"part": part}, save_secs=None) as run:
            saver = run._saver
            assert saver is not None
            sealed, tree = saver.read(False)
            assert sealed is not None
            assert set(tree["objects"]["part"]["value"]) == {float(sealed.manifest.step)}
        for file in Path(candidate.path).iterdir():
            file.unlink()
        Path(candidate.path).rmdir()


def test_nothing_is_saved_while_the_watched_loss_is_not_finite(tmp_path: Path) -> None:
    """Neither by steps, nor on demand, nor at the end."""
    options = Options(watched_loss="loss")
    with supervise(tmp_path, options=options, save_secs=None, save_steps=2) as run:
        for step in run.steps(6):
            run.log("loss", math.nan if step >= 3 else 0.5)
            run.log("other", math.nan)
        with pytest.raises(SaveFailedError, match="not finite"):
            run.save()
    run_model = run_of(tmp_path)
    assert [item.step for item in run_model.checkpoints if item.ok] == [2]
    assert any("not finite" in (item.error or "") for item in run_model.checkpoints)


def test_where_no_checkpoint_can_be_read_nothing_starts(tmp_path: Path) -> None:
    """The session is recorded as failed, and the logdir is free again."""
    with supervise(tmp_path, save_secs=None) as run:
        list(run.steps(2))
    (tmp_path / "checkpoints" / "ckpt-2" / "tree.json").write_text("{}")
    with pytest.raises(NoUsableCheckpointError, match=r"tree\.json"), supervise(tmp_path):
        pass
    with supervise(tmp_path, options=Options(unusable_checkpoints="start_over"), save_secs=None) as run:
        assert run.global_step == 0
        list(run.steps(2))
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["ckpt-2", "ckpt-2.damaged"]
    assert [session.outcome for session in run_of(tmp_path).sessions] == ["completed", "error", "completed"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"save_secs": 0}, "save_secs is 0"),
        ({"save_secs": True}, "save_secs is True"),
        ({"save_steps": 1.5}, r"save_steps is 1\.5"),
        ({"state": {"model": object()}}, r"state\['model'\] is a builtins.object"),
    ],
)
def test_wrong_arguments_are_refused_at_once(tmp_path: Path, options: dict[str, Any], error: str) -> None:
    """With what came and what was expected."""
    with pytest.raises((ValueError, TypeError), match=error):
        supervise(tmp_path, **options)
    with pytest.raises(ValueError, match="is not local"):
        supervise("gs://bucket/run")


def test_a_number_of_steps_that_is_none(tmp_path: Path) -> None:
    """Is refused where it is given."""
    for number, until in enumerate(["3", -1, True, None, float("nan")]):
        (place := tmp_path / str(number)).mkdir()
        run = supervise(place)
        with pytest.raises(ValueError, match=rf"steps\(\) was given {until!r}; expected the number of steps"):
            run.steps(until)


def test_the_copy_of_a_state_is_let_go_when_it_is_saved(tmp_path: Path) -> None:
    """A small array, or one on a device, would otherwise be in memory until the next save."""
    copies: list[weakref.ref[Any]] = []

    class Copied(NumpyArrays):
        def copy(self, value: Any, into: Any = None) -> Any:
            copied = super().copy(value, into)
            copies.append(weakref.ref(copied))
            return copied

    state = TrainingState(objects={"part": Part(np.ones(3))}, kinds=(Copied(),))
    with supervise(tmp_path, state=state, save_secs=None) as run:
        run.step()
        assert run.save() is not None
        pause, part = threading.Event(), copies[0]
        for _ in range(3000):
            if part() is None:
                break
            pause.wait(0.01)
        assert part() is None


def test_a_save_in_the_middle_of_a_step_waits_for_its_end(tmp_path: Path) -> None:
    """In the body of `steps` the state may be of half a step; outside of it the path is returned."""
    part = Part()
    with supervise(tmp_path, state={"part": part}, save_secs=None) as run:
        for step in run.steps(3):
            if step == 1:
                assert run.save() is None
            part.value += 1
        path = run.save()
    assert path == str(tmp_path / "checkpoints" / "ckpt-3")
    found = {item.step: item.trigger for item in run_of(tmp_path).checkpoints}
    assert found == {2: "manual", 3: "manual"}
    for step in (2, 3):
        tree = json.loads((tmp_path / "checkpoints" / f"ckpt-{step}" / "tree.json").read_text())
        assert tree["dict"][0][1]["dict"][0][1]["dict"] == [["value", step]]


def test_a_loop_that_is_left_in_its_body(tmp_path: Path) -> None:
    """Whether the step was made is not known: the next session says so, and a loop that ends says nothing."""
    part = Part()
    with supervise(tmp_path, state={"data": part}, save_secs=None) as run:
        for step in run.steps(9):
            part.value += 1
            if step == 2:
                break
    with supervise(tmp_path, state={"data": part}, save_secs=None) as run:
        assert run.exactness is not None and run.exactness.reasons == (states.MID_STEP,)
        list(run.steps(9))
    with supervise(tmp_path, state={"data": part}, save_secs=None) as run:
        assert run.exactness is not None and run.exactness.is_exact


def test_a_lost_liveness_file_makes_nothing_older(tmp_path: Path) -> None:
    """A copy without dotfiles: what is saved from then on is newer than what there was."""
    for steps in (10, 20, 30):
        with supervise(tmp_path, save_secs=None) as run:
            list(run.steps(steps))
    shutil.rmtree(tmp_path / ".supervisor.live")
    with supervise(tmp_path, save_secs=None, max_to_keep=2) as run:
        list(run.steps(80))
    with supervise(tmp_path, save_secs=None) as run:
        assert run.global_step == 80
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["ckpt-30", "ckpt-80"]


def test_a_refused_save_is_due_again_as_any_other(tmp_path: Path) -> None:
    """Not at each step: a loss that is not finite for a while does not end the run."""
    options = Options(watched_loss="loss", max_save_failures=3)
    with supervise(tmp_path, options=options, save_secs=None, save_steps=10) as run:
        for step in run.steps(40):
            run.log("loss", math.nan if 8 <= step <= 25 else 0.5)
    assert [(item.step, item.ok) for item in run_of(tmp_path).checkpoints] == [
        (10, False), (20, False), (30, True), (40, True),
    ]  # fmt: skip


def test_an_error_between_an_update_and_its_step(tmp_path: Path) -> None:
    """Where in the step it came is not known: what is saved then is not called exact."""
    part = Part()
    options = Options(save_on_error=True)
    with pytest.raises(ArithmeticError), supervise(tmp_path, state={"data": part}, options=options) as run:
        part.value = 1
        run.step()
        part.value = 2
        raise ArithmeticError
    with supervise(tmp_path, state={"data": part}) as run:
        assert run.exactness is not None and run.exactness.reasons == (states.MID_STEP,)


def test_a_full_disk_stops_nothing_and_is_seen(tmp_path: Path, before_writes: Any) -> None:
    """A save that fails is counted and tried again; the next one that succeeds ends it."""
    failures = [OSError(28, "No space left on device")] * 2

    def fail() -> None:
        if failures:
            raise failures.pop()

    before_writes(fail)
    with supervise(tmp_path, save_secs=None, save_steps=2, options=Options(retry_initial_secs=0.01)) as run:
        for _ in run.steps(8):
            run.wait_until_saved()
    saves = [(item.step, item.ok) for item in run_of(tmp_path).checkpoints]
    assert saves == [(2, False), (4, False), (6, True), (8, True)]


def test_a_save_asked_for_while_another_fails_is_made(tmp_path: Path, before_writes: Any) -> None:
    """The failure plans its own retry, in a minute, and drops nothing."""
    asked, failures = threading.Event(), [OSError(28, "No space left on device")]

    def fail() -> None:
        if failures:
            assert asked.wait(60)
            raise failures.pop()

    before_writes(fail)
    options = Options(retry_initial_secs=60.0, save_on_stop=False)
    with supervise(tmp_path, save_secs=600.0, save_steps=2, options=options) as run:
        for step in run.steps(4):
            if step == 2:  # that of step 2 is under way
                run.ask_for_save("signal")
                asked.set()
                run.wait_until_saved()
    saves = [(item.step, item.trigger, item.ok) for item in run_of(tmp_path).checkpoints]
    assert saves == [(2, "timer", False), (3, "signal", True)]


def test_the_loop_has_its_own_budget_while_a_save_is_written(tmp_path: Path, before_writes: Any) -> None:
    """It waits for the copy of the state only. A save that it asks for it waits for to the end."""
    holds: list[int] = []
    stepped, written = threading.Event(), threading.Event()

    def note() -> None:
        assert stepped.wait(60)
        holds.append(run._recorder_now.progress._holds)
        written.set()

    before_writes(note)
    with supervise(tmp_path, save_secs=None, save_steps=2, options=Options(save_on_stop=False)) as run:
        for _ in run.steps(2):
            pass
        stepped.set()
        assert written.wait(60)
        run.wait_until_saved()
        run.step()
        run.save()
    assert holds == [0, 1]


def test_a_last_save_that_hangs_is_given_up_at_its_deadline(tmp_path: Path, before_writes: Any) -> None:
    """With what hangs, and the newest checkpoint: none of the step before it is called saved."""
    hangs, go_on = threading.Event(), threading.Event()
    with supervise(tmp_path, save_secs=None, save_steps=2, options=Options(save_on_stop=False)) as run:
        for _ in run.steps(2):
            pass
        run.wait_until_saved()
        before_writes(lambda: (hangs.set(), go_on.wait(60)))
        for _ in run.steps(4):
            pass
        assert hangs.wait(60) and run._saver is not None
        run._saver.loop_ended(4)
        with pytest.raises(SaveFailedError) as failure:
            run._saver.save_last("final", lambda: False, lambda: Deadline.after(0.0), NEVER)
        go_on.set()
    assert str(failure.value) == (
        "The final checkpoint could not be saved (the checkpoint of step 4 is still being written). The newest "
        f"checkpoint is {tmp_path}/checkpoints/ckpt-2 (step 2). Steps 3 to 4 are lost."
    )


def test_evaluation_is_a_phase_and_no_step(tmp_path: Path) -> None:
    """It has its own hang timeout, and the next step's time begins after it. The run names both."""
    with supervise(tmp_path, save_secs=None) as run:
        with run.phase("evaluating"):
            assert run.run_status().session.phase == "evaluating"
            assert repr(run) == f"<Run '{tmp_path}': step 0, evaluating>"
        run.step()
        status = run.run_status()
    assert (status.session.phase, status.session.steps, status.global_step) == ("training", 1, 1)
    assert repr(run) == f"<Run '{tmp_path}': step 1, ended>"


def test_the_events_file_is_tensorboards(tmp_path: Path) -> None:
    """START with the restored step, CHECKPOINT with the directory, STOP; scalars at their steps."""
    from tensorboard.compat.proto.event_pb2 import Event  # its reader would import TensorFlow

    with supervise(tmp_path, save_secs=None, save_steps=2) as run:
        for step in run.steps(2):
            run.log("loss", step / 2)
    (file,) = tmp_path.glob("events.out.*")
    data, events = file.read_bytes(), []
    while data:  # length, its checksum, the event, its checksum
        end = 12 + int.from_bytes(data[:8], "little")
        events.append(Event.FromString(data[12:end]))
        data = data[end + 4 :]
    logs = [(event.session_log.status, event.step) for event in events if event.HasField("session_log")]
    assert logs == [(1, 0), (3, 2), (2, 2)]
    tags = {value.tag for event in events for value in event.summary.value}
    assert {"loss", "supervisor/session", "supervisor/checkpoint", "supervisor/stop"} <= tags
    manifest = json.loads((tmp_path / "checkpoints" / "ckpt-2" / "supervisor-manifest.json").read_text())
    assert manifest["captured"] == ["random:python", "random:numpy"]
    assert [path for path, _, _ in manifest["files"]] == ["tree.json"]


def test_a_step_reads_the_clock_once_and_nothing_of_the_state(tmp_path: Path) -> None:
    """Where nothing is due: so it waits for no device, and for no other process."""

    class OnDevice(Part):
        def state_dict(self) -> dict[str, Any]:
            assert not self.value, "the state was read"
            return {}

    class Counting(SystemClock):
        reads = 0

        def monotonic(self) -> float:
            self.reads += threading.current_thread() is threading.main_thread()
            return super().monotonic()

    clock, options = Counting(), Options(save_on_stop=False, write_telemetry=False)  # else some steps are noted
    model = OnDevice()
    state = TrainingState(objects={"model": model})
    with Run(str(tmp_path), state=state, options=options, policy=SavePolicy(), clock=clock) as run:
        before, model.value = clock.reads, 1
        assert len(list(run.steps(500))) == 500
        assert clock.reads - before == 500
        assert run.run_status().global_step == 500
        with pytest.raises(AssertionError, match="the state was read"):
            run.save()

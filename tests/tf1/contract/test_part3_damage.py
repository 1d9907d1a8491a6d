"""Contract part 3: whatever happens to checkpoint files, the right one is restored, and the damaged ones are kept."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import supervisor_core
from supervisor_core.base.errors import (
    DamagedCheckpointError,
    NoUsableCheckpointError,
    SaveFailedError,
    UnreadableCheckpointError,
)
from supervisor_core.base.options import Options
from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.engine.logdir_hold import LogdirHold

v1 = tf.compat.v1

DATA, INDEX = ".data-00000-of-00001", ".index"
Harm = Callable[[Path], object]


def path_of(run: Path, step: int, suffix: str) -> Path:
    """Return the path of a file of a checkpoint."""
    return run / f"model.ckpt-{step}{suffix}"


def copy(run: Path, source: int, target: int, *suffixes: str) -> None:
    """Put files of one checkpoint in the place of another's."""
    for suffix in suffixes:
        shutil.copyfile(path_of(run, source, suffix), path_of(run, target, suffix))


def swap(run: Path, one: int, other: int, *suffixes: str) -> None:
    """Let two checkpoints change files."""
    for suffix in suffixes:
        spare = run / "spare"
        path_of(run, one, suffix).rename(spare)
        path_of(run, other, suffix).rename(path_of(run, one, suffix))
        spare.rename(path_of(run, other, suffix))


def instead(suffix: str, make: Callable[[Path], object]) -> Harm:
    """Return a function that puts something else in the place of a file of the newest checkpoint."""

    def harm(run: Path) -> None:
        path = path_of(run, 7, suffix)
        path.unlink()
        make(path)

    return harm


def change(suffix: str, edit: Callable[[bytes], bytes]) -> Harm:
    """Return a function that changes the content of a file of the newest checkpoint."""

    def harm(run: Path) -> None:
        path = path_of(run, 7, suffix)
        path.write_bytes(edit(path.read_bytes()))

    return harm


def link_to_itself(path: Path) -> None:
    """Make a symbolic link that leads in a circle."""
    path.symlink_to(path.name)


def as_state(make: Callable[[Path], object]) -> Harm:
    """Return a function that puts something else in the place of the state file."""

    def harm(run: Path) -> None:
        (run / "checkpoint").unlink()
        make(run / "checkpoint")

    return harm


def state_names(recorded: str) -> Harm:
    """Return a function that writes a state file which names one path, of which ``{run}`` is the directory."""
    return as_state(lambda path: path.write_text(f'model_checkpoint_path: "{recorded.format(run=path.parent)}"\n'))


def flip(data: bytes, position: int = 5) -> bytes:
    """Change one bit."""
    return data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :]


NEWEST: dict[str, tuple[Harm, int, int]] = {
    # what is done to the newest of steps 3, 5 and 7: the step that is restored, how many are skipped
    "index missing": (lambda run: path_of(run, 7, INDEX).unlink(), 5, 1),
    "index empty": (change(INDEX, lambda data: b""), 5, 1),
    "index longer": (change(INDEX, lambda data: data + b"\0" * 50), 5, 1),
    "index is text": (change(INDEX, lambda data: b"version https://git-lfs.github.com/spec/v1\n" * 3), 5, 1),
    "index of another step": (lambda run: copy(run, 3, 7, INDEX), 5, 1),
    "index is a directory": (instead(INDEX, Path.mkdir), 5, 1),
    "index is a FIFO": (instead(INDEX, os.mkfifo), 5, 1),
    "index is a device": (instead(INDEX, lambda path: path.symlink_to("/dev/zero")), 5, 1),
    "index links to itself": (instead(INDEX, link_to_itself), 5, 1),
    "index links to nothing": (instead(INDEX, lambda path: path.symlink_to("gone")), 5, 1),
    "data missing": (lambda run: path_of(run, 7, DATA).unlink(), 5, 1),
    "data longer": (change(DATA, lambda data: data + b"\0" * 50), 7, 0),
    "data shorter by a byte": (change(DATA, lambda data: data[:-1]), 5, 1),
    "data zeros": (change(DATA, lambda data: bytes(len(data))), 5, 1),
    "data flipped": (change(DATA, flip), 5, 1),
    "data of another step": (lambda run: copy(run, 3, 7, DATA), 5, 1),
    "data of two steps swapped": (lambda run: swap(run, 5, 7, DATA), 3, 2),
    "data is a directory": (instead(DATA, Path.mkdir), 5, 1),
    "data is a FIFO": (instead(DATA, os.mkfifo), 5, 1),
    "data is a device": (instead(DATA, lambda path: path.symlink_to("/dev/zero")), 5, 1),
    "data links to itself": (instead(DATA, link_to_itself), 5, 1),
    "data links to nothing": (instead(DATA, lambda path: path.symlink_to("gone")), 5, 1),
    "an earlier step under this name": (lambda run: copy(run, 3, 7, INDEX, DATA), 5, 1),
    "the step before under this name": (lambda run: copy(run, 5, 7, INDEX, DATA), 5, 1),
    "two steps swapped": (lambda run: swap(run, 5, 7, INDEX, DATA), 7, 1),
    "graph missing": (lambda run: path_of(run, 7, ".meta").unlink(), 7, 0),
    "graph is a FIFO": (instead(".meta", os.mkfifo), 7, 0),
    "state file missing": (lambda run: (run / "checkpoint").unlink(), 7, 0),
    "state file empty": (as_state(Path.touch), 7, 0),
    "state file cut": (as_state(lambda path: path.write_text('model_checkpoint_path: "model')), 7, 0),
    "state file is a FIFO": (as_state(os.mkfifo), 7, 0),
    "state file is a device": (as_state(lambda path: path.symlink_to("/dev/zero")), 7, 0),
    "state file links to itself": (as_state(link_to_itself), 7, 0),
    "state file nested too deep": (as_state(lambda path: path.write_text("a {" * 50_000)), 7, 0),
    "state names itself": (state_names("checkpoint"), 7, 1),
    "state names a file": (state_names("notes.pbtxt"), 7, 1),
    "state names a directory": (state_names("sub"), 7, 1),
    "state names the logdir": (state_names("."), 7, 1),
    "state names a directory elsewhere": (state_names("{run}/../elsewhere"), 7, 1),
    "state names a checkpoint that is nowhere": (state_names("/nowhere/model.ckpt-9"), 7, 1),
}


@pytest.fixture(scope="module")
def saved_runs() -> dict[str, bytes]:
    """The files of the run that all tests begin with, once there are any."""
    return {}


@pytest.fixture
def run(build_model: Callable[..., Any], save_steps: Any, logdir: str, saved_runs: dict[str, bytes]) -> Path:
    """A run with checkpoints of steps 3, 5 and 7, as TensorFlow writes them, and some other files."""
    directory = Path(logdir)
    if not saved_runs:
        with tf.Graph().as_default():
            save_steps(logdir, build_model(), 3, 5, 7)
        state = directory / "checkpoint"
        state.write_text(state.read_text().replace(f"{directory}/", ""))  # which is the directory of one test only
        saved_runs.update({path.name: path.read_bytes() for path in directory.iterdir()})
    directory.mkdir(exist_ok=True)
    for name, content in saved_runs.items():
        (directory / name).write_bytes(content)
    (directory / "notes.pbtxt").write_text("node {}\n")
    (directory / "sub").mkdir()
    (directory.parent / "elsewhere").mkdir()
    return directory


@pytest.fixture
def session_record(read_telemetry: Any, logdir: str) -> Callable[[], Any]:
    """Returns a function that returns the record of the only session."""

    def get() -> Any:
        [session] = [record for record in read_telemetry(logdir) if record.kind == "session"]
        return session

    return get


@pytest.fixture
def train_keeping(ours: Any, build_model: Any, run: Path) -> Callable[..., None]:
    """Returns a function that does one step with this many checkpoints to keep, and saves: at the end, or before."""

    def train_one(max_to_keep: int, *, before_the_end: bool = False) -> None:
        with tf.Graph().as_default():
            model = build_model()
            supervisor = ours.Supervisor(
                logdir=str(run), saver=v1.train.Saver(max_to_keep=max_to_keep), save_model_secs=9999
            )
            with supervisor.managed_session() as sess:
                sess.run(model.train_op)
                if before_the_end:
                    supervisor.save_checkpoint()

    return train_one


@pytest.mark.parametrize("damage", NEWEST)
def test_the_right_checkpoint_is_restored(
    run: Path, train: Any, session_record: Any, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """The newest that is whole is restored and training goes on from it; the record, and the log, name what was skipped
    and why."""
    harm, step, skipped = NEWEST[damage]
    harm(run)
    assert train(steps=2) == (step, step + 2)
    assert tf.train.latest_checkpoint(str(run)) == str(run / f"model.ckpt-{step + 2}")
    session = session_record()
    assert session.restored_step == step
    assert len(session.skipped) == skipped
    assert all(item.reason and item.path in caplog.text and item.reason in caplog.text for item in session.skipped)
    assert bool(session.state_problem) == damage.startswith("state file")
    assert (session.state_problem or "") in caplog.text
    assert (run / "notes.pbtxt").read_text() == "node {}\n"


WHERE = (
    r"model\.ckpt-7\.data-00000-of-00001: tensor '%s' \(bytes \d+ to \d+\) was altered "
    r"\(CRC32C [0-9a-f]{8}, expected [0-9a-f]{8}\)"
)


@pytest.mark.parametrize(("position", "tensor"), [(5, "global_step"), (9, "weight")])
def test_a_flipped_bit_names_tensor_file_and_checksums(
    run: Path, train: Any, session_record: Any, position: int, tensor: str
) -> None:
    """Whoever finds the damage, the index's check or TensorFlow's restore, says which tensor and both checksums."""
    change(DATA, lambda data: flip(data, position))(run)
    train()
    [skipped] = session_record().skipped
    assert re.fullmatch(WHERE % tensor, skipped.reason)


def test_an_explicit_checkpoint_that_is_a_fifo_is_an_error(run: Path, ours: Any, build_model: Any) -> None:
    """A program that names a checkpoint whose data is a FIFO gets an error, and does not wait."""
    instead(DATA, os.mkfifo)(run)
    build_model()
    with pytest.raises(DamagedCheckpointError, match="it is a FIFO, not a regular file"):
        ours.SessionManager().prepare_session(
            "", saver=v1.train.Saver(), checkpoint_filename_with_path=str(run / "model.ckpt-7")
        )


@pytest.fixture
def partial_copy(run: Path) -> dict[str, bytes]:
    """Takes the state file and every index away, as a copy of the largest files alone does; returns what is left."""
    for path in [run / "checkpoint", *run.glob("*.index")]:
        path.unlink()
    return {path.name: path.read_bytes() for path in run.glob("model.ckpt*")}


def left_of(run: Path) -> dict[str, bytes]:
    """Return the checkpoint files of a logdir, and those that were set aside below it, by name."""
    return {path.name: path.read_bytes() for path in run.rglob("model.ckpt*") if path.is_file()}


def test_data_without_indexes_is_an_error_that_lists_it(run: Path, train: Any, partial_copy: dict[str, bytes]) -> None:
    """Nothing starts at step 0 over what a partial copy has left, and nothing of it is deleted."""
    with pytest.raises(NoUsableCheckpointError) as raised:
        train(steps=1)
    for step in (3, 5, 7):
        assert f"{run}/model.ckpt-{step}: model.ckpt-{step}.index: the file is missing" in str(raised.value)
    assert 'Options(unusable_checkpoints="start_over")' in str(raised.value)
    assert left_of(run) == partial_copy


def test_starting_over_on_purpose_loses_no_file(
    run: Path, train: Any, session_record: Any, partial_copy: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """With the option the run starts at step 0, through the same steps, and every file is still there, set aside."""
    arguments = {"options": Options(unusable_checkpoints="start_over")}
    assert train(steps=3, **arguments) == (0, 3)
    session = session_record()
    assert session.restored_step is None
    assert [Path(item.path).name for item in session.skipped] == ["model.ckpt-7", "model.ckpt-5", "model.ckpt-3"]
    assert "Starting at step 0 instead." in caplog.text
    now = left_of(run)
    aside = {path.name: path.read_bytes() for path in run.glob("*.damaged/model.ckpt*")}
    assert aside == partial_copy
    assert now.keys() >= {"model.ckpt-3.index"}
    assert train(steps=1, **arguments) == (3, 4)
    assert {path.name: path.read_bytes() for path in run.glob("*.damaged/model.ckpt*")} == partial_copy


def test_what_cannot_be_read_is_never_started_over(run: Path) -> None:
    """Checkpoints that the file system refuses may be whole: an error, whatever the option says."""
    refused = os.strerror(13)

    def check(path: str) -> Any:
        raise UnreadableCheckpointError(f"{path}: it cannot be read: {refused}")

    with pytest.raises(NoUsableCheckpointError, match=refused):
        CheckpointStore(run).newest_usable(verify=check, start_over=True)


def test_damaged_ones_do_not_count_and_are_set_aside(run: Path, train_keeping: Any) -> None:
    """With two to keep and the newest damaged, the two newest whole ones are kept, the damaged one with its reason."""
    change(DATA, flip)(run)
    train_keeping(2)
    assert sorted(path.name for path in run.glob("*.index")) == ["model.ckpt-5.index", "model.ckpt-6.index"]
    [aside] = CheckpointStore(run).all_set_aside()
    assert (aside.name, aside.step, os.path.basename(aside.path)) == ("model.ckpt-7", 7, "model.ckpt-7.damaged")
    assert "was altered" in aside.reason
    assert {path.name for path in Path(aside.path).iterdir()} == {
        "why-set-aside.txt",
        *(f"model.ckpt-7{suffix}" for suffix in (DATA, INDEX, ".meta")),
    }
    assert tf.train.latest_checkpoint(aside.path) is None


def test_a_state_file_that_is_a_directory(run: Path, train: Any, session_record: Any) -> None:
    """The newest checkpoint is restored all the same; that nothing can be recorded there is an error that says so."""
    as_state(Path.mkdir)(run)
    with pytest.raises(SaveFailedError, match="Is a directory"):
        train(steps=1)
    assert session_record().restored_step == 7


def test_a_flipped_bit_in_an_explicit_checkpoint(run: Path, ours: Any, build_model: Any) -> None:
    """A program that names the checkpoint gets TensorFlow's type of error, and the same reason in it."""
    change(DATA, lambda data: flip(data, 9))(run)
    build_model()
    with pytest.raises(tf.errors.DataLossError, match=WHERE % "weight"):
        ours.SessionManager().prepare_session(
            "", saver=v1.train.Saver(), checkpoint_filename_with_path=str(run / "model.ckpt-7")
        )


def test_older_ones_are_read_back_before_one_is_deleted(run: Path, train_keeping: Any) -> None:
    """A bit that flipped in an older checkpoint is found before a good one is deleted for it."""
    data = path_of(run, 5, DATA)
    data.write_bytes(flip(data.read_bytes()))
    train_keeping(3, before_the_end=True)
    assert sorted(path.name for path in run.glob("*.index")) == [f"model.ckpt-{step}.index" for step in (3, 7, 8)]
    [aside] = CheckpointStore(run).all_set_aside()
    assert aside.name == "model.ckpt-5"


def test_another_chief_in_the_logdir_renames_nothing(run: Path, train: Any) -> None:
    """A session that does not hold the logdir alone passes damaged ones over, and leaves them where they are."""
    change(DATA, flip)(run)
    hold = LogdirHold(run)
    hold.acquire("another")
    try:
        assert train(steps=1, options=Options(exclusive_logdir=False)) == (5, 6)
    finally:
        hold.release()
    assert path_of(run, 7, INDEX).exists()
    assert CheckpointStore(run).all_set_aside() == []


def test_a_session_that_saves_nothing_renames_nothing(run: Path, train: Any, ours: Any, build_model: Any) -> None:
    """Restoring alone moves nothing: an evaluation beside the training must not."""
    change(DATA, flip)(run)
    build_model()
    before = left_of(run)
    with ours.SessionManager().prepare_session("", saver=v1.train.Saver(), checkpoint_dir=str(run)) as sess:
        assert sess.run("global_step:0") == 5
    assert train(save_model_secs=0) == (5, 5)
    assert left_of(run) == before
    assert CheckpointStore(run).all_set_aside() == []


def test_what_lies_outside_the_logdir_is_not_renamed(run: Path, train: Any) -> None:
    """A damaged checkpoint elsewhere that the state file names is passed over, and stays as it is."""
    elsewhere = run.parent / "elsewhere"
    for suffix in (DATA, INDEX):
        shutil.copyfile(path_of(run, 7, suffix), elsewhere / f"best-9{suffix}")
    (elsewhere / f"best-9{DATA}").write_bytes(b"")
    before = sorted(path.name for path in elsewhere.iterdir())
    state_names(str(elsewhere / "best-9"))(run)
    assert train(steps=1) == (7, 8)
    assert sorted(path.name for path in elsewhere.iterdir()) == before


def test_a_monitored_session_sets_them_aside_too(run: Path, build_model: Any, session_record: Any) -> None:
    """The other facade passes the same ones over, says the same of them, and moves them likewise."""
    change(DATA, lambda data: flip(data, 9))(run)
    model = build_model()
    with supervisor_core.MonitoredTrainingSession(checkpoint_dir=str(run), save_checkpoint_steps=1) as sess:
        sess.run(model.train_op)
    [skipped] = session_record().skipped
    assert re.fullmatch(WHERE % "weight", skipped.reason)
    [aside] = CheckpointStore(run).all_set_aside()
    assert (aside.name, aside.reason) == ("model.ckpt-7", skipped.reason)

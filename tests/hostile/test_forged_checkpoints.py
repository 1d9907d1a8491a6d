"""A checkpoint that another user has forged harms no training, and stops none: the newest good one is resumed from."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from supervisor_core.base.errors import CheckpointError, SaveFailedError
from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint import manifest as manifests
from supervisor_core.checkpoint.guard import Publisher
from supervisor_core.checkpoint.manifest import Manifest
from supervisor_core.checkpoint.recovery import Skipped, set_damaged_aside
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.checkpoint.sealed_store import MAX_OF_OTHERS, SealedStore, StagedFiles
from supervisor_core.checkpoint.set_aside import MAX_SET_ASIDE, NOTE
from supervisor_core.checkpoint.state_file import read_state
from supervisor_core.storage.local import LOCAL
from supervisor_core.storage.opening import is_wrong_kind
from supervisor_core.training.objects import Access
from supervisor_core.training.state import TrainingState
from supervisor_core.training.tree import write_tree
from tests.cases import each

pytestmark = pytest.mark.timeout(600)  # three processes, each with its framework


def test_a_training_resumes_from_its_own_checkpoint(tmp_path: Path, forging: ModuleType, trials: ModuleType) -> None:
    """Whatever is there besides, newer by its manifest: no code runs, nothing hangs, nothing of other files is
    recorded, and `verify` says before what the training does."""
    with trials.trial(tmp_path, forging, "supervise") as trial:
        expected = trials.forge(trial, forging.state_trees("numpy.safetensors"))
        trial.resumes(expected)


GRAPH = ("Supervisor", "MonitoredTrainingSession")


@pytest.mark.parametrize("adapter", GRAPH)
def test_a_training_of_graph_mode_resumes_from_its_own_checkpoint(
    tmp_path: Path, forging: ModuleType, trials: ModuleType, module_at: Callable[[str], ModuleType], adapter: str
) -> None:
    """Links in place of an index or of data, and a state file that names other files, lead to nothing that is recorded:
    neither sizes nor checksums nor numbers of them."""
    pytest.importorskip("tensorflow")
    bundles = module_at("checkpoint/bundle_writer.py")
    with trials.trial(tmp_path, forging, adapter) as trial:
        logdir, secret = trial.logdir, trial.forger.secret
        good = logdir / "model.ckpt-4"
        data = ".data-00000-of-00001"

        def forge() -> None:
            names = []
            for kind in ("data", "index", "number", "fifo"):
                prefix = logdir / f"model.ckpt-{900_000 + len(names)}"
                names.append(prefix.name)
                for ending in (".index", data):
                    shutil.copyfile(f"{good}{ending}", f"{prefix}{ending}")
                if kind == "number":
                    bundles.write_bundle(prefix, {"global_step": bundles.step(5), "weights": bundles.floats(4)})
                ending = ".index" if kind == "index" else data
                os.unlink(f"{prefix}{ending}")
                if kind == "fifo":
                    os.mkfifo(f"{prefix}{ending}")
                else:
                    os.symlink(secret, f"{prefix}{ending}")
            names.append(str(secret))
            lines = [
                f'model_checkpoint_path: "{names[0]}"',
                *(f'all_model_checkpoint_paths: "{name}"' for name in names),
            ]
            (logdir / "new").write_text("\n".join(lines) + "\n")
            os.replace(logdir / "new", logdir / "checkpoint")

        forging.as_nobody(forge)
        said = trial.verify()
        assert said["resume"] == str(good)
        done = trial.train(8)
        output = done.stdout + done.stderr
        assert done.returncode == 0 and "resumed model.ckpt-4 4" in done.stdout, output
        trial.forger.check(forging.outputs(logdir, output))
        for text in (
            "model.ckpt-900000",
            "model.ckpt-900001",
            "model.ckpt-900002",
            "is a FIFO",
        ):
            assert text in output, output
        assert len(list(logdir.glob("model.ckpt-*.damaged/why-set-aside.txt"))) >= 4


def test_the_size_of_a_file_behind_a_link_is_not_recorded(
    tmp_path: Path, forging: ModuleType, module_at: Callable[[str], ModuleType]
) -> None:
    """An index of a tensor without numbers verifies with any data file: what a restore reads of that is nothing."""
    bundles = module_at("checkpoint/bundle_writer.py")
    bundles.write_bundle(tmp_path / "model.ckpt-1", {"empty": bundles.floats(0)})
    before = bundle.verify(tmp_path / "model.ckpt-1")
    (tmp_path / "secret").write_bytes(forging.SECRET)
    (tmp_path / "model.ckpt-1.data-00000-of-00001").unlink()
    (tmp_path / "model.ckpt-1.data-00000-of-00001").symlink_to(tmp_path / "secret")
    assert bundle.verify(tmp_path / "model.ckpt-1") == before


STATE_FILE = b"model_checkpoint_path: horse 77"


@each("content", [STATE_FILE, b"horse\xff", b"horse", b'a: "horse'])
def test_what_a_state_file_says_is_not_quoted(tmp_path: Path, content: bytes) -> None:
    """It may be a link to any file: a problem with it is told by its place."""
    (tmp_path / "secret").write_bytes(content)
    (tmp_path / "checkpoint").symlink_to(tmp_path / "secret")
    reading = read_state(tmp_path / "checkpoint")
    assert reading.verdict == "damaged" and reading.problem is not None
    assert "horse" not in reading.problem and "77" not in reading.problem and "ff" not in reading.problem


OTHERS = (
    "alice-notes.damaged-0",
    "ckpt-5.damaged.old",
    "x.damaged",
    "ckpt-6.damaged",
    "ckpt-7.damaged",
    "ckpt-8.damaged",
)


def one_file(directory: str) -> StagedFiles:
    """Write an empty file."""
    Path(directory, "a").touch()
    return StagedFiles()


def test_only_our_own_are_deleted(tmp_path: Path) -> None:
    """Of what looks like a checkpoint that was set aside, or like a save or a deletion that was killed, only that is
    deleted which has our own name, and our own note."""
    elsewhere = tmp_path / "elsewhere"
    directory = tmp_path / "checkpoints"
    for path in (elsewhere, *(directory / name for name in OTHERS)):
        path.mkdir(parents=True)
        (path / "work").write_text("of a year")
    (directory / "ckpt-7.damaged" / NOTE).write_text("a note of mine\n")
    for name in OTHERS[:3]:  # of another name, with a note like ours
        (directory / name / NOTE).write_text("2026-01-01T00:00:00+00:00\nreason\n")
    (directory / "ckpt-8.damaged" / NOTE).symlink_to(directory / "ckpt-7.damaged" / NOTE)
    for name in ("ckpt-9.saving-notes", "ckpt-9.deleting-later", "ckpt-9.saving-a-b-0123456789abcdef0123456789abcdef"):
        (directory / name).mkdir()
    (elsewhere / NOTE).write_text("2026-01-01T00:00:00+00:00\nreason\n")
    (directory / "ckpt-10.damaged").symlink_to(elsewhere)
    (directory / f"ckpt-11.deleting-{'0' * 32}").symlink_to(elsewhere)
    before = sorted(os.listdir(directory))
    store = SealedStore(directory, publisher=Publisher(session="s1", attempt=1))
    for number in range(2 * MAX_SET_ASIDE):
        path = store.save(Manifest(format="test", step=100 + number), one_file).path
        Path(path, "a").unlink()
        set_damaged_aside(store, [Skipped(path, "it was altered")])
    there = sorted(name for name in os.listdir(directory) if not name.startswith("ckpt-1") or name in before)
    assert there == before
    assert len([name for name in os.listdir(directory) if name not in before]) == MAX_SET_ASIDE
    assert (elsewhere / "work").exists()


def test_nothing_is_written_through_a_linked_checkpoint(tmp_path: Path) -> None:
    """A link in place of a damaged checkpoint stays where it is: the note would be written where it leads."""
    (tmp_path / "elsewhere").mkdir()
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    (directory / "ckpt-5").symlink_to(tmp_path / "elsewhere")
    store = SealedStore(directory)
    recovery = store.newest_usable(start_over=True)
    set_damaged_aside(store, recovery.skipped)
    assert os.listdir(tmp_path / "elsewhere") == []
    assert os.listdir(directory) == ["ckpt-5"]


def test_a_link_is_not_sealed(tmp_path: Path, forging: ModuleType) -> None:
    """Nor are the size and the checksum of what it leads to."""
    (tmp_path / "secret").write_bytes(forging.SECRET)
    checkpoint = tmp_path / "ckpt-1"
    (checkpoint / "inner").mkdir(parents=True)
    (checkpoint / "weights").write_bytes(b"w")
    (checkpoint / "notes").symlink_to(tmp_path / "secret")
    (checkpoint / "folder").symlink_to(tmp_path)
    sealed = manifests.seal(str(checkpoint), Manifest(format="test", step=1), LOCAL)
    assert [file.path for file in sealed.files] == ["weights"]
    assert SealedFiles(str(checkpoint), manifests.read_manifest(str(checkpoint))).verify().step == 1


def test_what_is_saved_can_be_read_again(tmp_path: Path) -> None:
    """What would be beyond a bound of the reader is an error of the save, not of the resume."""
    lists = [0] * 3_000_000
    state = TrainingState(objects={"a": Access(lambda: {"order": lists}, bool)})
    captured = state.capture(1)
    with pytest.raises(CheckpointError, match=r"3,00[01],\d{3} values besides .*as arrays from state_dict"):
        write_tree(str(tmp_path), captured.tree, state.kinds)
    many = Manifest(format="test", step=1, facts={"a": "x" * 5000})
    (tmp_path / "ckpt-1").mkdir()
    with pytest.raises(SaveFailedError, match="length <= 4096"):
        manifests.seal(str(tmp_path / "ckpt-1"), many, LOCAL)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's files")
def test_many_directories_with_one_manifest(tmp_path: Path, forging: ModuleType) -> None:
    """One of megabytes, in as many directories as somebody likes: of each a little is kept, of each other user the
    newest are looked at, and this user's own are, whatever their steps."""
    store = SealedStore(tmp_path, publisher=Publisher(session="s1", attempt=1))
    own = store.save(Manifest(format="state-tree", step=5), one_file).path
    names = tuple("p" * 1000 + str(number) for number in range(300))
    files = tuple(manifests.SealedFile(f"{number:x}", 0, 0) for number in range(2000))
    many = Manifest(format="state-tree", step=6, attempt=10**9, files=files, preserved=names)
    (tmp_path / "one").write_bytes(manifests.encode(many))
    for number in range(MAX_OF_OTHERS + 5):
        path = tmp_path / f"ckpt-{100 + number}"
        path.mkdir()
        if number > MAX_OF_OTHERS:
            os.link(tmp_path / "one", path / manifests.NAME)
        os.chown(path, forging.NOBODY, forging.NOBODY)
    found = store._found()
    assert len(found) == MAX_OF_OTHERS + 1
    assert own in {item.path for item, _ in found} and str(tmp_path / "ckpt-104") not in {
        item.path for item, _ in found
    }
    kept = [manifest for _, manifest in found if manifest is not None]
    assert sum(len(manifest.files) for manifest in kept) == 0
    assert [len(manifest.preserved) for _, manifest in reversed(store._whole())] == [300, 0, 0, 0, 0]
    assert os.path.basename(own) == "ckpt-5" and store.newest_usable().chosen is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's files")
@each("count", [1, 10])
def test_the_holes_of_another_user_are_not_read(tmp_path: Path, forging: ModuleType, count: int) -> None:
    """Where no manifest says what is there: neither one hole of terabytes nor many of megabytes. One's own are."""
    for number in range(count):
        path = tmp_path / f"x{number}"
        with open(path, "wb") as file:
            file.write(b"a")
            file.truncate((8 << 40) // 100_000 ** (count > 1))
    if count > 1:
        assert len(manifests.list_files(str(tmp_path))) == count
    for path in tmp_path.iterdir():
        os.chown(path, forging.NOBODY, forging.NOBODY)
    with pytest.raises(OSError, match=r"another user's.* are on disk") as caught:
        manifests.list_files(str(tmp_path))
    assert is_wrong_kind(caught.value)
    (tmp_path / "y").write_bytes(b"y")
    assert [file.path for file in manifests.list_files(str(tmp_path), "y")] == ["y"]

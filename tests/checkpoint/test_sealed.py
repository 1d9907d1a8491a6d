"""Sealed checkpoints: a directory counts once its manifest is written, and is checked against it from then on."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor_core.base.errors import (
    DamagedCheckpointError,
    LogdirInUseError,
    NoUsableCheckpointError,
    UnreadableCheckpointError,
)
from supervisor_core.checkpoint import manifest as manifests
from supervisor_core.checkpoint import sealed_files
from supervisor_core.checkpoint.guard import Publisher
from supervisor_core.checkpoint.manifest import Manifest
from supervisor_core.checkpoint.recovery import set_damaged_aside
from supervisor_core.checkpoint.retention import Doubt
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.checkpoint.sealed_store import Sealed, SealedStore, StagedFiles
from supervisor_core.checkpoint.search import prefix_of
from supervisor_core.checkpoint.set_aside import MAX_SET_ASIDE
from supervisor_core.storage.local import LOCAL


def write(directory: str) -> StagedFiles:
    """Write two files, one in a directory of its own."""
    Path(directory, "weights").write_bytes(b"w" * 5000)
    Path(directory, "shards").mkdir()
    Path(directory, "shards", "0").write_bytes(b"s" * 10)
    return StagedFiles()


def saved(store: SealedStore, *steps: int, saved_at: float = 100.0, **options: object) -> list[str]:
    """Save checkpoints of these steps; return their paths."""
    made = []
    for step in steps:
        manifest = Manifest(format="test", step=step, saved_at=saved_at + step)
        made.append(store.save(manifest, write, **options).path)  # type: ignore[arg-type]
    return made


def publisher(attempt: int = 1, check: Callable[[], None] = lambda: None) -> Publisher:
    """The session of that number."""
    return Publisher(session=f"s{attempt}", attempt=attempt, check=check)


def cut(path: Path) -> None:
    """Cut the end off."""
    path.write_bytes(path.read_bytes()[:-2])


def flip(path: Path) -> None:
    """Flip a bit in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def remove(path: Path) -> None:
    """Remove it."""
    path.unlink()


def test_what_is_saved_is_found_again(tmp_path: Path) -> None:
    """The manifest says what the checkpoint is; its seal covers what a later version may add."""
    store = SealedStore(tmp_path / "c", publisher=publisher(3))
    (path,) = saved(store, 7)
    found = Sealed.chosen(store.newest_usable())
    assert found is not None and found.path == path == str(tmp_path / "c" / "ckpt-7")
    manifest = found.manifest
    assert (manifest.step, manifest.session, manifest.attempt, manifest.number) == (7, "s3", 3, 1)
    assert [(file.path, file.bytes) for file in manifest.files] == [("shards/0", 10), ("weights", 5000)]
    raw = json.loads(Path(path, manifests.NAME).read_text())
    assert manifests.decode(manifests.encode(manifest)) == manifest
    raw["step"] = 8
    with pytest.raises(ValueError, match="seal"):
        manifests.decode(json.dumps(raw).encode())


def test_a_directory_that_other_processes_have_begun(tmp_path: Path) -> None:
    """Is completed and sealed with their files; it is deleted where it is given up, or the save fails."""
    store = SealedStore(tmp_path / "c", publisher=publisher())
    staging = store.stage(7)
    Path(staging, "theirs").write_bytes(b"t" * 20)
    made = store.save(Manifest(format="test", step=7), write, staging=staging)
    assert [file.path for file in made.manifest.files] == ["shards/0", "theirs", "weights"]
    store.discard(store.stage(8))

    def fail(directory: str) -> StagedFiles:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        store.save(Manifest(format="test", step=9), fail, staging=store.stage(9))
    assert os.listdir(tmp_path / "c") == ["ckpt-7"]


@pytest.mark.parametrize("damage", [cut, flip, remove])
@pytest.mark.parametrize("file", ["weights", "shards/0", manifests.NAME])
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, damage: Callable[[Path], None], file: str) -> None:
    """Whatever happens to whichever file: the one before is chosen, and the reason names the file."""
    store = SealedStore(tmp_path)
    first, second = saved(store, 1, 2)
    damage(Path(second, file))
    recovery = store.newest_usable()
    assert recovery.chosen is not None and recovery.chosen.path == first
    (skipped,) = recovery.skipped
    assert skipped.path == second and skipped.is_damaged and os.path.basename(file) in skipped.reason


def test_where_all_are_damaged_nothing_starts_over(tmp_path: Path) -> None:
    """A missing manifest is damage, not an interrupted save: that one has another name."""
    store = SealedStore(tmp_path)
    for path in saved(store, 1, 2):
        Path(path, manifests.NAME).unlink()
    with pytest.raises(NoUsableCheckpointError, match=manifests.NAME):
        store.newest_usable()
    assert store.newest_usable(start_over=True).chosen is None


def test_sizes_alone_can_be_checked(tmp_path: Path) -> None:
    """Without reading the data a changed byte is not seen, a missing one is."""
    store = SealedStore(tmp_path)
    (path,) = saved(store, 1)
    flip(Path(path, "weights"))
    assert SealedFiles(path, manifests.read_manifest(path)).verify(read_data=False).bytes == 5010
    with pytest.raises(DamagedCheckpointError, match="checksum"):
        SealedFiles(path, manifests.read_manifest(path)).verify()
    cut(Path(path, "weights"))
    with pytest.raises(DamagedCheckpointError, match="4,998 bytes, expected 5,000"):
        SealedFiles(path, manifests.read_manifest(path)).verify(read_data=False)


def test_a_file_that_cannot_be_read_may_be_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file system refuses one, as after an I/O error, the checkpoint is passed over and not set aside."""
    store = SealedStore(tmp_path)
    first, second = saved(store, 1, 2)
    opened = sealed_files.open_below

    def refuse(directory: str, name: str) -> int:
        if (directory, name) == (second, "weights"):
            raise OSError(5, "Input/output error")
        return opened(directory, name)

    monkeypatch.setattr(sealed_files, "open_below", refuse)
    recovery = store.newest_usable()
    assert recovery.chosen is not None and recovery.chosen.path == first
    assert not recovery.skipped[0].is_damaged
    with pytest.raises(UnreadableCheckpointError, match="Input/output"):
        SealedFiles(second, manifests.read_manifest(second)).verify()
    set_damaged_aside(store, recovery.skipped)
    assert Path(second).exists()


def test_a_save_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """What was written is removed; the checkpoints before are as they were."""
    store = SealedStore(tmp_path)
    saved(store, 1)

    def fail(directory: str) -> StagedFiles:
        write(directory)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        store.save(Manifest(format="test", step=2), fail)
    assert os.listdir(tmp_path) == ["ckpt-1"]


def test_a_killed_save_and_deletion_are_swept_by_the_next_session(tmp_path: Path) -> None:
    """Both have names that are no checkpoint's. Without the logdir's lock nothing is swept: it may be under way."""
    (path,) = saved(SealedStore(tmp_path), 1)
    for name in ("ckpt-2.saving-s1-", "ckpt-0.deleting-", "ckpt-0.2.deleting-"):
        os.makedirs(tmp_path / f"{name}{'0123456789abcdef' * 2}")
    assert [item.path for item in SealedStore(tmp_path).candidates()] == [path]
    saved(SealedStore(tmp_path), 2)
    assert len(os.listdir(tmp_path)) == 5
    saved(SealedStore(tmp_path, publisher=publisher()), 3)
    assert sorted(os.listdir(tmp_path)) == ["ckpt-1", "ckpt-2", "ckpt-3"]


def test_a_later_session_is_newer_whatever_its_step(tmp_path: Path) -> None:
    """A chief that was taken over may save once more, at a higher step: nothing resumes from that."""
    saved(SealedStore(tmp_path, publisher=publisher(1)), 10)
    (again,) = saved(SealedStore(tmp_path, publisher=publisher(2)), 10)
    saved(SealedStore(tmp_path, publisher=publisher(1)), 500)
    recovery = SealedStore(tmp_path).newest_usable()
    assert recovery.chosen is not None
    assert recovery.chosen.path == again == str(tmp_path / "ckpt-10.2")


def test_a_chief_that_was_taken_over_publishes_nothing(tmp_path: Path) -> None:
    """The lock is checked before the manifest takes effect, and before the checkpoint gets its name."""
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += 1
        if checks > 3:
            raise LogdirInUseError("another chief")

    store = SealedStore(tmp_path, publisher=publisher(1, check))
    with pytest.raises(LogdirInUseError):
        saved(store, 1)
    assert SealedStore(tmp_path).candidates() == []


def test_retention_keeps_the_newest_and_one_of_each_period(tmp_path: Path) -> None:
    """The rules are those of the graph-mode checkpoints; the periods go on in the next session."""
    hour = 3600
    for attempt, steps in ((1, (0, 1, 2)), (2, (3, 4, 5))):
        store = SealedStore(tmp_path, publisher=publisher(attempt))
        for step in steps:
            manifest = Manifest(format="test", step=step, saved_at=step * 0.7 * hour + 1)
            store.save(manifest, write, max_to_keep=2, keep_every_n_hours=1)
    assert sorted(os.listdir(tmp_path)) == ["ckpt-2", "ckpt-3", "ckpt-4", "ckpt-5"]


def test_the_last_good_checkpoint_is_kept(tmp_path: Path) -> None:
    """Also by a later session, that has lost nothing of what the earlier one knew; and a manifest says why another is
    in doubt."""
    doubt = Doubt("There is NaN.", ("loss",))

    def write_nan(directory: str) -> StagedFiles:
        write(directory)
        return StagedFiles(doubt)

    for attempt in (1, 2, 3):
        store = SealedStore(tmp_path, publisher=publisher(attempt))
        if attempt == 1:
            saved(store, 1, 2, max_to_keep=2)
        for step in (10 * attempt, 10 * attempt + 1, 10 * attempt + 2):
            made = store.save(Manifest(format="test", step=step, saved_at=100.0 + step), write_nan, max_to_keep=2)
        assert manifests.read_manifest(made.path).doubt == made.manifest.doubt == doubt
        last = 10 * attempt + 2
        assert sorted(os.listdir(tmp_path)) == sorted(["ckpt-2", f"ckpt-{last - 1}", f"ckpt-{last}"])
    saved(store, 40, 41, max_to_keep=2)
    assert sorted(os.listdir(tmp_path)) == ["ckpt-40", "ckpt-41"]


def test_damaged_checkpoints_are_set_aside_and_bounded(tmp_path: Path) -> None:
    """They keep their files and get the reason; the name is free again. The oldest are deleted."""
    for _ in range(MAX_SET_ASIDE + 2):
        store = SealedStore(tmp_path)
        first, second = saved(store, 1, 2)
        cut(Path(second, "weights"))
        set_damaged_aside(store, store.newest_usable().skipped)
        assert not Path(second).exists()
        assert store.candidates()[0].path == first
        for path in store.candidates():
            LOCAL.remove_tree(path.path)
    aside = [name for name in os.listdir(tmp_path) if "damaged" in name]
    assert len(aside) == MAX_SET_ASIDE
    assert "4,998 bytes" in Path(tmp_path, aside[0], "why-set-aside.txt").read_text()


def test_a_manifest_of_somebody_else_names_no_file_outside() -> None:
    """Anybody who can write to the logdir can write a manifest with a valid seal."""
    content = json.loads(manifests.encode(Manifest(format="test", step=1)))
    for path in ("../secret", "/etc/passwd", "a/../../b", "", "a\0b", "\ud800"):
        del content["seal"]
        content["files"] = [[path, 1, 1]]
        text = json.dumps(content, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
        content["seal"] = manifests.checksum.value(text.encode())
        with pytest.raises(ValueError, match="no path in the checkpoint"):
            manifests.decode(json.dumps(content).encode())
    for data in (b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"v": 1}'):
        with pytest.raises(ValueError):
            manifests.decode(data)


def test_a_leftover_with_a_manifest_is_no_checkpoint(tmp_path: Path) -> None:
    """A killed deletion leaves one whose name may end in a digit: the names of checkpoints are those of the others."""
    (path,) = saved(SealedStore(tmp_path), 1100)
    os.rename(saved(SealedStore(tmp_path), 1000)[0], tmp_path / "ckpt-1000.deleting-abc7")
    assert prefix_of(str(tmp_path)) == "ckpt-"
    assert [item.path for item in SealedStore(tmp_path, prefix_of(str(tmp_path))).candidates()] == [path]


def test_an_object_store_is_refused() -> None:
    """Directories cannot be renamed there: the error says what to do."""
    with pytest.raises(ValueError, match="is not local"):
        SealedStore("gs://bucket/run")


def nested(path: Path, levels: int) -> None:
    """Make directories, each in the one before."""
    place = str(path)
    for _ in range(levels):
        place += "/a"
        os.mkdir(place)


def test_a_leftover_deeper_than_the_stack_ends_no_save(tmp_path: Path) -> None:
    """The sweep before the first save deletes it."""
    leftover = tmp_path / ("ckpt-7.saving-x-" + "0" * 32)
    leftover.mkdir()
    nested(leftover, 1100)
    store = SealedStore(tmp_path, publisher=publisher())
    saved(store, 8)
    assert os.listdir(tmp_path) == ["ckpt-8"]


def test_directories_nested_too_deep_are_not_sealed(tmp_path: Path) -> None:
    """That is an error of the save, whose leftovers are deleted; and damage for a reader."""
    store = SealedStore(tmp_path)
    with pytest.raises(OSError, match="nested deeper than 64") as caught:
        store.save(Manifest(format="test", step=1), lambda path: nested(Path(path), 66) or StagedFiles())
    assert os.listdir(tmp_path) == []
    damage = manifests.refusal(str(tmp_path), caught.value)
    assert not isinstance(damage, UnreadableCheckpointError) and "nested deeper" in str(damage)
    store.save(Manifest(format="test", step=1), lambda path: nested(Path(path), 64) or StagedFiles())


def test_many_files_in_a_deep_folder_cost_as_much_as_in_any(tmp_path: Path) -> None:
    """A manifest may list many files that lie deep: the calls grow with the files and with the depth, not with both."""
    depth, count = 50, 400
    folder = tmp_path.joinpath("jax", *["d"] * depth)
    folder.mkdir(parents=True)
    names = [f"{folder.relative_to(tmp_path)}/{number}" for number in range(count)]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    files, calls = SealedFiles.of(str(tmp_path), *names), 0

    def counting(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(counting)
    try:
        found = files.below("jax")
    finally:
        sys.setprofile(None)
    assert sorted(found) == sorted(names)
    assert calls < count * depth

"""The state file is read as people and programs leave it, and written so that a crash cannot tear it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.checkpoint.state_file import CheckpointState, SaveId, make_relative, read_state, write_state


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the state file is."""
    return tmp_path / "checkpoint"


def test_what_was_written_is_read(path: Path) -> None:
    """Paths, times and the preserved time come back to the last digit."""
    state = CheckpointState(
        model_checkpoint_path="model.ckpt-12",
        all_model_checkpoint_paths=("model.ckpt-6", "model.ckpt-12"),
        timestamps=(1669581175.123456, 1669581775.5),
        last_preserved_timestamp=1669577000.25,
    )
    write_state(path, state)
    reading = read_state(path)
    assert (reading.verdict, reading.state, reading.problem) == ("good", state, None)


def test_the_file_is_the_text_that_people_know(path: Path) -> None:
    """One field to a line, as tensorflow writes it, names in other alphabets as they are."""
    state = CheckpointState(model_checkpoint_path='模型 "a"-1', all_model_checkpoint_paths=('模型 "a"-1',))
    write_state(path, state)
    expected = 'model_checkpoint_path: "模型 \\"a\\"-1"\nall_model_checkpoint_paths: "模型 \\"a\\"-1"\n'
    assert path.read_text("utf-8") == expected
    assert read_state(path).state == state


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("model_checkpoint_path: 'model.ckpt-5'", "model.ckpt-5"),
        ('# back to the good one\n\nmodel_checkpoint_path:   "model.ckpt-5"  # not 7\n', "model.ckpt-5"),
        ('model_checkpoint_path: "/logs/run/model.ckpt-5"', "/logs/run/model.ckpt-5"),
        ('model_checkpoint_path: "gs://bucket/run/model.ckpt-5"', "gs://bucket/run/model.ckpt-5"),
        ('model_checkpoint_path: "\\346\\226\\207-5"', "文-5"),
        ('model_checkpoint_path: "文-5"', "文-5"),
        ('model_checkpoint_path: "model" ".ckpt-5"', "model.ckpt-5"),
        ('model_checkpoint_path: "model.ckpt-7"\nmodel_checkpoint_path: "model.ckpt-5"\n', "model.ckpt-5"),
        ('all_model_checkpoint_paths: ["a-1", "a-5"] model_checkpoint_path: "a-5"', "a-5"),
        ('model_checkpoint_path: "a-5"\nsome_later_field: 7\n', "a-5"),
        (r'model_checkpoint_path: "C:\\runs\\model.ckpt-5"', r"C:\runs\model.ckpt-5"),
        (r'model_checkpoint_path: "C:\runs\model.ckpt-5"', r"C:\runs\model.ckpt-5"),
        (r'model_checkpoint_path: "D:\new\train\ckpt-5"', r"D:\new\train\ckpt-5"),
        (r'model_checkpoint_path: "D:\new\table-5"', r"D:\new\table-5"),
        (r'model_checkpoint_path: "D:\x\u"', r"D:\x\u"),
        ('\r\nmodel_checkpoint_path: "model.ckpt-5"\r\n', "model.ckpt-5"),
    ],
)
def test_hand_edited_files_are_read(path: Path, text: str, chosen: str) -> None:
    """Comments, blanks, quotes of either kind, escapes, lists and Windows paths mean what they were meant to."""
    path.write_bytes(text.encode())
    reading = read_state(path)
    assert reading.state is not None, reading.problem
    assert reading.state.model_checkpoint_path == chosen


def test_control_characters_in_our_own_file_are_no_windows_path(path: Path) -> None:
    """A name with control characters is written and read again the same; elsewhere, they are backslashes."""
    state = CheckpointState(model_checkpoint_path="a\x04\nb-5", save_id=SaveId(1, 1))
    write_state(path, state)
    assert read_state(path).state == state


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty (0 bytes)"),
        (b"  \n\n", "it is empty (4 bytes)"),
        (b'model_checkpoint_path: "model.ck', "String missing ending quote"),
        (b"model_checkpoint_path: ", "Expected string"),
        (b"model_check", "cannot be understood"),
        (b"version https://git-lfs.github.com/spec/v1\n", "cannot be understood"),
        (b'model_checkpoint_path: ""\n', "it names no model_checkpoint_path"),
        (b"all_model_checkpoint_timestamps: 5\n", "it names no model_checkpoint_path"),
        (b"\x80\x02}q\x00", "it is not text, at byte 0"),
        (bytes(4096), "it is not text, at byte 0"),
        (b"model_checkpoint_path: 5\n", "Expected string"),
    ],
)
def test_damaged_files_are_not_called_missing(path: Path, content: bytes, words: str) -> None:
    """A torn, emptied, binary or foreign file is damage with its reason; never "there is none"."""
    path.write_bytes(content)
    reading = read_state(path)
    assert reading.verdict == "damaged"
    assert reading.state is None
    assert words in reading.problem


def test_a_state_file_cut_anywhere_is_never_taken_for_missing(path: Path) -> None:
    """Wherever it is cut, it is damaged, or names the same checkpoint to resume from."""
    state = CheckpointState(
        model_checkpoint_path="model.ckpt-12",
        all_model_checkpoint_paths=("model.ckpt-6", "model.ckpt-12"),
        timestamps=(1.5, 2.5),
    )
    write_state(path, state)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        reading = read_state(path)
        assert reading.verdict in ("damaged", "good")
        if reading.state is not None:
            assert reading.state.model_checkpoint_path == "model.ckpt-12"


def test_times_that_do_not_match_are_dropped(path: Path) -> None:
    """Timestamps that cannot belong to the paths are not guessed at: they are dropped, and that is said."""
    path.write_text(
        'model_checkpoint_path: "a-2"\nall_model_checkpoint_paths: "a-2"\n' + "all_model_checkpoint_timestamps: 1\n" * 2
    )
    reading = read_state(path)
    assert reading.state.timestamps == ()
    assert reading.problem == "the state file 'checkpoint': its 2 timestamps do not match its 1 paths"


def test_times_that_are_no_times_are_dropped(path: Path) -> None:
    """A timestamp of "nan" or infinity would put the schedule of what to keep out of order."""
    path.write_text(
        'model_checkpoint_path: "a-2"\nall_model_checkpoint_paths: "a-2"\n'
        "all_model_checkpoint_timestamps: nan\nlast_preserved_timestamp: inf\n"
    )
    state = read_state(path).state
    assert (state.timestamps, state.last_preserved_timestamp) == ((), None)


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    """No file, no directory, or a file in place of the directory: missing, not damaged."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "checkpoint", tmp_path / "gone" / "checkpoint", tmp_path / "file" / "checkpoint"):
        assert read_state(path).verdict == "missing"


def test_a_directory_of_that_name(path: Path) -> None:
    """A directory named `checkpoint` (as other frameworks make) is not a state file, and no crash."""
    path.mkdir()
    assert read_state(path).verdict == "unreadable"


def test_a_failed_write_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk is full, or the machine dies before the rename, the old file is whole; no temporary file stays."""
    write_state(path, CheckpointState(model_checkpoint_path="a-1", all_model_checkpoint_paths=("a-1",)))
    before = path.read_bytes()
    for name in ("fsync", "replace"):

        def fail(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, name, fail)
            with pytest.raises(OSError, match="No space left"):
                write_state(path, CheckpointState(model_checkpoint_path="a-2"))
        assert path.read_bytes() == before
        assert [item.name for item in path.parent.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize(
    ("paths", "directory", "relative"),
    [
        (["/logs/run/model.ckpt-5"], "/logs/run", ("model.ckpt-5",)),
        (["/logs/run/model.ckpt-5"], "/logs/run/", ("model.ckpt-5",)),
        (["logs/run/model.ckpt-5"], "logs/run", ("model.ckpt-5",)),
        (["/logs/run/sub/model.ckpt-5"], "/logs/run", ("sub/model.ckpt-5",)),
        (["/logs/other/model.ckpt-5"], "/logs/run", ("/logs/other/model.ckpt-5",)),
        (["/logs/running/model.ckpt-5"], "/logs/run", ("/logs/running/model.ckpt-5",)),
        (["gs://b/run/model.ckpt-5"], "gs://b/run", ("model.ckpt-5",)),
        (["gs://b/other/model.ckpt-5"], "gs://b/run", ("gs://b/other/model.ckpt-5",)),
        (["/a/..b/m-5"], "/a", ("..b/m-5",)),
    ],
)
def test_paths_below_the_directory_become_relative(paths: list[str], directory: str, relative: tuple[str, ...]) -> None:
    """What lies below is written relative to it, so that the directory can move; what does not stays absolute."""
    assert make_relative(paths, directory) == relative


def test_which_save_it_is_of_is_a_comment(tmp_path: Path) -> None:
    """It is read back, is no field that other programs stumble over, and comes last: some read the first line only."""
    path = 'odd "name" of\\模型-5'
    state = CheckpointState(
        model_checkpoint_path=path, all_model_checkpoint_paths=(path,), timestamps=(1.5,), save_id=SaveId(12, 57)
    )
    write_state(tmp_path / "checkpoint", state)
    lines = (tmp_path / "checkpoint").read_text().splitlines()
    assert lines[0].startswith("model_checkpoint_path: ")
    assert lines[-1].startswith('# supervisor_core: attempt 12, save 57: "')
    assert read_state(tmp_path / "checkpoint").state == state


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "# supervisor_core: attempt 1, save 2",
        '# supervisor_core: attempt 1, save 2: "model.ckpt-4"',
        '# supervisor_core: attempt x, save 2: "model.ckpt-5"',
        '# supervisor_core: attempt 1, save 2: "model.ckpt-5\\q"',
        '# supervisor_core: attempt 1, save 2: "model.ckpt-5" edited',
    ],
)
def test_a_comment_of_another_path_counts_for_nothing(tmp_path: Path, comment: str) -> None:
    """Somebody has edited the file, or another program has written it: it counts as it is."""
    (tmp_path / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-5"\n{comment}\n')
    state = read_state(tmp_path / "checkpoint").state
    assert (state.model_checkpoint_path, state.save_id) == ("model.ckpt-5", None)

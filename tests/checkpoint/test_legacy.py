"""Checkpoints of the older, single-file format verify too, whole or in shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.errors import DamagedCheckpointError
from supervisor_core.checkpoint.bundle import VerifiedCheckpoint, verify


def test_a_single_file_verifies(tmp_path: Path, writer: Any) -> None:
    """A checkpoint of one file, named by the prefix itself, says its size, tensors and step."""
    writer.write_legacy(tmp_path / "m-70", 70)
    size = (tmp_path / "m-70").stat().st_size
    assert verify(tmp_path / "m-70") == VerifiedCheckpoint(size, 2, 70)
    assert verify(tmp_path / "m-70", data=False).step == 70


def test_shards_verify_together(tmp_path: Path, writer: Any) -> None:
    """A sharded one is named with question marks; every shard is checked."""
    writer.write_legacy(tmp_path / "m-7-00000-of-00002", 7)
    writer.write_legacy(tmp_path / "m-7-00001-of-00002", 7)
    prefix = tmp_path / "m-7-?????-of-00002"
    assert verify(prefix).tensors == 2
    assert verify(prefix).step == 7
    (tmp_path / "m-7-00001-of-00002").unlink()
    with pytest.raises(DamagedCheckpointError, match="the file is missing"):
        verify(prefix)


def test_every_altered_byte_is_found(tmp_path: Path, writer: Any) -> None:
    """Whichever byte is altered or cut off, it does not verify."""
    writer.write_legacy(tmp_path / "m-7", 7)
    content = (tmp_path / "m-7").read_bytes()
    for position in range(len(content)):
        altered = bytearray(content)
        altered[position] ^= 1 << position % 8
        (tmp_path / "m-7").write_bytes(altered)
        with pytest.raises(DamagedCheckpointError):
            verify(tmp_path / "m-7")
    for length in range(0, len(content), 5):
        (tmp_path / "m-7").write_bytes(content[:length])
        with pytest.raises(DamagedCheckpointError):
            verify(tmp_path / "m-7")


def test_progress_ends_at_the_total(tmp_path: Path, writer: Any) -> None:
    """Progress is reported in bytes and never goes back."""
    writer.write_legacy(tmp_path / "m-7", 7)
    progress: list[tuple[int, int]] = []
    verify(tmp_path / "m-7", on_progress=lambda done, total: progress.append((done, total)))
    assert [done for done, _ in progress] == sorted(done for done, _ in progress)
    assert all(done <= total for done, total in progress)


def test_a_step_that_is_not_there_is_unknown(tmp_path: Path, writer: Any) -> None:
    """A name that is missing, or no single integer, gives no step."""
    writer.write_legacy(tmp_path / "m-7", 7)
    assert verify(tmp_path / "m-7", step_name="no_such_tensor").step is None
    assert verify(tmp_path / "m-7", step_name="w").step is None


def test_the_newer_format_wins(tmp_path: Path, writer: Any) -> None:
    """Where both are there, the index is what a restore reads."""
    writer.write_legacy(tmp_path / "m-7", 7)
    writer.write_bundle(tmp_path / "m-7", {"global_step": writer.step(8)})
    assert verify(tmp_path / "m-7").step == 8


def test_a_table_that_lists_nothing(tmp_path: Path, writer: Any) -> None:
    """A table of some other program is no checkpoint."""
    writer.write_table(tmp_path / "m-7", [(b"key", b"value")])
    with pytest.raises(DamagedCheckpointError, match="holds no list of tensors"):
        verify(tmp_path / "m-7")
    writer.write_table(tmp_path / "m-7", [(b"", b"\xff\xff")])
    with pytest.raises(DamagedCheckpointError, match="an entry cannot be read"):
        verify(tmp_path / "m-7")

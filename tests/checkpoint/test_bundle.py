"""Checkpoints are read and verified without tensorflow, and every damage is found and named."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.errors import DamagedCheckpointError
from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint.bundle import TensorEntry, read_index, verify

Build = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path, writer: Any) -> Build:
    """Returns a function that writes a checkpoint with every kind of tensor, in two data files."""

    def make(name: str = "model.ckpt-1200", **options: Any) -> Path:
        tensors = {
            "dense/kernel": writer.floats(5000),
            "dense/bias": writer.floats(10, seed=3),
            "empty": writer.Tensor("float32", (0, 4), b""),
            "global_step": writer.step(1200),
            "names": writer.strings(b"hello", b"", b"w" * 300),
            "nothing": writer.strings(),
            "list": writer.variants(b"first element", b"second"),
            "second/kernel": writer.Tensor("uint8", (700,), bytes(range(100)) * 7, shard=1),
        }
        tensors.update({f"layer_{number:02d}/gamma": writer.floats(3, seed=number + 9) for number in range(30)})
        writer.write_bundle(tmp_path / name, tensors, **options)
        return tmp_path / name

    return make


def test_the_index_says_what_the_checkpoint_holds(build: Build) -> None:
    """Type, shape, place and checksum of each tensor come back as they were written."""
    index = read_index(build())
    assert index.num_shards == 2
    assert not index.big_endian
    assert index.entries["global_step"] == TensorEntry("int64", (), 0, 20040, 8, index.entries["global_step"].crc)
    assert index.entries["second/kernel"].shard == 1
    assert index.entries["empty"].shape == (0, 4)
    assert len(index.entries) == 38


def test_a_whole_checkpoint_verifies(build: Build) -> None:
    """What verifies says how many bytes and tensors there are, and the step that is stored inside."""
    prefix = build()
    files = [path for path in prefix.parent.iterdir()]
    assert verify(prefix) == bundle.VerifiedCheckpoint(sum(path.stat().st_size for path in files), 38, 1200)


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "data", "step"),
    [
        ("global_step", "int64", (), struct.pack("<q", 7), 7),
        ("global_step", "int64", (1,), struct.pack("<q", 7), 7),
        ("global_step", "int64", (1, 1), struct.pack("<q", 7), 7),
        ("global_step", "int32", (), struct.pack("<i", -3), -3),
        ("global_step", "int32", (2,), struct.pack("<2i", 3, 4), None),
        ("global_step", "float32", (), struct.pack("<f", 5.0), None),
        ("train/step", "int32", (), struct.pack("<i", 5), None),
    ],
)
def test_the_step_is_a_single_integer_of_that_name(
    tmp_path: Path, writer: Any, name: str, dtype: str, shape: tuple[int, ...], data: bytes, step: int | None
) -> None:
    """Of any rank and sign, under the name that is asked for; anything else gives no step, not a wrong number."""
    writer.write_bundle(tmp_path / "m-5", {name: writer.Tensor(dtype, shape, data)})
    assert verify(tmp_path / "m-5").step == step
    assert verify(tmp_path / "m-5", step_name=name).step == (5 if name == "train/step" else step)


def test_bytes_that_no_tensor_uses_are_allowed(build: Build) -> None:
    """A writer may align tensors, and a restore does not look past the last one."""
    prefix = build(padding=13)
    with open(f"{prefix}.data-00001-of-00002", "ab") as file:
        file.write(b"more")
    assert verify(prefix).tensors == 38


def test_the_other_byte_order(tmp_path: Path, writer: Any) -> None:
    """A checkpoint from a big-endian machine verifies here, and its step is read right."""
    tensors = {
        "global_step": writer.Tensor("int64", (), struct.pack(">q", 77)),
        "names": writer.strings(b"one", b"three"),
        "list": writer.variants(b"one", b"three"),
    }
    writer.write_bundle(tmp_path / "m", tensors, big_endian=True)
    assert verify(tmp_path / "m").step == 77


def test_progress_is_reported_in_bytes(tmp_path: Path, writer: Any) -> None:
    """Progress never goes back, never goes beyond the total, and ends at it; chunks are at most 256 KiB."""
    writer.write_bundle(tmp_path / "m", {"w": writer.Tensor("uint8", (700_000,), bytes(700_000))})
    progress: list[tuple[int, int]] = []
    verify(tmp_path / "m", on_progress=lambda done, total: progress.append((done, total)))
    steps = [done for done, _ in progress]
    assert [after - before for before, after in zip([0, *steps], steps, strict=False)] == [1 << 18, 1 << 18, 175_712]
    assert {total for _, total in progress} == {700_000}


def test_verifying_without_data_reads_no_tensor(build: Build) -> None:
    """With ``data=False`` the index is checked, and that the data files are long enough, in no time."""
    prefix = build()
    data = Path(f"{prefix}.data-00000-of-00002")
    content = bytearray(data.read_bytes())
    content[5] ^= 1
    data.write_bytes(content)
    assert verify(prefix, data=False).step == 1200
    with pytest.raises(DamagedCheckpointError):
        verify(prefix)
    data.write_bytes(content[:-1])
    with pytest.raises(DamagedCheckpointError, match="ends at byte"):
        verify(prefix, data=False)


def test_a_flipped_byte_in_the_data_names_the_tensor(build: Build) -> None:
    """The message says which file, which tensor, and where in the file it lies."""
    prefix = build()
    data = Path(f"{prefix}.data-00000-of-00002")
    content = bytearray(data.read_bytes())
    content[12_345] ^= 0x40
    data.write_bytes(content)
    with pytest.raises(DamagedCheckpointError) as caught:
        verify(prefix)
    assert str(caught.value).startswith(
        "model.ckpt-1200.data-00000-of-00002: tensor 'dense/kernel' (bytes 0 to 20,000) was altered (CRC32C "
    )


def test_a_cut_data_file_says_how_much_is_missing(build: Build) -> None:
    """The message says where the file ends and what it ends before."""
    prefix = build()
    data = Path(f"{prefix}.data-00001-of-00002")
    data.write_bytes(data.read_bytes()[:600])
    with pytest.raises(
        DamagedCheckpointError, match=r"it ends at byte 600, 100 bytes before the end of 'second/kernel'"
    ):
        verify(prefix)


@pytest.mark.parametrize("ending", [".index", ".data-00000-of-00002", ".data-00001-of-00002"])
def test_a_missing_file_is_named(build: Build, ending: str) -> None:
    """Whichever of a checkpoint's files is missing is named."""
    prefix = build()
    Path(f"{prefix}{ending}").unlink()
    with pytest.raises(DamagedCheckpointError, match=rf"^model\.ckpt-1200{ending}: the file is missing$"):
        verify(prefix)


def test_what_may_not_be_read_is_said(build: Build, failing_filesystem: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing permission and a missing file are different errors."""
    prefix = build()
    filesystem = failing_filesystem(open=(".data-00001-of-00002", PermissionError(13, "Permission denied")))
    monkeypatch.setattr(bundle, "filesystem_for", lambda path: (filesystem, str(path)))
    with pytest.raises(DamagedCheckpointError, match="00001-of-00002: it cannot be read: Permission denied"):
        verify(prefix)


def test_a_disk_error_while_reading(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """An I/O error in the middle of a file is damage, with the operating system's words."""
    prefix = build()
    real = bundle.os.pread  # type: ignore[attr-defined]

    def pread(fd: int, length: int, offset: int) -> bytes:
        if length > 10_000:
            raise OSError(5, "Input/output error")
        return real(fd, length, offset)

    monkeypatch.setattr("os.pread", pread)
    with pytest.raises(DamagedCheckpointError, match="it cannot be read: Input/output error"):
        verify(prefix)


def test_a_symbolic_link_is_followed(build: Build, tmp_path: Path) -> None:
    """Checkpoints reached by links verify; a link that leads nowhere is a missing file."""
    prefix = build()
    linked = tmp_path / "links"
    linked.mkdir()
    for path in prefix.parent.glob("model.ckpt-1200.*"):
        (linked / path.name).symlink_to(path)
    assert verify(linked / prefix.name).step == 1200
    Path(f"{prefix}.index").unlink()
    with pytest.raises(DamagedCheckpointError, match="the file is missing"):
        verify(linked / prefix.name)


def test_each_of_200_random_damages_is_found(build: Build) -> None:
    """200 damages at random, of every kind and in every file: none verifies."""
    prefix = build()
    files = sorted(prefix.parent.glob("model.ckpt-1200.*"))
    chance = random.Random(20)
    for number in range(200):
        victim = chance.choice(files)
        whole = victim.read_bytes()
        at = chance.randrange(len(whole))
        before, middle, after = whole[:at], whole[at : at + 64], whole[at + 64 :]
        damages = {
            "cut": before,
            "flip": before + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :],
            "zero": before + bytes(len(middle)) + after,
            "random": before + chance.randbytes(len(middle)) + after,
            "insert": before + b"\xa5" + whole[at:],
            "swap": whole[at:] + before,
            "remove": None,
        }
        kind = chance.choice(list(damages))
        content = damages[kind]
        victim.unlink() if content is None else victim.write_bytes(content)
        if content != whole:
            with pytest.raises(DamagedCheckpointError):
                pytest.fail(f"{number}: {kind} at {at} of {victim.name}: {verify(prefix)}")
        victim.write_bytes(whole)


def test_the_data_of_another_checkpoint_is_found(build: Build) -> None:
    """A data file that is whole, but belongs to another checkpoint of the same model, is found."""
    prefix, other = build(), build("model.ckpt-1300")
    content = bytearray(Path(f"{other}.data-00000-of-00002").read_bytes())
    content[20_040:20_048] = struct.pack("<q", 1300)
    Path(f"{prefix}.data-00000-of-00002").write_bytes(content)
    with pytest.raises(DamagedCheckpointError, match="'global_step'"):
        verify(prefix)


def test_a_file_that_is_no_index(tmp_path: Path) -> None:
    """Any other file in place of the index, empty or not, is damage."""
    for content in (b"", b"\0" * 100, b"model_checkpoint_path: 'x'\n" * 10):
        (tmp_path / "m.index").write_bytes(content)
        with pytest.raises(DamagedCheckpointError, match=r"^m\.index: "):
            verify(tmp_path / "m")


def test_an_index_of_lies_is_found(tmp_path: Path, writer: Any) -> None:
    """An index whose checksums are right and whose contents make no sense is damage, not a crash."""
    header = bundle.message_class("BundleHeader")(num_shards=1).SerializeToString()
    wrong_size = bundle.message_class("BundleEntry")(dtype=1, size=7).SerializeToString()
    negative = bundle.message_class("BundleEntry")(dtype=7, offset=-5, size=5).SerializeToString()
    (tmp_path / "m.data-00000-of-00001").write_bytes(bytes(100))
    for items, words in (
        ([(b"w", wrong_size)], "it has no header"),
        ([(b"", header), (b"w", b"\xff\xff\xff")], "an entry cannot be read"),
        ([(b"", b"\x0a")], "an entry cannot be read"),
        ([(b"", header), (b"w", wrong_size)], "is said to have 7 bytes"),
        ([(b"", header), (b"w", negative)], "is said to have 5 bytes at -5"),
    ):
        writer.write_table(tmp_path / "m.index", items)
        with pytest.raises(DamagedCheckpointError, match=words):
            verify(tmp_path / "m")


def test_a_compressed_index_is_said_to_be_one(tmp_path: Path, writer: Any) -> None:
    """tensorflow writes none; such a file is named as what it is."""
    writer.write_bundle(tmp_path / "m", {"w": writer.floats(3)}, compression=1)
    with pytest.raises(DamagedCheckpointError, match="is compressed"):
        verify(tmp_path / "m")


def test_damaged_strings_and_variants_are_found(tmp_path: Path, writer: Any) -> None:
    """Whichever byte of a string or variant tensor is altered, the checkpoint does not verify."""
    tensors = {"names": writer.strings(b"ab", b"", b"c" * 200), "list": writer.variants(b"xyz", b"")}
    writer.write_bundle(tmp_path / "m", tensors)
    data = tmp_path / "m.data-00000-of-00001"
    content = data.read_bytes()
    for position in range(len(content)):
        for bit in (position % 8,):
            altered = bytearray(content)
            altered[position] ^= 1 << bit
            data.write_bytes(altered)
            with pytest.raises(DamagedCheckpointError):
                verify(tmp_path / "m")


def test_a_string_tensor_of_many_strings(tmp_path: Path, writer: Any) -> None:
    """More strings than are summed at a time, in more bytes than are read at a time, verify as well."""
    values = [bytes([number % 251]) * (number % 40) for number in range(70_000)]
    writer.write_bundle(tmp_path / "m", {"words": writer.strings(*values)})
    assert verify(tmp_path / "m").tensors == 1

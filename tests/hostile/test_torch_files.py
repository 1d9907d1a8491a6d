"""Files of ``torch.save`` that another user has made: nothing of them is imported or called, what can be read without
that is accepted, and what is left for PyTorch to read lies within the file."""

from __future__ import annotations

import collections
import io
import pickle
import struct
import sys
import zipfile
from typing import Any

import pytest

from fuzz import sealed
from supervisor_core.checkpoint import pickles, torch_file
from supervisor_core.checkpoint.torch_file import NeedsCodeError
from supervisor_core.training import random_state
from tests.cases import each


def archive(
    pickle_bytes: bytes, *, records: dict[str, bytes] | None = None, method: int = 0, folder: str = "archive"
) -> bytes:
    """A file as PyTorch writes it; storage 0 has four numbers."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as target:
        for name, data in {"data.pkl": pickle_bytes, "data/0": bytes(16), **(records or {})}.items():
            target.writestr(zipfile.ZipInfo(f"{folder}/{name}"), data, method)
    return file.getvalue()


def check(data: bytes, *allowed: str) -> Any:
    """What is said of a file."""
    return torch_file.check(lambda at, count: data[max(0, at) : max(0, at) + count], len(data), allowed)


PLAIN = {"a": [1, 2.5, None, True, "x", b"y", (1,), {1, 2}], "b": collections.OrderedDict(c=3), 5: 1 << 70}


@each("protocol", [2, 3, 4, 5])
def test_plain_values_are_accepted(protocol: int) -> None:
    """As any of the protocols writes them."""
    assert check(archive(pickle.dumps(PLAIN, protocol)))["a"][1] == 2.5


def test_a_tensor_is_accepted() -> None:
    """With its dtype and its shape."""
    assert torch_file.tensor_of(check(archive(b"\x80\x02" + sealed.tensor() + b"."))) == ("torch.float32", (4,))


@each("protocol", [2, 3, 4, 5])
def test_octets_are_of_octets(protocol: int) -> None:
    """Of a tensor of one number PyTorch would make as many zeros as that says."""
    assert check(archive(pickle.dumps({"x": bytearray(b"abc"), "y": bytearray(), "z": b"\xff"}, protocol)))
    data = b"\x80\x02" + sealed.name("builtins.bytearray") + sealed.tensor() + b"\x85R."
    with pytest.raises(NeedsCodeError, match="bytearray"):
        check(archive(data))


class Called:
    """Calls something when it is unpickled."""

    def __init__(self, *call: Any) -> None:
        self._call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self._call


CALLS = [
    Called(eval, ("1",)),
    Called(getattr, ("", "join")),
    Called(bytearray, (1 << 40,)),
    Called(set, ([[1]],)),
    Called(collections.defaultdict, (eval,)),
    Called(collections.Counter, ("a" * 9,)),
    Called(collections.OrderedDict, (((1, 2),),)),
    Called(complex, ([[1]],)),
]


@each("call", CALLS)
@each("protocol", [2, 4])
def test_what_may_run_code_is_not_called(call: Called, protocol: int) -> None:
    """Nor what may be called with other arguments; whoever reads it is told that it needs code."""
    with pytest.raises(NeedsCodeError):
        check(archive(pickle.dumps({"x": call}, protocol)))


def test_nothing_is_imported() -> None:
    """Whatever a pickle names."""
    assert "antigravity" not in sys.modules
    for data in (
        b"\x80\x02" + sealed.name("antigravity.geohash") + b".",
        b"\x80\x02" + sealed.name("antigravity.geohash") + b")R.",
        b"\x80\x04" + sealed.text("antigravity") + sealed.text("geohash") + b"\x93)\x81.",
        b"(iantigravity\ngeohash\n.",
        b"(" + sealed.name("antigravity.geohash") + b"o.",
        b"\x80\x02\x82\x01.",
    ):
        with pytest.raises((NeedsCodeError, ValueError)):
            check(archive(data))
    assert "antigravity" not in sys.modules


def shared(levels: int) -> bytes:
    """A tuple of one tuple twice, and so on: of 2**levels values in a few bytes."""
    return b"\x80\x02]" + b"".join(b"q%ch%c\x86" % (n, n) for n in range(levels)) + b"."


def test_values_that_are_used_again_and_again() -> None:
    """Whoever walks over them would not come to an end; a few are right."""
    assert check(archive(shared(10)))
    with pytest.raises(NeedsCodeError, match="contains itself"):
        check(archive(shared(60)))
    with pytest.raises(NeedsCodeError, match="contains itself"):
        check(archive(b"\x80\x02]q\x00h\x00a."))
    with pytest.raises(pickles.SharedValuesError, match="10,000,000 values"):
        pickles.decode(shared(60))


def long(number: int) -> bytes:
    """An integer in a pickle."""
    return b"\x8a\x0a" + number.to_bytes(10, "little")


ALIKE = {
    "integers": b"}" + long((1 << 61) - 1 << 8) + b"Ns",
    "elements": b"\x8f(" + long((1 << 61) - 1 << 8) + b"\x90",
    "tuples": b"}" + b"K\x00K\x01\x86Ns" * 101,
    "floats": b"}(" + (b"G" + bytes(8) + b"N") * 101 + b"u",
    "a long tuple": b"}(" + b"K\x00" * 1001 + b"tNs",
    "complex": b"}(" + (sealed.name("builtins.complex") + b"K\x00K\x01\x86RN") * 101 + b"u",
    "Size": b"}(" + (sealed.name("torch.Size") + b"K\x00K\x01\x86\x85RN") * 101 + b"u",
    "a set": sealed.name("builtins.set") + b"](" + b"G\x00\x00\x00\x00\x00\x00\x00\x00" * 101 + b"e\x85R",
    "memo": b"Np%d\n" % ((1 << 61) - 1),
}


@each("kind", ALIKE)
def test_keys_of_one_hash(kind: str) -> None:
    """A dict of them would take hours, here and in PyTorch."""
    with pytest.raises(ValueError, match=r"one hash|a key is|in its memo"):
        check(archive(b"\x80\x02" + ALIKE[kind] + b"."))


def test_many_keys_are_accepted() -> None:
    """Of all types that a program has."""
    keys = [*range(5000), *map(float, range(5000)), *map(str, range(500)), *((n, "a") for n in range(500)), -1, 1 << 63]
    assert check(archive(pickle.dumps([dict.fromkeys(keys), set(keys)])))


def test_values_that_are_nested() -> None:
    """As deep as any state is, and no deeper."""
    assert check(archive(b"\x80\x02" + b"]" * 200 + b"a" * 199 + b"."))
    with pytest.raises(ValueError, match="nested deeper than 250 levels"):
        check(archive(b"\x80\x02" + b"]" * 5000 + b"a" * 4999 + b"."))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"K\x00K\x04\x85", b"K\x01K\x04\x85", "does not lie within its bytes"),
        (b"cpuK\x04t", b"cpuK\x05t", "has not the 5 elements"),
        (b"K\x00K\x04\x85", b"K\x00K\x09\x85", "does not lie within its bytes"),
        (b"K\x04\x85K\x01\x85", b"M\x00\x40\x85K\x00\x85", "_rebuild_tensor_v2"),
        (b"K\x04\x85K\x01\x85", b"K\x04\x85K\x01K\x01\x86", "not as torch.save writes it"),
        (b"K\x04\x85K\x01\x85", b"K\x00\x8a\x08" + b"\xff" * 7 + b"\x3f\x86K\x01K\x01\x86", "too large"),
        (b"FloatStorage", b"DoubleStorage", "has not the 4 elements"),
        (b"X\x01\x00\x00\x000", b"X\x01\x00\x00\x001", "has not the 4 elements"),
        (b"FloatStorage", b"FloatTensor", "torch.FloatTensor"),
    ],
)
def test_a_tensor_that_lies_elsewhere(old: bytes, new: bytes, said: str) -> None:
    """Behind its bytes, or in more of them than there are: PyTorch would return other memory, or take any amount."""
    data = b"\x80\x02" + sealed.tensor() + b"."
    assert old in data
    with pytest.raises((ValueError, NeedsCodeError), match=said):
        check(archive(data.replace(old, new)))


def test_an_archive_that_two_readers_read_differently() -> None:
    """Is none: PyTorch may read another part of it than was looked at."""
    whole = archive(pickle.dumps(1))
    assert check(whole) == 1
    end = len(whole) - 22
    first = struct.unpack_from("<I", whole, end + 16)[0]
    renamed = whole.replace(b"archive/data/0", b"archive/data.pk", 1)
    for altered in (
        b"x" + whole,
        whole + b"x",
        whole[:end] + whole[end:].replace(struct.pack("<I", first), struct.pack("<I", first + 1)),
        whole[:first].replace(b"archive/data.pkl", b"archive/data.pkk") + whole[first:],
        renamed,
        archive(pickle.dumps(1), method=zipfile.ZIP_DEFLATED),
        archive(pickle.dumps(1), records={"constants.pkl": b""}),
        archive(pickle.dumps(1), records={"data/../x": b""}),
        whole + whole,
        b"",
        pickle.dumps(1),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            check(altered)
    with zipfile.ZipFile(file := io.BytesIO(), "w") as target:
        for folder in ("a", "b"):
            target.writestr(f"{folder}/data.pkl", pickle.dumps(1))
    with pytest.raises(ValueError, match=r"two records have one name|not in one folder"):
        check(file.getvalue())


@each("position", [2**31 - 1, 10**6, 625, -1, 1.0, None, True])
def test_a_random_state_that_leads_out_of_its_memory(position: Any) -> None:
    """numpy reads where it says: what is no position is not set, and the resume says that it is not exact."""
    import numpy as np

    (source,) = (item for item in random_state.process_sources() if item.name == "numpy")
    before = source.get()
    name, keys, _, *rest = before
    (said,) = random_state.restore((source,), {"numpy": (name, keys, position, *rest)})
    assert "The random state of numpy could not be set" in said
    assert source.get() == before and np.random.random_sample() < 1
    for odd in (5, (), "x", {"bit_generator": "MT19937"}, ("MT19937", [1 << 99] * 624, 5, 0, 0.0)):
        assert len(random_state.restore((source,), {"numpy": odd})) == 1

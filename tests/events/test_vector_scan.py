from __future__ import annotations

import google_crc32c
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from supervisor_core.events import event_format
from supervisor_core.events.vector_decode import carried, fold, header_crcs, unmask


@given(st.integers(1, 200), st.integers(1, 300), st.randoms(use_true_random=False))
def test_folded_checksums_are_the_checksum_of_all(length: int, count: int, chance: object) -> None:
    """The payloads' own checksums, folded, are what the hardware computes over all their bytes."""
    payloads = [chance.randbytes(length) for _ in range(count)]  # type: ignore[attr-defined]
    crcs = np.array([google_crc32c.value(payload) for payload in payloads], np.uint32)
    assert fold(crcs, length) == google_crc32c.value(b"".join(payloads))


@given(st.integers(1, 64), st.integers(2, 100), st.data())
def test_one_damaged_payload_always_shows(length: int, count: int, data: st.DataObject) -> None:
    """Whichever checksum is wrong, and however, the fold is not what it was."""
    crcs = np.arange(count, dtype=np.uint32) * np.uint32(2654435761)
    wrong = crcs.copy()
    wrong[data.draw(st.integers(0, count - 1))] ^= np.uint32(data.draw(st.integers(1, 2**32 - 1)))
    assert fold(wrong, length) != fold(crcs, length)


@given(st.binary(), st.binary())
def test_a_checksum_is_carried_over_what_follows(first: bytes, second: bytes) -> None:
    """The checksum of two things together follows from those of each."""
    together = carried(google_crc32c.value(first), len(second)) ^ google_crc32c.value(second)
    assert together == google_crc32c.value(first + second)


@given(st.integers(0, 2**32 - 1))
def test_a_mask_comes_off(crc: int) -> None:
    """Unmasking is the inverse of what records store."""
    assert unmask(np.array([event_format.mask(crc)], np.uint32)).tolist() == [crc]


def test_checksums_of_headers_are_right() -> None:
    """Every length below 4 GiB has the checksum that its header has."""
    lengths = [0, 1, 255, 256, 4095, 65535, 65536, 2**24 + 3, 2**32 - 1]
    found = header_crcs(np.array(lengths, np.uint32)).tolist()
    assert [event_format.header(length)[8:] for length in lengths] == [crc.to_bytes(4, "little") for crc in found]

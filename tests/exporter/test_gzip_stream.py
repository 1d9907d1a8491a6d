"""One gzip file of parts: what any reader of gzip makes of it is what went in."""

from __future__ import annotations

import gzip
import zlib

from hypothesis import given
from hypothesis import strategies as st

from supervisor_core.metrics.gzip_stream import GzipStream, deflate


@given(st.lists(st.binary()), st.lists(st.binary()))
def test_the_parts_come_out_in_order(first: list[bytes], second: list[bytes]) -> None:
    """Whatever the parts hold, empty ones too, the file unpacks to all of them, checksum and length included."""
    stream = GzipStream()
    for part in first:
        stream.add(part, deflate(part))
    copy = stream.copy()
    for part in second:
        copy.add_packed(deflate(part), zlib.crc32(part), len(part))
    assert gzip.decompress(stream.finish()) == b"".join(first)
    assert gzip.decompress(copy.finish()) == b"".join(first + second)


def test_it_is_one_member() -> None:
    """A reader that stops after the first member of a gzip file misses nothing."""
    stream = GzipStream()
    for part in (b"a" * 100_000, b"b", b"c" * 70_000):
        stream.add(part, deflate(part))
    reader = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    assert reader.decompress(stream.finish()) == b"a" * 100_000 + b"b" + b"c" * 70_000
    assert reader.eof
    assert reader.unused_data == b""

"""CRC-32C, the checksum of events files and checkpoints: google-crc32c's, with a warning where that is the slow one.

The library computes 20 GB/s with its compiled part. Where that part is missing it falls back to Python, 5,000 times
slower: a checkpoint of 1 GB then takes four minutes to verify. Everything still works, so this warns, once per process.
"""

from __future__ import annotations

import logging

import google_crc32c
from google_crc32c import extend, value

__all__ = ["extend", "value"]

if google_crc32c.implementation != "c":
    from supervisor_core.base.install import CRC32C, pip_install

    logging.getLogger("supervisor_core").warning(
        "google-crc32c runs without its compiled part: checksums of events and checkpoints take thousands of times "
        "longer. Install it again: %s",
        pip_install("--force-reinstall", "--only-binary", ":all:", CRC32C),
    )

    # The library's Python takes bytes only, where its compiled part takes any buffer.

    def extend(crc: int, data: bytes) -> int:
        """Return the checksum of what ``crc`` is the checksum of, followed by ``data``."""
        return int(google_crc32c.extend(crc, bytes(memoryview(data))))

    def value(data: bytes) -> int:
        """Return the checksum of ``data``."""
        return int(google_crc32c.value(bytes(memoryview(data))))

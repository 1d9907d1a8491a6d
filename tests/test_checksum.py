"""CRC-32C: right with and without the library's compiled part, and never slow without a word."""

from __future__ import annotations

import subprocess
import sys

from supervisor_core.base import checksum
from supervisor_core.base.install import CRC32C, pip_install

WITHOUT_COMPILED_PART = """
import sys, warnings
sys.modules["google_crc32c._crc32c"] = None  # as where no wheel fits and no compiler is there
warnings.simplefilter("ignore")
from supervisor_core.base import checksum
import google_crc32c
assert google_crc32c.implementation == "python", google_crc32c.implementation
assert checksum.value(b"123456789") == 0xE3069283
import numpy as np
rows = np.arange(64, dtype=np.uint8).reshape(8, 8)
assert checksum.value(rows) == checksum.value(rows.tobytes()) == checksum.extend(0, rows)
"""


def test_it_is_crc32c() -> None:
    """The check value of the standard, at once and in two parts."""
    assert checksum.value(b"123456789") == 0xE3069283
    assert checksum.extend(checksum.value(b"1234"), b"56789") == 0xE3069283


def test_the_slow_library_is_said_once() -> None:
    """Without the compiled part checksums are the same, and one warning says how to get it."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_COMPILED_PART], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("runs without its compiled part") == 1
    assert pip_install("--force-reinstall", "--only-binary", ":all:", CRC32C) in done.stderr

"""`make check` finds a message in which a list, a tuple or a record stands as Python writes it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "scripts" / "mypy_messages.py"

SAMPLE = """
import enum, logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Optional, Tuple

LOG = logging.getLogger("supervisor_core")

class Color(enum.Enum):
    RED = 1

@dataclass
class Record:
    step: int

class Pair(NamedTuple):
    path: str
    step: int

class Bare:
    pass

class Worded:
    def __str__(self) -> str:
        return "words"

def bad(newest: Optional[Tuple[str, int]], names: Sequence[str], table: Mapping[str, int], pair: Pair, record: Record,
        color: Color, bare: Bare, path: Path) -> None:
    text = f"the newest is {newest}"  # bad
    text = "one of {}".format(names)  # bad
    LOG.warning("the newest is %s", newest)  # bad
    LOG.error("%s and %s", "text", table)  # bad
    LOG.log(10, "%s", pair)  # bad
    LOG.info(f"a {record!r}")  # bad
    LOG.info("%s", color)  # bad
    LOG.info("%s", bare)  # bad
    LOG.info(f"{path!r}")  # bad

def good(names: Sequence[str], shape: list[int], path: Path, error: OSError, worded: Worded, newest: str) -> None:
    text = f"one of {', '.join(names)}: {path}, {error}, {error!r}, {shape}, {newest!r}, {len(names):,}"
    LOG.warning("%s %s %d", path, worded, 3, exc_info=True, extra={"a": 1})
"""


def test_a_repr_in_a_message_is_found(tmp_path: Path) -> None:
    """Each of those above, and nothing else."""
    pytest.importorskip("mypy")
    (tmp_path / "supervisor_core").mkdir()
    (tmp_path / "supervisor_core" / "__init__.py").touch()
    sample = tmp_path / "supervisor_core" / "sample.py"
    sample.write_text(SAMPLE)
    config = tmp_path / "mypy.ini"
    config.write_text(f"[mypy]\nplugins = {PLUGIN}\npython_version = 3.10\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(config), "--cache-dir", str(tmp_path), str(sample)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    found = {int(line) for line in re.findall(r"sample\.py:(\d+): error: .*\[repr-in-text\]", done.stdout)}
    wanted = {number for number, line in enumerate(SAMPLE.splitlines(), 1) if "# bad" in line}
    assert found == wanted, done.stdout + done.stderr


def test_it_is_part_of_the_check() -> None:
    """mypy, which `make check` runs, has the plugin."""
    assert f'plugins = ["{PLUGIN.relative_to(ROOT)}"]' in (ROOT / "pyproject.toml").read_text("utf-8")

"""What a page's commands find when they begin: logdirs of others, which no command of the page makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

PREPARED: dict[str, Callable[[Path], None]] = {}
"""Page -> makes it, below the directory that stands for ``/`` on the page."""

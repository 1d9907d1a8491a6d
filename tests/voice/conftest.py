"""The stories, and the runs of all of them in one logdir."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.story.stories import STORIES


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float, dict[str, Any]]:
    """A logdir with a run for each story, the wall time at which all of them are, and how each goes on."""
    logdir, now = tmp_path_factory.mktemp("stories"), time.time()
    return logdir, now, {name: story.write(logdir / name, now) for name, story in STORIES.items()}

"""The stories, and the runs of all of them in one logdir."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def _load(name: str, path: Path) -> ModuleType:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


_load("scripted_run", Path(__file__).parents[1] / "browser" / "scripted_run.py")
_load("voice_stories", Path(__file__).with_name("stories.py"))


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float, dict[str, Any]]:
    """A logdir with a run for each story, the wall time at which all of them are, and how each goes on."""
    logdir, now = tmp_path_factory.mktemp("stories"), time.time()
    stories = sys.modules["voice_stories"].STORIES
    return logdir, now, {name: story.write(logdir / name, now) for name, story in stories.items()}

"""What the checkpoint tests share: files to damage, and a file system that fails on demand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.storage.local import LocalFilesystem


@pytest.fixture(scope="session")
def writer(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """The module that writes checkpoints byte by byte."""
    return module_at("checkpoint/bundle_writer.py")


@pytest.fixture
def logdir(tmp_path: Path, writer: ModuleType) -> Path:
    """A run with checkpoints at steps 100, 200 and 300, and a state file."""
    writer.write_run(tmp_path / "run", [100, 200, 300])
    return tmp_path / "run"


@pytest.fixture
def steps_of() -> Callable[[CheckpointStore], list[int | None]]:
    """Returns a function that returns the steps of a store's candidates, in order."""
    return lambda store: [candidate.step for candidate in store.candidates()]


@pytest.fixture
def write_state() -> Callable[..., None]:
    """Returns a function that writes a state file by hand: into a logdir, of these paths, the last the one to use."""

    def write(logdir: Path, *paths: str, chosen: str | None = None) -> None:
        lines = [
            f'model_checkpoint_path: "{chosen or paths[-1]}"',
            *(f'all_model_checkpoint_paths: "{path}"' for path in paths),
        ]
        (logdir / "checkpoint").write_text("\n".join(lines))

    return write


@pytest.fixture
def failing_filesystem() -> Callable[..., Any]:
    """Returns a function that makes a local file system which fails: ``{"method": (path ending, error)}``."""

    def make(**faults: tuple[str, OSError]) -> Any:
        class Failing(LocalFilesystem):
            """Its methods raise where the path ends as given; what they did is in ``calls``."""

            def __init__(self) -> None:
                self.calls: list[tuple[str, str]] = []

        def wrap(name: str) -> None:
            def method(self: Any, path: str, *rest: Any) -> Any:
                self.calls.append((name, path))
                ending, error = faults.get(name, ("", None))
                if error is not None and path.endswith(ending):
                    raise error
                return getattr(super(Failing, self), name)(path, *rest)

            setattr(Failing, name, method)

        for name in (
            "list_names",
            "is_file",
            "open",
            "read",
            "replace",
            "remove",
            "remove_tree",
            "move",
            "modified_at",
        ):
            wrap(name)
        return Failing()

    return make

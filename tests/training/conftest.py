"""What the tests of `supervise` share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from supervisor_core.training import saver as savers


@pytest.fixture
def before_writes(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Returns a function that has something done before each tree is written: an error of it is the disk's."""
    real = savers.write_tree

    def do(something: Callable[[], object]) -> None:
        monkeypatch.setattr(savers, "write_tree", lambda *arguments: (something(), real(*arguments))[1])

    return do

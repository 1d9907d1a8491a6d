"""What the checkpoint tests share: files to damage, and a file system that fails on demand."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.checkpoint.logdir_lock import LEASE_NAME, LogdirLock
from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.storage.local import LocalFilesystem

HOLDER = """
import sys
from supervisor_core.checkpoint.logdir_lock import LogdirLock
lease = LogdirLock(sys.argv[1])
lease.acquire("elsewhere")
lease.record_restore(400)
print("held", flush=True)
sys.stdin.read()
"""


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


@pytest.fixture
def clock(clock_at: Callable[[float], Any]) -> Any:
    """A clock whose hands a test moves."""
    return clock_at(1_000_000.0)


class Leases:
    """Makes leases on one logdir; renewals run in line."""

    def __init__(self, logdir: Path, clock: Any) -> None:
        self._logdir = logdir
        self._clock = clock
        self.made: list[LogdirLock] = []

    def __call__(self, **options: Any) -> LogdirLock:
        lease = LogdirLock(self._logdir, clock=self._clock, spawn=lambda renew: renew(), **options)
        self.made.append(lease)
        return lease

    def hold(self, session: str, **options: Any) -> LogdirLock:
        """One that a session has taken."""
        lease = self(**options)
        lease.acquire(session)
        return lease

    def refuse(self, session: str, match: str = "The logdir", **options: Any) -> None:
        """Check that a session cannot take one, and why."""
        with pytest.raises(LogdirInUseError, match=match):
            self(**options).acquire(session)


@pytest.fixture
def make(tmp_path: Path, clock: Any) -> Iterator[Leases]:
    """Makes leases on one logdir; all are released at the end."""
    leases = Leases(tmp_path / "run", clock)
    yield leases
    for lease in leases.made:
        lease.release("end of test")


@pytest.fixture
def holder_script() -> str:
    """A program that holds the lease of the logdir that it is given, until its input ends."""
    return HOLDER


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lease of the same logdir."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "run")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.stdin.close()
    process.wait()
    process.stdout.close()


@pytest.fixture
def on_disk(tmp_path: Path) -> Callable[[], dict[str, Any]]:
    """Returns a function that reads the lease file's JSON."""

    def read() -> dict[str, Any]:
        content: dict[str, Any] = json.loads((tmp_path / "run" / LEASE_NAME).read_bytes())
        return content

    return read


@pytest.fixture
def edit(tmp_path: Path, on_disk: Callable[[], dict[str, Any]]) -> Callable[..., None]:
    """Returns a function that changes fields in the lease file, as if another session had written it."""

    def change(**changes: Any) -> None:
        (tmp_path / "run" / LEASE_NAME).write_text(json.dumps({**on_disk(), **changes}))

    return change


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks."""

    def refuse(*_: Any) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)

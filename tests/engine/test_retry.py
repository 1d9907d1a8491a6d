"""When to try again, and after which errors."""

from __future__ import annotations

import errno
import io

import pytest

from supervisor_core.base.errors import DamagedCheckpointError, EventsWriteError, ServiceError, WriterClosedError
from supervisor_core.engine.retry import Backoff, is_outside_fault


def test_doubles_up_to_the_bound() -> None:
    """Without jitter the waits double from the first to the longest, however many failures there are."""
    backoff = Backoff(initial_secs=0.5, max_secs=6.0, jitter=0.0)
    assert [backoff.next_delay(failures) for failures in range(1, 7)] == [0.5, 1.0, 2.0, 4.0, 6.0, 6.0]
    assert backoff.next_delay(10**9) == 6.0


@pytest.mark.parametrize(("chance", "expected"), [(0.0, 60.0), (0.5, 45.0), (1.0, 30.0)])
def test_jitter_only_shortens(chance: float, expected: float) -> None:
    """Jitter takes a random part off, so that the longest wait is never exceeded."""
    assert Backoff(1.0, 60.0, jitter=0.5, random=lambda: chance).next_delay(50) == expected


def test_default_jitter_is_random() -> None:
    """By default two workers that failed together do not come back together."""
    backoff = Backoff()
    delays = {backoff.next_delay(3) for _ in range(50)}
    assert len(delays) > 1
    assert all(3.0 <= delay <= 4.0 for delay in delays)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.ESTALE, "Stale file handle"),
        OSError("without a number"),
        FileNotFoundError(errno.ENOENT, "the mount is gone"),
        PermissionError(errno.EACCES, "for a while"),
        TimeoutError("too slow"),
        ConnectionResetError(),
        EventsWriteError("3 events lost"),
        DamagedCheckpointError("did not read back"),
    ],
)
def test_faults_of_the_outside_world(error: BaseException) -> None:
    """Contract part 2: what the disk, the mount or the network did may pass, and is worth another try."""
    assert is_outside_fault(error)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EBADF, "Bad file descriptor"),
        OSError(errno.EFAULT, "Bad address"),
        OSError(errno.EISDIR, "Is a directory"),
        OSError(errno.ENAMETOOLONG, "File name too long"),
        io.UnsupportedOperation("not writable"),
        ValueError("placeholder was not fed"),
        WriterClosedError("closed"),
        ServiceError("failed"),
        MemoryError(),
        KeyboardInterrupt(),
    ],
)
def test_mistakes_stay(error: BaseException) -> None:
    """Mistakes in the program are not the outside world's, even where they are OSErrors."""
    assert not is_outside_fault(error)

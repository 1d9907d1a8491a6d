"""What the kernel says of the threads of a process."""

from __future__ import annotations

from pathlib import Path

from supervisor_core.process.outside import ThreadState, thread_states


def thread(root: Path, id: int, stat: str, wchan: str | None = None) -> None:
    """Write what /proc has of one thread of the process 5."""
    path = root / "5" / "task" / str(id)
    path.mkdir(parents=True)
    (path / "stat").write_text(stat)
    if wchan is not None:
        (path / "wchan").write_text(wchan)


def test_threads_have_state_and_place(tmp_path: Path) -> None:
    """The first one first; names may hold anything; what ended in between, or cannot be read, is left out."""
    thread(tmp_path, 7, "7 (a) b (c)) D 1 2", "nfs_wait\n")
    thread(tmp_path, 5, "5 (python) R 1 2", "0")
    thread(tmp_path, 4, "4 (early) S 1 2")
    thread(tmp_path, 9, "")
    (tmp_path / "5" / "task" / "10").mkdir()
    found = thread_states(5, str(tmp_path))
    assert found == (
        ThreadState(id=5, name="python", state="R", waits_in=None),
        ThreadState(id=4, name="early", state="S", waits_in=None),
        ThreadState(id=7, name="a) b (c)", state="D", waits_in="nfs_wait"),
    )
    assert [each.text for each in found] == [
        "running", "sleeping", "waiting for I/O, cannot be interrupted, in the kernel's nfs_wait"
    ]  # fmt: skip
    assert thread_states(6, str(tmp_path)) == ()

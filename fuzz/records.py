"""The small JSON files of a logdir: the lease, the heartbeats of a cluster's tasks, the pages of the ledger."""

from __future__ import annotations

from supervisor_core.checkpoint import lease_file, ledger
from supervisor_core.supervision import task_record


def check_lease(data: bytes) -> None:
    """Decode a lease; write and read again what was accepted."""
    try:
        record = lease_file.decode(data)
    except ValueError:
        return
    if record is None:
        assert not data.strip()
        return
    written = lease_file.encode(record)
    assert len(written) % lease_file.BLOCK_BYTES == 0
    assert lease_file.decode(written) == record
    assert isinstance(record.holder, str)
    assert record.elapsed_secs is None or record.elapsed_secs >= 0


def check_task(data: bytes) -> None:
    """Decode a heartbeat file; write and read again what was accepted."""
    try:
        record = task_record.decode(data)
    except ValueError:
        return
    assert task_record.decode(task_record.encode(record)) == record
    name = task_record.file_name(record.task)
    assert "/" not in name and not name.startswith(".") and len(name) <= 255, name


def check_ledger(data: bytes) -> None:
    """Decode a page; write and read again what was accepted."""
    try:
        page = ledger.decode(data)
    except ValueError:
        return
    assert ledger.decode(ledger.encode(page)) == page
    for path in [
        *(item.path for item in page.saved),
        *(path for item in page.deletions for path in (item.path, *item.files)),
    ]:
        assert path and not path.startswith("/") and ".." not in path.split("/") and "://" not in path, path

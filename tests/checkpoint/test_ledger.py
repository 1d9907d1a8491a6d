"""What the sessions write down of their saves: its bytes, and what is made of files that say something else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.checkpoint.guard import Publisher
from supervisor_core.checkpoint.ledger import (
    DIRECTORY,
    Ledger,
    LedgerPage,
    PlannedDeletion,
    SavedAs,
    decode,
    encode,
    later_saves,
    newest_attempt,
)
from supervisor_core.checkpoint.retention import Doubt, Retention, Saved
from supervisor_core.checkpoint.state_file import CheckpointState, SaveId, write_state
from supervisor_core.storage.local import LOCAL

PAGE = LedgerPage(
    session="6f1d3c0a9b7e4d21",
    attempt=12,
    saved=(SavedAs("model.ckpt-600", 11, 3, 1669581175.25), SavedAs("model.ckpt-1200", 12, 57, 1.5)),
    deletions=(PlannedDeletion("model.ckpt-0", {"model.ckpt-0.index": 1669577000.125, "model.ckpt-0.meta": 2.0}),),
    doubts={"model.ckpt-1200": Doubt('The newest value of "loss" is NaN or infinite.', ("loss",))},
    last_good="model.ckpt-600",
)
BYTES = (
    b'{"v":1,"session":"6f1d3c0a9b7e4d21","attempt":12,"saved":[["model.ckpt-600",11,3,1669581175.25],'
    b'["model.ckpt-1200",12,57,1.5]],"deletions":[["model.ckpt-0",{"model.ckpt-0.index":1669577000.125,'
    b'"model.ckpt-0.meta":2.0}]],"doubts":{"model.ckpt-1200":["The newest value of \\"loss\\" is NaN or infinite.",'
    b'["loss"]]},"last_good":"model.ckpt-600"}\n'
)


def keeper(logdir: Path, session: str = "a", attempt: int = 1, basename: str = "model.ckpt") -> Ledger:
    """A session's ledger."""
    return Ledger(LOCAL, str(logdir), basename, Publisher(session=session, attempt=attempt))


def planned(keep: Sequence[str], delete: Sequence[str] = (), last_good: str | None = None) -> Retention:
    """Which of the older checkpoints are deleted, and why."""
    kept, deleted = (tuple(Saved(path, 0.0) for path in paths) for paths in (keep, delete))
    return Retention(kept, deleted, (), None if last_good is None else Saved(last_good, 0.0), None)


def test_the_bytes_are_as_described() -> None:
    """One JSON object and a newline, and it is read back as it was."""
    assert encode(PAGE) == BYTES
    assert decode(BYTES) == PAGE


def changed(**changes: Any) -> bytes:
    """The bytes with other values in them."""
    return json.dumps({**json.loads(BYTES), **changes}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        BYTES[:-20],
        changed(v=2),
        changed(saved=None),
        changed(attempt=2**53),
        changed(saved=[["model.ckpt-1", 2**62, 1, 1.0]]),
        changed(saved=[["model.ckpt-1", 1]]),
        changed(saved=[["/etc/passwd", 1, 1, 1.0]]),
        changed(saved=[["model.ckpt-1", 1, 1, float("nan")]]),
        changed(deletions=[["model.ckpt-1", {"../other/model.ckpt-1.index": 1.0}]]),
        changed(deletions=[["model.ckpt-1", {"gs://bucket/model.ckpt-1.index": 1.0}]]),
        changed(deletions=[["model.ckpt-1", {"model.ckpt-1.index": True}]]),
        changed(deletions=[["model.ckpt-1", {"model.ckpt-1.index": 1 - 2**63}]]),
        changed(deletions=[["", {}]]),
        changed(deletions=[5]),
        changed(doubts=[]),
        changed(doubts={"../model.ckpt-1": ["", []]}),
        changed(doubts={"model.ckpt-1": "in doubt"}),
        changed(doubts={"model.ckpt-1": ["in doubt", 5]}),
        changed(last_good="/etc/passwd"),
    ],
)
def test_what_makes_no_sense_is_left_out(tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A file that was damaged, or leads out of the logdir, counts for nothing; it is said, and nothing is raised."""
    with pytest.raises(ValueError, match=r"."):
        decode(data)
    (tmp_path / DIRECTORY).mkdir()
    (tmp_path / DIRECTORY / "attempt-000012-6f1d3c0a9b7e4d21-model.ckpt.json").write_bytes(data)
    assert Ledger(LOCAL, str(tmp_path), "model.ckpt").pages() == []
    assert "ledger of earlier sessions cannot be read" in caplog.text
    keeper(tmp_path, attempt=13).take_over(set())


def test_each_session_has_a_file_of_its_own_for_each_name(tmp_path: Path) -> None:
    """Two savers with other names in one logdir, and two sessions, do not touch each other's."""
    for subject in (keeper(tmp_path), keeper(tmp_path, basename="best/m"), keeper(tmp_path, "b", 2)):
        subject.announce(str(tmp_path / "m-1"), 1.0, planned([]))
    assert sorted(path.name for path in (tmp_path / DIRECTORY).iterdir()) == [
        "attempt-000001-a-best%2Fm.json",
        "attempt-000001-a-model.ckpt.json",
        "attempt-000002-b-model.ckpt.json",
    ]
    assert [page.attempt for page in Ledger(LOCAL, str(tmp_path), "model.ckpt").pages()] == [1, 2]
    assert newest_attempt(tmp_path) == 2


def test_earlier_files_go_once_what_they_say_is_taken_over(tmp_path: Path, writer: Any) -> None:
    """Not before the session has written its own; half-written ones go too, those of later attempts stay."""
    writer.write_run(tmp_path, [100])
    first = str(tmp_path / "model.ckpt-100")
    keeper(tmp_path).announce(first, 1.0, planned([first]))
    (tmp_path / DIRECTORY / f"attempt-000001-a-model.ckpt.json.tmp{'0' * 32}").write_bytes(b"half")
    keeper(tmp_path, "z", 9).announce(first, 1.0, planned([first]))
    second = keeper(tmp_path, "b", 2)
    second.take_over({"model.ckpt-100"})
    assert len(list((tmp_path / DIRECTORY).iterdir())) == 3
    path = str(tmp_path / "model.ckpt-200")
    second.announce(path, 2.0, planned([first, path]))
    assert sorted(name.name[:16] for name in (tmp_path / DIRECTORY).iterdir()) == [
        "attempt-000002-b",
        "attempt-000009-z",
    ]


def test_what_is_in_doubt_is_known_to_the_next_session(tmp_path: Path, writer: Any) -> None:
    """And which one is kept besides; a doubt goes with its checkpoint, or when that is saved again without one."""
    writer.write_run(tmp_path, [100, 200, 300])
    one, two, three = (str(tmp_path / f"model.ckpt-{step}") for step in (100, 200, 300))
    doubt = Doubt("There is NaN.", ("loss",))
    first = keeper(tmp_path)
    first.announce(one, 1.0, planned([one]))
    first.announce(two, 2.0, planned([two], last_good=one), doubt)
    first.finish_save([one, two], [])
    second = keeper(tmp_path, "b", 2)
    second.take_over({"model.ckpt-200"})
    assert (second.doubt(one), second.doubt(two), second.last_good) == (None, doubt, one)
    second.announce(three, 3.0, planned([two, three], last_good=one), doubt)
    (page,) = Ledger(LOCAL, str(tmp_path), "model.ckpt").pages()
    assert [item.path for item in page.saved] == ["model.ckpt-100", "model.ckpt-200", "model.ckpt-300"]
    assert set(page.doubts) == {"model.ckpt-200", "model.ckpt-300"}
    second.announce(two, 4.0, planned([three, two], delete=[one]))
    assert (second.doubt(two), second.doubt(three), second.last_good) == (None, doubt, None)


def test_what_cannot_be_deleted_is_tried_again(tmp_path: Path, writer: Any, failing_filesystem: Any) -> None:
    """By the session, and by the next one."""
    writer.write_run(tmp_path, [100, 200])
    old, new = (str(tmp_path / f"model.ckpt-{step}") for step in (100, 200))
    filesystem = failing_filesystem(remove=(".index", PermissionError(13, "Permission denied")))
    subject = Ledger(filesystem, str(tmp_path), "model.ckpt", Publisher(session="a", attempt=1))
    subject.announce(new, 1.0, planned([new], delete=[old]))
    subject.finish_save([new], [])
    subject.finish_save([new], [])
    assert (tmp_path / "model.ckpt-100.index").exists()
    assert not list(tmp_path.glob("model.ckpt-100.data*"))
    subject.announce(new, 2.0, planned([new]))
    following = keeper(tmp_path, "b", 2)
    following.take_over({"model.ckpt-200"})
    following.finish_save([new], [])
    assert not (tmp_path / "model.ckpt-100.index").exists()


def saved(*items: tuple[str, int, int]) -> LedgerPage:
    """A page with these saves: path, attempt, number."""
    return LedgerPage(session="a", attempt=1, saved=tuple(SavedAs(path, *save, 0.0) for path, *save in items))


@pytest.mark.parametrize(
    ("path", "save_id", "later"),
    [
        ("m-20", SaveId(1, 2), ["m-50", "m-40", "m-30"]),
        ("m-30", SaveId(1, 3), ["m-50", "m-40"]),
        ("m-50", SaveId(2, 2), []),
        ("m-45", SaveId(1, 4), ["m-50"]),
        ("m-99", SaveId(1, 4), []),
        ("m-20", None, []),
        ("m", SaveId(1, 2), []),
    ],
)
def test_later_saves(path: str, save_id: SaveId | None, later: list[str]) -> None:
    """Those of a later number or attempt and of a higher step, newest first; none for a file of somebody else's."""
    pages = [saved(("m-20", 1, 2), ("m-30", 1, 3)), saved(("m-40", 2, 1), ("m-50", 2, 2), ("m-10", 2, 3))]
    state = CheckpointState(model_checkpoint_path=path, save_id=save_id)
    assert [item.path for item in later_saves(state, pages)] == later
    assert later_saves(None, pages) == []


@pytest.mark.parametrize("beyond", [5 * 10**14 + 1, 2**53, 2**63 - 2])
def test_an_attempt_that_cannot_be_is_not_counted_on_from(tmp_path: Path, beyond: int) -> None:
    """Neither one in the name of a ledger's file nor one in the state file hides those that can be."""
    (tmp_path / DIRECTORY).mkdir()
    for attempt in (7, beyond):
        (tmp_path / DIRECTORY / f"attempt-{attempt:06d}-a-model.ckpt.json").touch()
    write_state(tmp_path / "checkpoint", CheckpointState(model_checkpoint_path="m-1", save_id=SaveId(beyond, 1)))
    assert newest_attempt(tmp_path) == 7


def test_newest_attempt_of_nothing(tmp_path: Path) -> None:
    """No logdir, no ledger, or one with other things in it: 0."""
    assert newest_attempt(tmp_path / "none") == newest_attempt(tmp_path) == 0
    (tmp_path / DIRECTORY).mkdir()
    (tmp_path / DIRECTORY / "notes.txt").write_text("attempt-000099")
    assert newest_attempt(tmp_path) == 0

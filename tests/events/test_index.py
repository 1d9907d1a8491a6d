from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor_core.events import EventsWriter, directory
from supervisor_core.events import index as index_module
from supervisor_core.events.chunk import Chunk
from supervisor_core.events.index import LogdirIndex, RunIndex
from supervisor_core.storage.filesystem import DirectoryEntry, ReadFile
from supervisor_core.storage.local import LocalFilesystem


def write(directory: Path, *steps: int, name: str | None = None) -> str:
    """Write an events file with a scalar at each step; return its path."""
    with EventsWriter(str(directory)) as writer:
        for step in steps:
            writer.scalar("loss", float(step), step)
        writer.flush()
        path = writer.path
    assert path is not None
    if name is not None:
        os.rename(path, directory / name)
        path = str(directory / name)
    return path


def steps(chunks: list[Chunk]) -> list[int]:
    """The steps of the one tag, in order."""
    return [step for chunk in chunks if "loss" in chunk.scalars for step in chunk.scalars["loss"].steps.tolist()]


def refreshed(logdir: str, **options: Any) -> LogdirIndex:
    """Return an index that was refreshed once."""
    index = LogdirIndex(logdir, **options)
    index.refresh()
    return index


def test_runs_are_named_as_tensorboard_names_them(tmp_path: Path) -> None:
    """The logdir itself is a dot, anything below it a relative path; a directory without events is no run."""
    write(tmp_path, 1)
    write(tmp_path / "a" / "b", 2)
    write(tmp_path / "[x] 试验", 3)
    (tmp_path / "empty").mkdir()
    index = LogdirIndex(str(tmp_path))
    change = index.refresh()
    assert tuple(index.runs) == (".", "[x] 试验", "a/b")
    assert {name: steps(chunks) for name, chunks in change.changed.items()} == {".": [1], "[x] 试验": [3], "a/b": [2]}


def test_a_refresh_brings_only_what_is_new(tmp_path: Path) -> None:
    """Runs that did not change are not among the changed; a run that grew brings its new points alone."""
    write(tmp_path / "a", 1)
    with EventsWriter(str(tmp_path / "b")) as writer:
        writer.scalar("loss", 1.0, 1)
        writer.flush()
        index = LogdirIndex(str(tmp_path))
        index.refresh()
        assert index.refresh().changed == {}
        writer.scalar("loss", 1.0, 2)
        writer.flush()
        change = index.refresh()
    assert change.removed == ()
    assert {name: steps(chunks) for name, chunks in change.changed.items()} == {"b": [2]}


def test_files_of_a_run_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    """402 files in one directory, most of them empty, one of them a dummy: each is known, in TensorBoard's order."""
    for number in range(402):
        (tmp_path / f"events.out.tfevents.{number:010}.host").touch()
    write(tmp_path, 2, name="events.out.tfevents.0000000300.host")
    write(tmp_path, 1, name="events.out.tfevents.0000000007.host")
    (tmp_path / "notes.md").touch()
    index = LogdirIndex(str(tmp_path))
    chunks = index.refresh().changed["."]
    assert steps(chunks) == [1, 2]
    files = index.runs["."].files
    assert len(files) == 402 and [facts.path for facts in files] == sorted(facts.path for facts in files)
    assert sum(facts.skipped == "it is empty" for facts in files) == 400


def test_what_merely_is_called_an_events_file_harms_no_run(tmp_path: Path) -> None:
    """A run whose one file is none is there, with a reason, but not one with a text; its neighbours are read."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "tfevents").write_bytes(b"\x00\x07" * 100)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "tfevents_reader.py").write_text("import this\n" * 10)
    write(tmp_path / "b", 1)
    index = LogdirIndex(str(tmp_path))
    assert list(index.refresh().changed) == ["b"]
    assert list(index.runs) == ["a", "b"]
    (facts,) = index.runs["a"].files
    assert facts.skipped is not None and "no events file" in facts.skipped


def test_a_file_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    """One chunk from the start, with nothing in it, voids what the file gave."""
    path = write(tmp_path, 1)
    write(tmp_path, 2)
    index = refreshed(str(tmp_path))
    os.unlink(path)
    (chunk,) = index.refresh().changed["."]
    assert (chunk.path, chunk.from_start, chunk.records) == (path, True, 0)
    assert len(index.runs["."].files) == 1


def test_a_file_that_vanishes_while_its_directory_is_listed(tmp_path: Path, watched: Any) -> None:
    """Between listing and opening anything may go: the rest is read, the next refresh has it right."""
    gone = write(tmp_path / "a", 1)
    write(tmp_path / "a", 2)
    watched.stat_errors[gone] = FileNotFoundError(errno.ENOENT, "gone")
    index = LogdirIndex(str(tmp_path), filesystem=watched)
    assert steps(index.refresh().changed["a"]) == [2]
    assert [facts.skipped for facts in index.runs["a"].files] == ["it is gone", None]


def test_symbolic_links_are_followed(tmp_path: Path) -> None:
    """A directory that is linked to is a run under the link's name too, as in TensorBoard."""
    write(tmp_path / "elsewhere", 1)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "link").symlink_to(tmp_path / "elsewhere")
    index = LogdirIndex(str(tmp_path / "logs"))
    assert steps(index.refresh().changed["link"]) == [1]


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    """A link to a directory above it, directly or by way of another, is not walked a second time."""
    write(tmp_path / "a" / "b", 1)
    write(tmp_path / "c", 1)
    (tmp_path / "a" / "b" / "up").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "over").symlink_to(tmp_path / "c")
    (tmp_path / "c" / "back").symlink_to(tmp_path / "a")
    (tmp_path / "self").symlink_to(tmp_path / "self")
    index = refreshed(str(tmp_path))
    assert list(index.runs) == ["a/b", "a/over", "c", "c/back/b"]


def test_a_directory_that_cannot_be_listed_keeps_its_runs(tmp_path: Path, watched: Any, clock_at: Any) -> None:
    """Storage that fails for a while makes no run vanish; it is named, and the other runs go on."""
    write(tmp_path / "a" / "b", 1)
    write(tmp_path / "c", 1)
    clock = clock_at(1e10)  # far after every file was written
    index = refreshed(str(tmp_path), filesystem=watched, clock=clock)
    watched.list_errors[str(tmp_path / "a")] = PermissionError(errno.EACCES, "Permission denied")
    clock.now += 3600
    change = index.refresh()
    assert (change.removed, list(index.runs)) == ((), ["a/b", "c"])
    (problem,) = index.problems
    assert str(tmp_path / "a") in problem.text and "Permission denied" in problem.text
    watched.list_errors.clear()
    index.refresh()
    assert index.problems == ()


def test_directories_are_not_listed_again_without_need(tmp_path: Path, watched: Any, clock_at: Any) -> None:
    """A refresh when nothing changed lists nothing, and still sees files that grow; what changed is listed."""
    paths = [write(tmp_path / name, 1) for name in "abc"]
    clock = clock_at(1e10)  # far after every file was written
    index = refreshed(str(tmp_path), filesystem=watched, clock=clock)
    watched.listed.clear()
    with open(paths[1], "ab") as file:
        file.write(Path(paths[1]).read_bytes())
    change = index.refresh()
    assert (watched.listed, list(change.changed)) == ([], ["b"])
    write(tmp_path / "c", 2)
    index.refresh()
    assert watched.listed == [str(tmp_path / "c")]
    watched.listed.clear()
    clock.now += 61
    index.refresh()
    assert len(watched.listed) == 4


def test_a_directory_that_has_just_changed_is_not_trusted(tmp_path: Path, watched: Any, clock_at: Any) -> None:
    """Its time of change has a resolution: a second file within the same tick must not be missed."""
    write(tmp_path, 1)
    clock = clock_at(os.stat(tmp_path).st_mtime + 1)
    index = refreshed(str(tmp_path), filesystem=watched, clock=clock)
    index.refresh()
    assert watched.listed == [str(tmp_path)] * 2


def test_few_descriptors_are_enough(tmp_path: Path) -> None:
    """Hundreds of runs are read with 64 descriptors, one file at a time."""
    for number in range(300):
        directory = tmp_path / str(number)
        directory.mkdir()
        shutil.copy(write(tmp_path, 1, name="model") if number == 0 else tmp_path / "model", directory / "tfevents")
    os.unlink(tmp_path / "model")
    code = f"""
import resource
from supervisor_core.events.chunk import Chunk
from supervisor_core.events.index import LogdirIndex
from supervisor_core.events.index import RunIndex
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
index = LogdirIndex({str(tmp_path)!r})
change = index.refresh()
print(len(change.changed), len(index.problems), sum(run.files[0].records for run in index.runs.values()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["300", "0", "600"]


def test_a_run_can_be_watched_alone(tmp_path: Path) -> None:
    """One directory, whether it is there yet or not, without a logdir around it."""
    run = RunIndex("a", str(tmp_path / "a"))
    assert (run.refresh(), run.files) == ([], ())
    write(tmp_path / "a", 1)
    assert steps(run.refresh()) == [1]
    write(tmp_path / "a", 2)
    assert steps(run.refresh()) == [2]


def test_a_file_that_grows_while_it_is_read_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever appends as fast as it is read keeps no look from ending; the rest comes with the next one."""
    monkeypatch.setattr(index_module, "PIECE_BYTES", 2000)
    path = Path(write(tmp_path, *range(1, 501)))
    events = path.read_bytes()
    index, taken = LogdirIndex(str(tmp_path)), []

    def take(name: str, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            taken.append(chunk)
            if len(taken) < 1000:
                with path.open("ab") as file:
                    file.write(events)

    index.refresh(take=take)
    first = len(taken)
    assert first < 100
    index.refresh(take=lambda name, chunks: taken.extend(chunks))
    assert len(steps(taken)) == 500 * (first + 1)


def test_a_large_file_comes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more of it than a piece is held at a time, however much there is, and damage does not end it early."""
    monkeypatch.setattr(index_module, "PIECE_BYTES", 2000)
    path = Path(write(tmp_path, *range(1, 501)))
    data = bytearray(path.read_bytes())
    data[1500] ^= 1
    path.write_bytes(data)
    pieces: list[Chunk] = []
    change = LogdirIndex(str(tmp_path)).refresh(take=lambda name, chunks: pieces.extend(chunks))
    assert change.changed == {} and len(pieces) > 5
    assert [piece.from_start for piece in pieces] == [True] + [False] * (len(pieces) - 1)
    assert len(steps(pieces)) == 499 and max(piece.bytes for piece in pieces) < 2100


def test_links_that_lead_to_links_do_not_multiply_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two links to the next directory at each level would double its names; each has a few, and the rest is said."""
    monkeypatch.setattr(directory, "MAX_NAMES", 8)
    for level in range(14):
        write(tmp_path / f"d{level}", 1)
    for level in range(13):
        for name in ("left", "right"):
            (tmp_path / f"d{level}" / name).symlink_to(tmp_path / f"d{level + 1}")
    index = refreshed(str(tmp_path))
    assert len(index.runs) <= 14 * 9
    assert {f"d{level}" for level in range(14)} <= set(index.runs)
    assert "not followed" in index.problems[0].text


def test_no_links_hide_anothers_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one owner's links to a directory the shallowest are walked, up to a bound; its own name does not count."""
    monkeypatch.setattr(directory, "MAX_NAMES", 3)
    write(tmp_path / "target" / "sub", 1)
    (tmp_path / "deep" / "a").mkdir(parents=True)
    for number in range(9):
        (tmp_path / "deep" / "a" / f"link{number}").symlink_to(tmp_path / "target")
    (tmp_path / "zzz").symlink_to(tmp_path / "target")
    index = refreshed(str(tmp_path))
    assert set(index.runs) == {"target/sub", "zzz/sub", "deep/a/link0/sub", "deep/a/link1/sub"}
    assert "not followed" in index.problems[0].text


def test_all_names_through_links_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of many directories that are linked a few times each; what is no link counts for nothing."""
    monkeypatch.setattr(directory, "MAX_LINKED", 10)
    for number in range(20):
        write(tmp_path / f"d{number}", 1)
        (tmp_path / f"d{number}" / "link").symlink_to(tmp_path / f"d{(number + 1) % 20}")
    index = refreshed(str(tmp_path))
    assert len(index.runs) == 20 + 10 and "not followed" in index.problems[0].text


def test_directories_of_one_owner_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is below those of one owner beyond it is not looked into; another owner's are."""
    monkeypatch.setattr(directory, "MAX_DIRECTORIES", 10)
    for number in range(30):
        (tmp_path / "evil" / str(number)).mkdir(parents=True)
    write(tmp_path / "ours" / "run", 1)

    class Owned(LocalFilesystem):
        @staticmethod
        def stat(path: str) -> Any:
            found = os.stat(path)
            facts = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
            return SimpleNamespace(**{**facts, "st_uid": 1 if "evil" in path else 2})

    index = refreshed(str(tmp_path), filesystem=Owned())
    assert set(index.runs) == {"ours/run"} and len(index._tree._known) == 10 + 3
    assert "not all are looked into" in index.problems[0].text


def test_whose_a_run_is_where_anybody_may_write(tmp_path: Path) -> None:
    """What somebody puts into the logdir of all is theirs, not its owner's."""
    write(tmp_path / "ours", 1)
    write(tmp_path, 1)
    os.chmod(tmp_path, 0o1777)

    class Owned(LocalFilesystem):
        @staticmethod
        def stat(path: str) -> Any:
            found = os.stat(path)
            facts = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
            return SimpleNamespace(**{**facts, "st_uid": 1 if os.path.isfile(path) else 0})

    index = refreshed(str(tmp_path), filesystem=Owned())
    assert {name: run.owner for name, run in index.runs.items()} == {".": 1, "ours": 0}
    (name,) = (entry for entry in os.listdir(tmp_path) if "tfevents" in entry)
    (tmp_path / f"{name}.z").symlink_to(name)
    assert refreshed(str(tmp_path), filesystem=Owned()).runs["."].owner == -1


def test_a_tree_has_a_depth(tmp_path: Path) -> None:
    """What is deeper is not looked into, which is said once."""
    write(tmp_path.joinpath(*["d"] * 64), 1)
    write(tmp_path.joinpath(*["d"] * 66), 1)
    index = refreshed(str(tmp_path))
    assert list(index.runs) == ["/".join(["d"] * 64)]
    assert [problem.text.partition(" holds ")[2] for problem in index.problems] == [
        "1 directories more than 64 deep, which are not looked into."
    ]


def test_links_of_one_owner_count_for_no_other(tmp_path: Path) -> None:
    """Each owner of links has names of their own for the same directory, however early and shallow another's are."""
    target = tmp_path / "target"
    write(target, 1)
    logs = tmp_path / "logs"
    logs.mkdir()
    owners = {f"a{number}": 1 for number in range(directory.MAX_NAMES + 1)} | {"within": 2}
    for name in owners:
        (logs / name).symlink_to(target)
    (target / "again").symlink_to(target / "inner")
    write(target / "inner", 1)

    class Owned(LocalFilesystem):
        def entries(self, directory: str) -> Iterator[DirectoryEntry]:
            return (entry._replace(owner=owners.get(entry.name, 1)) for entry in super().entries(directory))

    index = refreshed(str(logs), filesystem=Owned())
    assert {"within", "within/again", "within/inner"} <= set(index.runs)


def test_a_directory_that_becomes_a_link_while_it_is_walked(tmp_path: Path) -> None:
    """What was a directory in its parent's listing and leads back up when it is walked is walked once."""
    write(tmp_path / "a", 1)
    (tmp_path / "a" / "b").mkdir()
    write(tmp_path / "c", 1)

    class Swapping(LocalFilesystem):
        def entries(self, directory: str) -> Iterator[DirectoryEntry]:
            entries = list(super().entries(directory))
            if directory == str(tmp_path / "a"):
                (tmp_path / "a" / "b").rmdir()
                (tmp_path / "a" / "b").symlink_to(tmp_path)
            return iter(entries)

    index = refreshed(str(tmp_path), filesystem=Swapping())
    assert {"a", "c"} <= set(index.runs) and len(index.runs) < 6


def test_the_newest_files_of_a_run_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Newest by the seconds in their names; how many are not read is known, and a newer file takes an older's place."""
    monkeypatch.setattr(directory, "MAX_FILES", 3)
    write(tmp_path, 9, name="tfevents")
    for step in (1, 2, 3, 4, 10, 11):
        write(tmp_path, step, name=f"events.out.tfevents.{step}.host")
    index = LogdirIndex(str(tmp_path))
    change = index.refresh()
    assert sorted(steps(change.changed["."])) == [4, 10, 11]
    run = index.runs["."]
    assert (len(run.files), run.left_out) == (3, 4)
    os.unlink(tmp_path / "events.out.tfevents.11.host")
    assert steps(index.refresh().changed["."]) == [3]
    assert run.left_out == 3


def test_a_file_with_many_names_is_read_once(tmp_path: Path) -> None:
    """Links to one events file in one directory cost and bring no more than the file; when its first name goes, the
    next one is read."""
    path = Path(write(tmp_path, 1, name="events.out.tfevents.2.host"))
    os.link(path, tmp_path / "events.out.tfevents.3.host")
    (tmp_path / "events.out.tfevents.1.host").symlink_to(path.name)
    write(tmp_path, 2, name="events.out.tfevents.4.host")
    index = LogdirIndex(str(tmp_path))
    assert steps(index.refresh().changed["."]) == [1, 2]
    assert index.refresh().changed == {}
    assert [facts.skipped is None for facts in index.runs["."].files] == [False, True, False, True]
    os.unlink(path)
    assert [(chunk.path, chunk.records) for chunk in index.refresh().changed["."]] == [
        (str(path), 0),
        (str(tmp_path / "events.out.tfevents.3.host"), 2),
    ]
    os.link(tmp_path / "events.out.tfevents.3.host", tmp_path / "events.out.tfevents.0.host")
    first, second = index.refresh().changed["."]
    assert (steps([first]), second.path[-6], second.from_start, second.records) == ([1], "3", True, 0)


def test_a_file_is_read_under_its_own_name(tmp_path: Path) -> None:
    """Not under that of a link to it, which may come first; and files of one inode number that have no further name
    are all read: some file systems give it to several."""
    path = write(tmp_path / "a", 1, name="events.out.tfevents.2.host")
    (tmp_path / "a" / "events.out.tfevents.1.host").symlink_to(path)
    for number in (1, 2):
        write(tmp_path / "b", number, name=f"events.out.tfevents.{number}.host")

    class OneInode(LocalFilesystem):
        def stat(self, path: str) -> os.stat_result:  # type: ignore[override]  # the base has a function in its place
            status = os.stat(path)
            return os.stat_result((status[0], 7, *status[2:])) if "/b/events" in path else status

    index = LogdirIndex(str(tmp_path), filesystem=OneInode())
    changed = index.refresh().changed
    assert [chunk.path for chunk in changed["a"]] == [path]
    assert steps(changed["b"]) == [1, 2]


def test_what_takes_a_files_place_before_it_is_opened(tmp_path: Path) -> None:
    """A FIFO, between the look at a file and its opening: reading does not wait, and the next look has it right."""
    path = Path(write(tmp_path / "a", 1))
    write(tmp_path / "b", 1)

    class Swapping(LocalFilesystem):
        def open(self, name: str) -> ReadFile:
            if name == str(path) and path.is_file():
                path.unlink()
                os.mkfifo(path)
            return super().open(name)

    index = LogdirIndex(str(tmp_path), filesystem=Swapping())
    assert list(index.refresh().changed) == ["a", "b"]
    (facts,) = index.runs["a"].files
    assert facts.unreadable and "not a regular file" in str(facts.skipped)
    index.refresh()
    (facts,) = index.runs["a"].files
    assert (facts.skipped, facts.unreadable) == ("not a regular file", False)

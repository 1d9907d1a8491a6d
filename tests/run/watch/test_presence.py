"""Which checkpoints are there, by paths of other machines, other systems, and other times."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.run.watch.presence import MAX_DIRECTORIES, CheckpointPresence
from supervisor_core.storage.filesystem import Filesystem
from supervisor_core.storage.local import LOCAL, filesystem_for
from tests.cases import each


class Listing:
    """A file system of which only `list_names` is asked; it counts."""

    def __init__(self, answer: Callable[[str], list[str]]) -> None:
        self.asked: list[str] = []
        self._answer = answer

    def list_names(self, directory: str) -> list[str]:
        self.asked.append(directory)
        return self._answer(directory)

    def of(self, path: str) -> tuple[Any, str]:
        return self, path


@pytest.mark.parametrize(
    "path",
    [
        "model.ckpt-5",
        "./model.ckpt-5",
        "/another/machine/run/model.ckpt-5",
        r"C:\runs\digits\model.ckpt-5",
        "gs://bucket/run/model.ckpt-5",
    ],
)
@pytest.mark.parametrize("file", ["model.ckpt-5.index", "model.ckpt-5", "model.ckpt-5-00000-of-00002"])
def test_found_by_its_name(tmp_path: Path, path: str, file: str) -> None:
    """Whatever directory was recorded, a checkpoint of either format in the run's directory is found."""
    (tmp_path / file).touch()
    assert CheckpointPresence().within(str(tmp_path))(path) is True


@each("file", ["model.ckpt-50.index", "model.ckpt-5.meta", "model.ckpt-5.data-00000-of-00001"])
def test_what_is_no_checkpoint_of_that_name(tmp_path: Path, file: str) -> None:
    """Another step's index, or what is left of a deleted checkpoint, is not taken for it."""
    (tmp_path / file).touch()
    assert CheckpointPresence().within(str(tmp_path))("model.ckpt-5") is False


def test_where_its_path_says(tmp_path: Path) -> None:
    """A checkpoint that lies in another directory of this machine is found there."""
    (tmp_path / "run").mkdir()
    (tmp_path / "model.ckpt-5.index").touch()
    present = CheckpointPresence(str(tmp_path)).within(str(tmp_path / "run"))
    assert present(str(tmp_path / "model.ckpt-5")) is True
    assert present(str(tmp_path / "model.ckpt-6")) is False


def test_of_a_run_that_was_renamed(tmp_path: Path) -> None:
    """What is in a directory below the run's is there under that directory's name, whatever the run's name was."""
    (tmp_path / "b" / "checkpoints" / "ckpt-5").mkdir(parents=True)
    present = CheckpointPresence(str(tmp_path)).within(str(tmp_path / "b"))
    assert present(str(tmp_path / "a" / "checkpoints" / "ckpt-5")) is True
    assert present(str(tmp_path / "a" / "checkpoints" / "ckpt-4")) is False


def test_nothing_is_known_of_files_outside_the_logdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of a directory beside it, whatever way the path takes there, nor of one that a link leads to: the former
    is not even looked at."""
    for name in ("logs/run", "logs2"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "logs2" / "secret").touch()
    (tmp_path / "logs" / "link").symlink_to(tmp_path / "logs2")
    monkeypatch.chdir(tmp_path / "logs")
    listing = Listing(lambda directory: [])
    presence = CheckpointPresence(str(tmp_path / "logs"), listing.of)
    present = presence.within(str(tmp_path / "logs" / "run"))
    for path in (
        "logs2/secret",
        "logs/../logs2/secret",
        "logs/link/secret",
        "logs/link/none",
        "logs/run/../../logs2/x",
    ):
        assert present(f"{tmp_path}/{path}") is None
    assert listing.asked == [str(tmp_path / "logs" / "run")]


def test_the_runs_own_directory_by_another_name() -> None:
    """Where a newer checkpoint of a container's path is in the run's directory, an older one that is not is gone."""
    present = CheckpointPresence("/logs", Listing(lambda directory: ["m-9.index"]).of).within("/logs/run")
    assert [present(f"/workspace/m-{step}") for step in (9, 8)] == [True, False]
    assert present("/elsewhere/m-8") is None


def test_a_directory_is_listed_once(tmp_path: Path) -> None:
    """However many checkpoints are asked for, a directory is listed once until `forget`."""
    listing = Listing(lambda directory: ["m-1.index"])
    presence = CheckpointPresence(None, listing.of)
    present = presence.within("/run")
    assert [present(f"m-{step}") for step in range(100)].count(True) == 1
    assert listing.asked == ["/run"]
    presence.clear()
    assert present("m-1") is True
    assert listing.asked == ["/run", "/run"]


def test_one_directory_spelled_in_many_ways_is_listed_once(tmp_path: Path) -> None:
    """A record costs a few bytes; what it has listed, and kept, must not grow with their number."""
    (tmp_path / "run").mkdir()
    (tmp_path / "big").mkdir()
    (tmp_path / "big" / "model.ckpt-5.index").touch()
    counting = Listing(LOCAL.list_names)
    present = CheckpointPresence(str(tmp_path), counting.of).within(str(tmp_path / "run"))
    assert all(present(f"{tmp_path}/{'./' * times}big/model.ckpt-5") for times in range(100))
    assert counting.asked == [str(tmp_path / "run"), str(tmp_path / "big")]


def test_a_run_has_few_directories_listed(tmp_path: Path) -> None:
    """Beyond a bound it is not known whether a checkpoint is there."""
    for number in range(MAX_DIRECTORIES + 1):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}" / "model.ckpt-5.index").touch()
    present = CheckpointPresence(str(tmp_path)).within(str(tmp_path / "run"))
    found = [present(f"{tmp_path}/d{number}/model.ckpt-5") for number in range(MAX_DIRECTORIES + 1)]
    assert found == [True] * MAX_DIRECTORIES + [None]


def test_a_directory_that_cannot_be_listed() -> None:
    """Where the directory cannot be listed nothing is claimed; where it is gone, so are its checkpoints."""

    def refused(directory: str) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied")

    assert CheckpointPresence(None, Listing(refused).of).within("/run")("m-1") is None
    assert CheckpointPresence().within("/no/such/run")("m-1") is False


def test_another_store_is_not_asked() -> None:
    """A path in another store than the run's causes no connection to that store."""
    listing = Listing(lambda directory: [])
    present = CheckpointPresence("/", listing.of).within("/run")
    assert present("gs://bucket/run/m-1") is None
    assert listing.asked == ["/run"]


def test_the_store_of_the_run_is_asked() -> None:
    """A run in a store has its checkpoints there, in its own directory or in another."""
    listing = Listing(lambda directory: ["m-1.index"] if directory == "gs://bucket/saved" else [])
    present = CheckpointPresence("gs://bucket", listing.of).within("gs://bucket/run")
    assert [present("gs://bucket/saved/m-1"), present("gs://bucket/saved/m-2"), present("m-1")] == [True, False, False]


def test_a_package_that_is_missing(tmp_path: Path) -> None:
    """Where the store's package is not installed, nothing is claimed."""

    def missing(path: str) -> tuple[Filesystem, str]:
        if path.startswith("gs://"):
            raise ImportError("gcsfs")
        return filesystem_for(path)

    assert CheckpointPresence(None, missing).within("gs://bucket/run")("m-1") is None
    assert missing(str(tmp_path))[0] is LOCAL


def test_a_listing_of_an_earlier_moment_proves_no_absence() -> None:
    """Of an object store: what is in it is there; what is not may have come since, or is not known."""
    known = {"gs://b/run": (["ckpt-1.index"], False), "gs://b/new": (["ckpt-1.index"], True)}

    def listed(directory: str) -> tuple[list[str], bool]:
        if directory not in known:
            raise OSError(errno.ENODATA, "not listed")
        return known[directory]

    presence = CheckpointPresence("gs://b", listed=listed)
    assert [presence.within("gs://b/run")(path) for path in ("ckpt-1", "ckpt-2")] == [True, None]
    assert [presence.within("gs://b/new")(path) for path in ("ckpt-1", "ckpt-2")] == [True, False]
    assert presence.within("gs://b/new")("gs://b/run/ckpt-2") is None
    assert presence.within("gs://b/other")("ckpt-1") is None

"""What can run code is read only from a checkpoint of this user's, of root's, or of the user whom files get that this
process creates there; and nobody else may write it."""

from __future__ import annotations

import ctypes
import os
import pickle
import re
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pasting import NAMES

from supervisor_core.base.errors import UnreadableCheckpointError
from supervisor_core.checkpoint import contents
from supervisor_core.checkpoint import manifest as manifests
from supervisor_core.checkpoint.manifest import Manifest
from supervisor_core.checkpoint.ownership import distrust
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.storage.local import LOCAL
from tests.cases import each

FILE = "inner/lightning.ckpt"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away: run it as root")


@pytest.fixture(scope="session")
def forging(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """The module that forges."""
    return module_at("hostile/forging.py")


@pytest.fixture
def place(tmp_path: Path, forging: ModuleType) -> Iterator[Path]:
    """A directory that every user reaches."""
    with forging.shared(tmp_path) as found:
        yield found


def made(logdir: Path, forging: ModuleType) -> SealedFiles:
    """A checkpoint of root's with code in it, which nobody else may write."""
    checkpoint = logdir / "checkpoints" / "ckpt-1"
    (checkpoint / "inner").mkdir(parents=True)
    with zipfile.ZipFile(checkpoint / FILE, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(forging.Code(str(logdir / "marker"))))
    manifests.seal(str(checkpoint), Manifest(format="state-tree", step=1), LOCAL)
    for path in (logdir, *logdir.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return SealedFiles(str(checkpoint), manifests.read_manifest(str(checkpoint)))


ACCESS_LIST = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHi", *entry)
    for entry in ((1, 7, -1), (2, 7, 65534), (4, 5, -1), (16, 7, -1), (32, 5, -1))  # owner, nobody, group, mask, others
)
PLACES = ("", "checkpoints", "checkpoints/ckpt-1", "checkpoints/ckpt-1/inner", f"checkpoints/ckpt-1/{FILE}")


@pytest.mark.parametrize("part", PLACES)
@pytest.mark.parametrize("harm", ["owner", "others", "group", "list"])
def test_whoever_may_write_it_is_not_trusted(place: Path, forging: ModuleType, part: str, harm: str) -> None:
    """Be it the file, a directory above it or the logdir. The error names the place and whose it is, and both ways out:
    the option, and a command, after which it is read."""
    files = made(place / "run", forging)
    path = place / "run" / part
    expected = f"{path} belongs to nobody (user 65534)"
    if harm == "owner":
        os.chown(path, forging.NOBODY, forging.NOBODY)
    elif harm == "list":
        try:
            os.setxattr(path, "system.posix_acl_access", ACCESS_LIST)
        except OSError as error:
            pytest.skip(f"there are no access control lists here: {error}")
    else:
        os.chown(path, 0, forging.NOBODY)
        path.chmod(path.stat().st_mode | (0o002 if harm == "others" else 0o020))
    if harm != "owner":
        expected = f"others may write {path}, whose mode is {path.stat().st_mode & 0o7777:04o}"
    with pytest.raises(UnreadableCheckpointError) as caught:
        contents.vet(files, FILE)
    said = str(caught.value)
    assert expected in said and "names posix.system" in said and "Options(trust_pickled=True)" in said, said
    assert contents.vet(files, FILE, trust=True) is None
    subprocess.run(said.rpartition("make it your own: ")[2], shell=True, check=True)
    assert contents.vet(files, FILE) is None


def test_nobody_else_may_write_it(place: Path, forging: ModuleType) -> None:
    """Then it is read: by root, and by a user whose it is not."""
    files = made(place / "run", forging)
    assert contents.vet(files, FILE) is None and contents.is_own(files)
    forging.as_nobody(lambda: _require(contents.vet(files, FILE) is None))


def test_a_file_system_that_makes_root_another_user(place: Path, forging: ModuleType) -> None:
    """What belongs to the user to whom a new file belongs there is this process's own, as on an export that squashes
    root; what belongs to a third one is not. No file is left."""
    files = made(place / "run", forging)
    for path in (place / "run", *(place / "run").rglob("*")):
        os.chown(path, forging.NOBODY, forging.NOBODY)
    assert distrust(files, str(place / "run")) is not None
    before = sorted((place / "run").rglob("*"))

    def look(owner: int) -> None:
        ctypes.CDLL(None).setfsuid(owner)
        assert os.geteuid() == 0
        _require((distrust(files, str(place / "run")) is None) == (owner == forging.NOBODY))

    for owner in (forging.NOBODY, 65533):
        _in_a_child(lambda owner=owner: look(owner))  # type: ignore[misc]
    assert sorted((place / "run").rglob("*")) == before


@each("name", NAMES)
def test_the_command_is_of_that_place(tmp_path: Path, forging: ModuleType, name: str) -> None:
    """Pasted into a shell it changes that directory, whatever that is called, and does nothing else."""
    files = made(tmp_path / name.replace("/", "_"), forging)
    os.chown(files.directory, forging.NOBODY, forging.NOBODY)
    found = distrust(files, str(tmp_path / name.replace("/", "_")))
    assert found is not None and re.match(r"chown -hR 0 -- ", found.command)
    subprocess.run(["bash", "-c", found.command], check=True, cwd=tmp_path)
    assert os.stat(files.directory).st_uid == 0
    assert os.listdir(tmp_path) == [name.replace("/", "_")]


def test_a_file_that_was_replaced_is_another(tmp_path: Path) -> None:
    """What was found out about a path holds for a file that is open only while the one leads to the other."""
    (tmp_path / "weights").write_bytes(b"w")
    files = SealedFiles.of(str(tmp_path))
    with files.open("weights") as file:
        assert file.is_at_its_path()
        os.replace(tmp_path / "weights", tmp_path / "moved")
        assert not file.is_at_its_path()
        (tmp_path / "weights").write_bytes(b"w")
        assert not file.is_at_its_path()


def _require(is_right: bool) -> None:
    assert is_right


def _in_a_child(body: Callable[[], None]) -> None:
    pid = os.fork()
    if not pid:
        status = 1
        try:
            body()
            status = 0
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0

"""Checkpoints that another user has put into a logdir: whole by their manifests, and made to harm whoever reads them.

The processes here fork off the test's and become the user nobody. Nothing of them is imported from the code under test
but the manifest's format.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from supervisor_core.base import checksum
from supervisor_core.checkpoint import manifest as manifests

NOBODY = 65534
HUGE = 600 << 20
"""Bytes of a file that is a hole: more than is read of one."""
SECRET = b"correct horse battery staple " * 178_909
"""What only root may read. No process id is as large as its length."""
TRACES = tuple(
    trace.encode()
    for trace in (
        "horse",
        f"{len(SECRET):,}",
        str(len(SECRET)),
        *(f"{checksum.value(part):08x}" for part in (SECRET, SECRET[:8], SECRET[:4])),
        SECRET[-8:].hex(" "),
        *(str(int.from_bytes(SECRET[:8], order)) for order in ("little", "big")),  # type: ignore[arg-type]
    )
)
"""What would show that somebody read it: words, checksums, sizes, numbers."""


def as_nobody(body: Callable[[], object]) -> None:
    """Run ``body`` in a process of the user nobody."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.umask(0o022)
            body()
            status = 0
        except BaseException as error:
            os.write(2, f"nobody: {type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


class Code:
    """Runs a command when it is unpickled.

    Args:
        marker: the file that the command makes.
    """

    def __init__(self, marker: str) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._marker}",)


@dataclass
class Forger:
    """Makes checkpoints in the place of another user's."""

    directory: Path
    """Where the checkpoints are; nobody may write there."""
    good: Path
    """One of the training's own, which is copied."""
    home: Path
    """A directory for the secret, and for the marker that code has run."""
    prefix: str = "ckpt-"
    made: dict[str, Path] = field(default_factory=dict)
    """What was made, by its kind."""

    @property
    def marker(self) -> Path:
        """A file that is there when code has run."""
        return self.home / "code-has-run"

    @property
    def secret(self) -> Path:
        """A file of root's."""
        return self.home / "secret"

    def forge(self, kind: str, alter: Callable[[Path, Forger], Mapping[str, Any] | None]) -> None:
        """Copy the good one under a higher step, alter it, and seal it again: in a process of nobody's.

        Args:
            kind: what it is called. alter: alters the copy; returns fields of the manifest, or ``{"sealed": False}``
            for the good one's as it is, or ``{"hidden": name}`` for one that does not list this file.
        """
        step = 900_000 + len(self.made)
        path = self.directory / f"{self.prefix}{step}"
        self.made[kind] = path

        def body() -> None:
            shutil.copytree(self.good, path)
            (path / manifests.NAME).unlink(missing_ok=True)
            fields = {"step": step, **(alter(path, self) or {})}
            if fields.pop("sealed", True) and not path.is_symlink():
                self.seal(path, fields)

        as_nobody(body)

    def seal(self, path: Path, fields: Mapping[str, Any]) -> None:
        """Write the manifest of a directory as it is; a file that is none has the size and checksum of the good
        one's."""
        before = json.loads((self.good / manifests.NAME).read_text())
        listed = {name: (size, crc) for name, size, crc in before["files"]}
        fields = dict(fields)
        hidden = fields.pop("hidden", None)
        files = []
        for parent, _, names in os.walk(path):
            for name in sorted(names):
                file = Path(parent, name)
                place = str(file.relative_to(path))
                if place == hidden:
                    continue
                is_file = stat.S_ISREG(file.lstat().st_mode)
                files.append([place, *(_sizes(file) if is_file else listed.get(place, (len(SECRET), 1)))])
        number = int(path.name.rpartition("-")[2]) - 900_000
        content = {**before, "attempt": 10**9 * (number + 1), "number": number, "files": sorted(files), **fields}
        del content["seal"]
        content["seal"] = checksum.value(_canonical(content))
        (path / manifests.NAME).write_bytes(_canonical(content) + b"\n")

    def check(self, outputs: Iterator[tuple[str, bytes]]) -> None:
        """Check that no code ran, and that nothing of the secret is in what a training has written."""
        assert not self.marker.exists(), "code of the checkpoint ran"
        for name, data in outputs:
            for trace in TRACES:
                # A number within a longer one is none, nor are the digits behind the point of a time.
                edge = rb"(?![0-9])" if trace.replace(b",", b"").isdigit() else b""
                found = re.search((rb"(?<![0-9.])" if edge else b"") + re.escape(trace) + edge, data)
                assert found is None, f"{trace!r} is in {name}"


@contextmanager
def shared(tmp_path: Path) -> Iterator[Path]:
    """Yield a directory that every user reaches: those of a test are its user's."""
    place = Path("/tmp") / f"forged-{os.getpid()}-{tmp_path.name}"
    _remove(place)
    place.mkdir()
    place.chmod(0o755)
    try:
        yield place
    finally:
        _remove(place)


def _remove(place: Path) -> None:
    """Delete a directory that may be nested deeper than the stack of `shutil.rmtree`."""
    subprocess.run(["rm", "-rf", "--", str(place)], check=False)


def outputs(logdir: Path, *texts: str) -> Iterator[tuple[str, bytes]]:
    """Yield what everybody may read after a training: the logdir's files but the arrays, and what it printed."""
    for parent, _, names in os.walk(logdir):
        for name in names:
            path = Path(parent, name)
            if stat.S_ISREG(path.lstat().st_mode) and path.stat().st_size < 8 << 20:
                yield str(path), path.read_bytes()
    for text in texts:
        yield "the output", text.encode()


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode()


def _sizes(path: Path) -> tuple[int, int]:
    crc = 0
    with open(path, "rb") as file:
        while data := file.read(16 << 20):
            crc = checksum.extend(crc, data)
    return path.stat().st_size, crc


# What any checkpoint of a state tree can be altered to.


def structure(path: Path) -> Any:
    """The content of ``tree.json``."""
    return json.loads((path / "tree.json").read_text())


def replace_by_fifo(name: str) -> Callable[[Path, Forger], None]:
    """A FIFO, for whose other end a reader waits."""

    def alter(path: Path, forger: Forger) -> None:
        (path / name).unlink()
        os.mkfifo(path / name)

    return alter


def replace_by_link(name: str) -> Callable[[Path, Forger], None]:
    """A link to a file that the reader may read, and the forger may not."""

    def alter(path: Path, forger: Forger) -> None:
        (path / name).unlink()
        (path / name).symlink_to(forger.secret)

    return alter


def write(name: str, data: bytes | Callable[[Forger], bytes]) -> Callable[[Path, Forger], None]:
    """A file of the same name with another content."""

    def alter(path: Path, forger: Forger) -> None:
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(data if isinstance(data, bytes) else data(forger))

    return alter


def hole(name: str, head: bytes = b"") -> Callable[[Path, Forger], None]:
    """A file of 600 MB that takes nothing on the disk."""

    def alter(path: Path, forger: Forger) -> None:
        with open(path / name, "wb") as file:
            file.write(head)
            file.truncate(HUGE)

    return alter


def fields(**changed: Any) -> Callable[[Path, Forger], Mapping[str, Any]]:
    """Other fields in the manifest."""
    return lambda path, forger: changed


def linked_directory(path: Path, forger: Forger) -> None:
    """A link in place of the checkpoint's directory."""
    shutil.rmtree(path)
    path.symlink_to(forger.good)


def unlisted(path: Path, forger: Forger) -> Mapping[str, Any]:
    """A manifest without files."""
    return {"files": []}


def _only_tree(path: Path, forger: Forger) -> Mapping[str, Any]:
    return {"files": [["tree.json", *_sizes(path / "tree.json")]]}


def _both(
    alter: Callable[[Path, Forger], Any], then: Callable[[Path, Forger], Mapping[str, Any]]
) -> Callable[[Path, Forger], Mapping[str, Any]]:
    def both(path: Path, forger: Forger) -> Mapping[str, Any]:
        alter(path, forger)
        return then(path, forger)

    return both


def shards_with_code(path: Path, forger: Forger) -> None:
    """Arrays of a kind that every loop reads, whose metadata run code when they are unpickled."""
    tree = structure(path)
    tree["dict"].append(["extra", {"array": ["shards", "x"]}])
    (path / "tree.json").write_text(json.dumps(tree))
    (path / "shards").mkdir()
    (path / "shards" / ".metadata").write_bytes(pickle.dumps(Code(str(forger.marker))))


def safetensors(arrays: Mapping[str, tuple[str, list[int], int]], body: bytes = b"") -> bytes:
    """A file of safetensors: name -> type, shape, bytes."""
    header, position = {}, 0
    for name, (dtype, shape, size) in arrays.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def deep(levels: int = 100_000) -> bytes:
    """Lists in lists."""
    return b"[" * levels + b"]" * levels


def state_trees(arrays: str | None) -> dict[str, tuple[Callable[[Path, Forger], Any], str]]:
    """Return how a checkpoint of a state tree is forged, by kind, and what is said of it.

    Args:
        arrays: the file of arrays that it has; None for none.
    """
    found: dict[str, tuple[Callable[[Path, Forger], Any], str]] = {
        "FIFO tree": (replace_by_fifo("tree.json"), "it is a FIFO"),
        "FIFO that is not listed": (
            _both(replace_by_fifo("tree.json"), unlisted),
            "tree.json: it is not in the manifest",
        ),
        "link that is not listed": (
            _both(replace_by_link("tree.json"), unlisted),
            "tree.json: it is not in the manifest",
        ),
        "FIFO manifest": (_fifo_manifest, "it is a FIFO"),
        "linked tree": (replace_by_link("tree.json"), "it is a symbolic link"),
        "linked manifest": (_linked_manifest, "it is a symbolic link"),
        "linked directory": (linked_directory, "is a symbolic link"),
        "unlisted": (unlisted, "tree.json: it is not in the manifest"),
        "deep": (write("tree.json", deep()), "nested too deep"),
        "deep tree": (write("tree.json", b'{"tuple":[' * 3000 + b"]}" * 3000), "nested"),
        "hole": (hole("tree.json"), "holes|only 0 are on disk|at most"),
        "many values": (write("tree.json", b"[" + b"[]," * 3_000_000 + b"[]]"), "more than 2,000,000 values"),
        "no tree": (write("tree.json", b'{"surprise": []}'), "it holds no state tree"),
        "another tree": (write("tree.json", b'{"dict": []}'), "it holds no state tree of a training"),
        "odd ranks": (_odd_ranks, "it holds no state tree of a training"),
        "shards": (shards_with_code, "shards"),
        "foreign format": (fields(format="orbax"), "has the format 'orbax'"),
        "step": (fields(step=10**30), "step is 1000"),
        "name": (fields(step=7), "its manifest is of step 7"),
        "attempt": (fields(attempt=10**15 - 1), "leaves no number"),
        "files": (fields(files=[["../secret", 1, 1]]), "is no path in the checkpoint"),
        "not a number": (fields(saved_at=float("nan")), "is not JSON"),
    }
    if arrays is not None:
        lies = safetensors({"objects/a": ("F32", [1 << 40], 8)}, bytes(8))
        found |= {
            "FIFO arrays that are not listed": (
                _both(replace_by_fifo(arrays), _only_tree),
                "in the manifest|nothing in it",
            ),
            "linked arrays that are not listed": (
                _both(replace_by_link(arrays), _only_tree),
                "in the manifest|nothing in it",
            ),
            "FIFO arrays": (replace_by_fifo(arrays), "it is a FIFO"),
            "linked arrays": (replace_by_link(arrays), "it is a symbolic link"),
            "hole of arrays": (hole(arrays, _header_of_hole()), "are on disk"),
            "lies": (write(arrays, lies), "its header is none of safetensors"),
            "other arrays": (
                write(arrays, safetensors({"x": ("F32", [2], 8)}, bytes(8))),
                "other arrays than the tree",
            ),
            "cut arrays": (write(arrays, b"\0" * 5), "its header is none of safetensors"),
        }
    return found


def _header_of_hole() -> bytes:
    text = json.dumps({"objects/a": {"dtype": "U8", "shape": [HUGE - 200], "data_offsets": [0, HUGE - 200]}}).ljust(192)
    return (192).to_bytes(8, "little") + text.encode()


def _odd_ranks(path: Path, forger: Forger) -> None:
    tree = structure(path)
    tree["dict"].append(["ranks", [5]])
    (path / "tree.json").write_text(json.dumps(tree))


def _fifo_manifest(path: Path, forger: Forger) -> Mapping[str, Any]:
    os.mkfifo(path / manifests.NAME)
    return {"sealed": False}


def _linked_manifest(path: Path, forger: Forger) -> Mapping[str, Any]:
    (path / manifests.NAME).symlink_to(forger.secret)
    return {"sealed": False}

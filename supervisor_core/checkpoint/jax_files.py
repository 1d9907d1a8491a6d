"""The files of JAX's arrays in a checkpoint, without JAX: Orbax's metadata, and the pieces of arrays that are split.

``orbax/_METADATA`` has the names of the arrays (`read_metadata`). Orbax joins a name and its folder to a path, where it
does not keep its arrays in a database (OCDBT): so names lead it to any file. What `save` writes is a database, in which
a name is a key; nothing else is read. Older versions of Orbax take for a database what has the file `DATABASE`; newer
ones do that where the metadata do not say it.

``sharded/2.safetensors`` has the pieces that process 2 has written. In it each is bytes under a name that says all of
it (`files_of`):

    objects/params/kernel#8,0:4,16:16,16:float32    path in the tree # first index : shape : shape of the array : dtype
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from supervisor_core.base.errors import DamagedCheckpointError
from supervisor_core.checkpoint import safetensors_file
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.checkpoint.tree_file import parse_json

METADATA, DATABASE = "_METADATA", "manifest.ocdbt"
MAX_BYTES = 256 << 20
MAX_VALUES = 10_000_000

_MAX_VALUES_EACH = 1_000
"""Of an array as deep as a tree may be."""
_DICT_KEY = 2
_KIND = "np.ndarray"

FOLDER = "sharded"

_NUMBERS = r"\d{1,15}(?:,\d{1,15}){0,63}"
_NAME = re.compile(
    rf"(?P<path>.+)#(?P<first>{_NUMBERS}):(?P<shape>{_NUMBERS}):(?P<whole>{_NUMBERS}):"
    r"(?P<dtype>bool|(?:u?int|b?float|complex)\d{1,3}(?:_e\dm\d[a-z0-9]{0,8})?)",
    re.DOTALL,
)
_OF_A_RANK = re.compile(r"ranks/\d+/")
_WIDEST = 16


def read_metadata(files: SealedFiles, folder: str, names: Collection[str]) -> bytes:
    """Return the content of the metadata; Orbax can be given it.

    Args:
        files: the checkpoint's.
        folder: Orbax's.
        names: those of the arrays in the tree.

    Raises:
        DamagedCheckpointError: if it names other arrays, or what Orbax would look for elsewhere.
        UnreadableCheckpointError: if the file system refuses it.
    """
    has_database = f"{folder}/{DATABASE}" in files.below(folder)
    name = f"{folder}/{METADATA}"
    data = files.read(name, MAX_BYTES)
    try:
        content = parse_json(data, most=min(MAX_VALUES, (len(names) + 1) * _MAX_VALUES_EACH))
        found = _names(content, has_database)
    except (AttributeError, KeyError, TypeError) as error:
        raise DamagedCheckpointError(f"{files.path(name)}: it is no metadata of Orbax's") from error
    except ValueError as error:
        raise DamagedCheckpointError(f"{files.path(name)}: {error}") from error
    if len(found) != len(names) or set(found) != set(names):
        raise DamagedCheckpointError(f"{files.path(name)}: it has other arrays than the tree")
    return bytes(data)


def require_name(keys: Collection[str]) -> None:
    """Do nothing for an array's name that is one in Orbax's folder, too.

    Raises:
        ValueError: if it could lead elsewhere.
    """
    name = ".".join(keys)  # as Orbax joins them
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"an array's name, {name!r:.80}, leads out of its folder")


def _names(content: Any, has_database: bool) -> list[str]:
    if not has_database or content.get("use_ocdbt") not in (True, None) or "value_metadata_tree" in content:
        raise ValueError("its arrays are in no database (OCDBT), or of other types than arrays")
    found = []
    for item in content["tree_metadata"].values():
        keys = [key["key"] for key in item["key_metadata"]]
        require_name(keys)
        kind = item["value_metadata"]
        if kind["value_type"] != _KIND or kind["skip_deserialize"] is not False:
            raise ValueError(f"it has something of the type {kind['value_type']!r:.40}, which is no array")
        if any(key["key_type"] != _DICT_KEY for key in item["key_metadata"]):
            raise ValueError("it has arrays in a list")
        found.append("/".join(keys))
    return found


class Piece(NamedTuple):
    """A piece of an array."""

    path: str
    """The array's place in the tree."""
    first: tuple[int, ...]
    """Its first index in each dimension."""
    shape: tuple[int, ...]
    whole: tuple[int, ...]
    """The shape of the array."""
    dtype: str
    """As ``bfloat16``."""

    @property
    def name(self) -> str:
        """Its name in a file."""
        first, shape, whole = (",".join(map(str, numbers)) for numbers in (self.first, self.shape, self.whole))
        return f"{self.path}#{first}:{shape}:{whole}:{self.dtype}"


def piece_of(name: str) -> Piece:
    """Return what a name in a file says.

    Raises:
        ValueError: if it is none.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError("a piece has a name that is none")
    first, shape, whole = (tuple(map(int, found[part].split(","))) for part in ("first", "shape", "whole"))
    if not len(first) == len(shape) == len(whole):
        raise ValueError("a piece has other dimensions than its array")
    if any(begin + length > end for begin, length, end in zip(first, shape, whole, strict=True)):
        raise ValueError("a piece lies outside of its array")
    return Piece(found["path"], first, shape, whole, found["dtype"])


def shared_path(name: str) -> str:
    """Return the path of an array, without the rank in whose part of the tree it is."""
    return _OF_A_RANK.sub("", name, count=1) if _OF_A_RANK.match(name) else name


def files_of(files: SealedFiles, names: Collection[str]) -> Mapping[str, list[tuple[Piece, str]]]:
    """Return the pieces of arrays, each with its file, by the arrays' paths; reads no content.

    Args:
        files: the checkpoint's.
        names: the arrays' names in the tree.

    Raises:
        DamagedCheckpointError: if a file is none of pieces, or the pieces are not all of an array.
        UnreadableCheckpointError: if the file system refuses a file.
    """
    found: dict[str, list[tuple[Piece, str]]] = {}
    seen: set[tuple[str, tuple[int, ...]]] = set()
    for file in files.below(FOLDER):
        for piece in _pieces(files, file):
            if (piece.path, piece.first) in seen:
                raise DamagedCheckpointError(f"{files.path(file)}: a piece of {piece.path!r:.80} is there twice")
            seen.add((piece.path, piece.first))
            found.setdefault(piece.path, []).append((piece, file))
    if missing := {shared_path(name) for name in names} - found.keys():
        raise DamagedCheckpointError(f"{files.path(FOLDER)}: {min(missing)!r:.80} is not in it")
    for path, pieces in found.items():
        alike = {(piece.whole, piece.dtype) for piece, _ in pieces}
        covered = sum(math.prod(piece.shape) for piece, _ in pieces)
        if len(alike) > 1 or covered != math.prod(pieces[0][0].whole):
            raise DamagedCheckpointError(f"{files.path(FOLDER)}: the pieces of {path!r:.80} are not all of it")
    return found


def _pieces(files: SealedFiles, file: str) -> Iterator[Piece]:
    for array in safetensors_file.arrays(files, file):
        try:
            piece = piece_of(array.name)
        except ValueError as error:
            raise DamagedCheckpointError(f"{files.path(file)}: {error}") from error
        count = math.prod(piece.shape)
        if array.dtype != "U8" or not count or array.bytes % count or not 1 <= array.bytes // count <= _WIDEST:
            raise DamagedCheckpointError(f"{files.path(file)}: a piece has not the bytes of its shape")
        yield piece

"""``tree.json``: the structure of a state tree in a checkpoint's directory, without its arrays.

One JSON object in ASCII. None, booleans, finite numbers, texts and lists are JSON's own. Everything else is an object
with one key: ``{"dict": [[key, value], ...]}``, ``{"tuple": [...]}``, ``{"bytes": base64}``, ``{"float": "nan"}``,
``{"array": [kind, name]}``. An array's name is its place in the tree: ``objects/model/0.weight``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from supervisor_core.base.errors import CheckpointError, DamagedCheckpointError
from supervisor_core.base.json_records import no_number
from supervisor_core.checkpoint.pickles import Keys
from supervisor_core.checkpoint.sealed_files import SealedFiles

STRUCTURE = "tree.json"
MAX_DEPTH = 200
MAX_BYTES = 64 << 20
MAX_VALUES = 2_000_000
"""Of brackets and commas: each value in JSON takes some 100 bytes of memory."""

_OUTER_LEVELS = 10
"""Containers around the program's own states."""


class Reference(NamedTuple):
    """An array in a tree that is in another file."""

    kind: str
    name: str


class TreeFile:
    """A tree's structure, decoded.

    Raises:
        ValueError: if it is no structure; says why.
    """

    def __init__(self, data: bytes | bytearray) -> None:
        self._structure = parse_json(data)
        self.names: dict[str, set[str]] = {}
        """The names of its arrays, by kind."""
        self.tree = self.build(self._note)
        """The tree, with a `Reference` for each array."""

    def build(self, array: Callable[[str, str], Any]) -> Any:
        """Return the tree with what ``array`` returns for each kind and name."""
        try:
            return _decode(self._structure, array, 0)
        except (TypeError, RecursionError) as error:
            raise ValueError("it is nested too deep, or a part of it is of another kind") from error

    def _note(self, kind: str, name: str) -> Reference:
        if type(kind) is not str or type(name) is not str:
            raise ValueError("an array has no name")
        names = self.names.setdefault(kind, set())
        if name in names:
            raise ValueError(f"two arrays have the name {name!r:.80}")
        names.add(name)
        return Reference(kind, name)


def read_structure(files: SealedFiles) -> TreeFile:
    """Read the structure of the tree in a checkpoint.

    Raises:
        DamagedCheckpointError: if it is no such structure; says why.
        UnreadableCheckpointError: if the file system refuses it.
    """
    data = files.read(STRUCTURE, MAX_BYTES)
    try:
        return TreeFile(data)
    except ValueError as error:
        raise DamagedCheckpointError(f"{files.path(STRUCTURE)}: it holds no state tree: {error}") from error


def encode(structure: Any) -> bytes:
    """Return the bytes of a structure.

    Raises:
        CheckpointError: if it is larger than what is read.
    """
    data = json.dumps(structure, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(data) > MAX_BYTES or _values_in(data) > MAX_VALUES:
        raise CheckpointError(
            f"The state has {_values_in(data):,} values besides its arrays, in {len(data):,} bytes; a checkpoint holds "
            f"at most {MAX_VALUES:,}, in {MAX_BYTES:,}. Return long lists of numbers as arrays from state_dict()."
        )
    return data


def parse_json(data: bytes | bytearray, *, most: int = MAX_VALUES, is_strict: bool = True) -> Any:
    """Return the value in a file's JSON.

    Args:
        most: the number of values that it may have.
        is_strict: whether to refuse NaN and infinities, which other programs write.

    Raises:
        ValueError: if it is none, nested too deep, or has more values.
    """
    if _values_in(data) > most:
        raise ValueError(f"it has more than {most:,} values")
    try:
        return json.loads(data, parse_constant=no_number if is_strict else None)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _values_in(data: bytes | bytearray) -> int:
    return sum(map(data.count, (b",", b"[", b"{")))


def require_training(files: SealedFiles, tree: Any) -> None:
    """Do nothing for the tree of a training: at its top there are the states of its objects and its random states by
    name, and in ``ranks`` those of other ranks.

    Raises:
        DamagedCheckpointError: for any other tree.
    """
    ranks = tree.get("ranks", []) if isinstance(tree, dict) else None
    parts = [tree, *ranks] if isinstance(ranks, list) else [None]
    if not all(isinstance(part, dict) and _has_states(part) for part in parts):
        raise DamagedCheckpointError(f"{files.path(STRUCTURE)}: it holds no state tree of a training")


def _has_states(part: dict[str, Any]) -> bool:
    states = (part.get("objects"), part.get("random"))
    are_named = all(isinstance(state, dict) and all(isinstance(name, str) for name in state) for state in states)
    return are_named and isinstance(part.get("position"), str | None)


def _key(value: Any) -> Any:
    """Return a key of a dict: a text, a number, or a tuple of them."""
    if isinstance(value, dict) and isinstance(items := value.get("tuple"), list) and len(value) == 1:
        return tuple(map(_key, items))
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise ValueError("a key is neither a text nor a number")


def _dict(content: Any, array: Callable[[str, str], Any], depth: int) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    keys = Keys()
    for key, item in content:
        decoded = _key(key)
        keys.add(found, decoded)
        found[decoded] = _decode(item, array, depth)
    return found


def _decode(value: Any, array: Callable[[str, str], Any], depth: int) -> Any:
    if depth > MAX_DEPTH + _OUTER_LEVELS:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    depth += 1
    if isinstance(value, list):
        return [_decode(item, array, depth) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError("a value has not one tag")
    ((tag, content),) = value.items()
    if tag == "dict":
        return _dict(content, array, depth)
    if tag == "tuple":
        return tuple(_decode(item, array, depth) for item in content)
    if tag == "array":
        return array(*content)
    if tag == "bytes":
        return base64.b64decode(content, validate=True)
    if tag == "float" and type(content) is str:
        return float(content)
    raise ValueError(f"the tag {tag!r:.40} is not known")

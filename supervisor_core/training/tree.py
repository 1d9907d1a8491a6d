"""State trees: what ``state_dict()`` returns, copied to host memory, written to files and read again.

A tree is made of dicts, lists, tuples and leaves: None, booleans, numbers, texts, bytes and arrays. In a checkpoint's
directory it becomes

    tree.json               the structure; one JSON object with the keys below
    numpy.safetensors       the arrays of one kind by name, in the file or directory of that kind

In ``tree.json`` None, booleans, finite numbers, texts and lists are JSON's own. Everything else is an object with one
key: ``{"dict": [[key, value], ...]}``, ``{"tuple": [...]}``, ``{"bytes": base64}``, ``{"float": "nan"}``,
``{"array": [kind, name]}``. An array's name is its place in the tree: ``objects/model/0.weight``.
"""

from __future__ import annotations

import base64
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from supervisor_core.errors import CheckpointError, DamagedCheckpointError, SaveFailedError
from supervisor_core.training.nan_check import has_nan

STRUCTURE = "tree.json"
MAX_DEPTH = 200
NO_SAFETENSORS = "A checkpoint with arrays needs safetensors, which is not installed: pip install safetensors"


class ArrayKind(Protocol):
    """The arrays of one framework."""

    name: str
    """Its name in ``tree.json``: lower-case letters."""
    file: str
    """Name of its file, or directory, in a checkpoint."""

    def matches(self, value: Any) -> bool:
        """Return whether a leaf is an array of this kind. Must not import the framework."""

    def check(self, value: Any) -> None:
        """Do nothing for an array that can be saved. Neither copies it nor waits for a device.

        Raises:
            TypeError: for any other; says what it is.
        """

    def copy(self, value: Any) -> Any:
        """Return a copy in host memory, which later changes of the value do not reach.

        Raises:
            TypeError: see `check`.
        """

    def save(self, arrays: Mapping[str, Any], path: str) -> str | None:
        """Write copies, by name, into a new file or directory; return the name of one that has NaN, if there is one."""

    def load(self, path: str) -> Mapping[str, Any]:
        """Read them."""


class NumpyArrays:
    """``numpy.ndarray`` and its scalars."""

    name = "numpy"
    file = "numpy.safetensors"

    def matches(self, value: Any) -> bool:
        """See `ArrayKind.matches`."""
        numpy = sys.modules.get("numpy")
        return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))

    def check(self, value: Any) -> None:
        """See `ArrayKind.check`."""
        dtype = value.dtype
        if dtype.hasobject or dtype.kind in "USVmM" or not _is_known(dtype):
            raise TypeError(f"an array of {dtype}, which a checkpoint cannot hold")

    def copy(self, value: Any) -> Any:
        """See `ArrayKind.copy`."""
        import numpy as np

        self.check(value)
        return np.array(value, copy=True, order="C")

    def save(self, arrays: Mapping[str, Any], path: str) -> str | None:
        """See `ArrayKind.save`."""
        from safetensors.numpy import save_file

        save_file(dict(arrays), path)
        return array_with_nan(arrays)

    def load(self, path: str) -> Mapping[str, Any]:
        """See `ArrayKind.load`."""
        from safetensors.numpy import load_file

        loaded: Mapping[str, Any] = load_file(path)
        return loaded


def array_with_nan(arrays: Mapping[str, Any]) -> str | None:
    """Return the name of the first of these ``numpy`` arrays that has NaN; None where none has."""
    import numpy as np

    memory = {name: np.asarray(array).reshape(-1).view(np.uint8) for name, array in arrays.items()}
    return next((name for name, bits in memory.items() if has_nan(arrays[name].dtype.name, bits)), None)


@cache
def _is_known(dtype: Any) -> bool:
    import numpy as np

    return is_known("numpy", np.empty(0, dtype))


def is_known(framework: str, array: Any) -> bool:
    """Return whether safetensors can hold arrays like one.

    Args:
        framework: the name of safetensors' module for it, as ``numpy``.
        array: an array; best without numbers.

    Raises:
        ImportError: if safetensors is not installed.
    """
    try:
        save = import_module(f"safetensors.{framework}").save
    except ModuleNotFoundError as error:
        raise ImportError(NO_SAFETENSORS) from error
    try:
        save({"": array})
    except Exception:  # KeyError, or one of its own
        return False
    return True


class Copied(NamedTuple):
    """A leaf's copy in host memory."""

    kind: str
    value: Any


def copy_tree(tree: Any, kinds: tuple[ArrayKind, ...], path: str = "state") -> Any:
    """Return a tree with copies of its containers, and a `Copied` for each array, unless it is one already.

    Args:
        tree: the tree.
        kinds: the kinds of arrays in it.
        path: its name, for errors.

    Raises:
        CheckpointError: for a value that cannot be saved; names its place and its type.
    """
    return _walked(tree, kinds, path, lambda kind, value: Copied(kind.name, kind.copy(value)), 0)


def check_tree(tree: Any, kinds: tuple[ArrayKind, ...], path: str = "state") -> None:
    """Raise what `copy_tree` would; copies no array, and waits for no device."""
    _walked(tree, kinds, path, lambda kind, value: kind.check(value), 0)


def _walked(
    tree: Any, kinds: tuple[ArrayKind, ...], path: str, array: Callable[[ArrayKind, Any], object], depth: int
) -> Any:
    if tree is None or type(tree) in (bool, int, float, str, bytes, Copied):
        return tree
    if depth > MAX_DEPTH:
        raise CheckpointError(f"{path} is nested deeper than {MAX_DEPTH} levels: it may contain itself.")
    if isinstance(tree, Mapping):
        return {
            _key(key, path): _walked(item, kinds, f"{path}[{key!r}]", array, depth + 1) for key, item in tree.items()
        }
    if isinstance(tree, (list, tuple)):
        items = [_walked(item, kinds, f"{path}[{number}]", array, depth + 1) for number, item in enumerate(tree)]
        return tuple(items) if isinstance(tree, tuple) else items
    if isinstance(tree, bytes):
        return bytes(tree)
    for base in (int, float, str):  # an enum, a scalar of numpy's
        if isinstance(tree, base):
            return base(tree)
    for kind in kinds:
        if kind.matches(tree):
            try:
                return array(kind, tree)
            except TypeError as error:
                raise CheckpointError(f"{path} is {error}; expected numbers.") from error
    raise CheckpointError(
        f"{path} is a {type(tree).__module__}.{type(tree).__qualname__}, which cannot be saved; expected arrays, "
        "numbers, texts, None, and dicts, lists and tuples of them. Return those from state_dict()."
    )


def other_dtypes(saved: Any, present: Any, place: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the arrays of a state tree that have another dtype than at the same place of another one.

    Args:
        saved: a tree that was read.
        present: a tree of the program.
        place: where they lie.

    Yields:
        The array's place, its saved dtype, its present one.
    """
    if isinstance(saved, Mapping) and isinstance(present, Mapping):
        for key, item in saved.items():
            if key in present:
                yield from other_dtypes(item, present[key], place_below(place, key))
    elif isinstance(saved, (list, tuple)) and isinstance(present, (list, tuple)):
        for number, (one, other) in enumerate(zip(saved, present, strict=False)):
            yield from other_dtypes(one, other, place_below(place, number))
    else:
        before, now = (str(getattr(item, "dtype", "")).rpartition(".")[2] for item in (saved, present))
        if before and now and before != now:
            yield place, before, now


def write_tree(directory: str, tree: Any, kinds: tuple[ArrayKind, ...]) -> str | None:
    """Write what `copy_tree` returned into a directory; return the name of an array that has NaN, if there is one.

    Raises:
        OSError: if it cannot be written.
        SaveFailedError: if the arrays of a kind are gone.
        ImportError: if safetensors is not installed.
    """
    arrays: dict[str, dict[str, Any]] = {}
    structure = _encode(tree, arrays, "")
    with_nan: str | None = None
    for kind in kinds:
        if found := arrays.get(kind.name):
            try:
                name = kind.save(found, os.path.join(directory, kind.file))
                with_nan = with_nan or name
            except ModuleNotFoundError as error:
                raise ImportError(NO_SAFETENSORS) from error
            except Exception as error:
                if isinstance(error, (OSError, SaveFailedError)):
                    raise
                raise OSError(f"{kind.file} could not be written: {error}") from error
    with open(os.path.join(directory, STRUCTURE), "x", encoding="ascii") as file:
        json.dump(structure, file, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return with_nan


def read_tree(directory: str, kinds: tuple[ArrayKind, ...]) -> Any:
    """Read a tree; arrays come back as those of their kinds.

    Raises:
        DamagedCheckpointError: if it is no tree, or has arrays of a kind that is not among them.
        OSError: if it cannot be read.
    """
    path = os.path.join(directory, STRUCTURE)
    try:
        with open(path, encoding="ascii") as file:
            structure = json.load(file)
    except (ValueError, RecursionError) as error:
        raise DamagedCheckpointError(f"{path}: it holds no state tree: {error}") from error
    loaded: dict[str, Mapping[str, Any]] = {}
    by_name = {kind.name: kind for kind in kinds}

    def array(kind: str, name: str) -> Any:
        if kind not in by_name:
            raise DamagedCheckpointError(
                f"{path}: it has arrays of {kind!r}, which this program does not read; expected {', '.join(by_name)}"
            )
        if kind not in loaded:
            loaded[kind] = by_name[kind].load(os.path.join(directory, by_name[kind].file))
        return loaded[kind][name]

    try:
        return _decode(structure, array)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedCheckpointError(f"{path}: it holds no state tree: {type(error).__name__}: {error}") from error


def _key(key: Any, path: str) -> Any:
    if key is None or type(key) in (bool, int, str):
        return key
    if isinstance(key, tuple):
        return tuple(_key(item, path) for item in key)
    for base in (int, str):
        if isinstance(key, base):
            return base(key)
    raise CheckpointError(f"{path} has the key {key!r:.80} ({type(key).__qualname__}); expected a text or a number.")


def _encode(tree: Any, arrays: dict[str, dict[str, Any]], place: str) -> Any:
    if isinstance(tree, Copied):
        own = arrays.setdefault(tree.kind, {})
        name = place if place not in own else f"{place}#{len(own)}"  # keys of two types, with one text
        own[name] = tree.value
        return {"array": [tree.kind, name]}
    if isinstance(tree, float) and not math.isfinite(tree):
        return {"float": repr(tree)}
    if isinstance(tree, bytes):
        return {"bytes": base64.b64encode(tree).decode("ascii")}
    if isinstance(tree, dict):
        items = tree.items()
        return {
            "dict": [[_encode(key, arrays, ""), _encode(item, arrays, place_below(place, key))] for key, item in items]
        }
    if isinstance(tree, tuple):
        return {"tuple": [_encode(item, arrays, place_below(place, number)) for number, item in enumerate(tree)]}
    if isinstance(tree, list):
        return [_encode(item, arrays, place_below(place, number)) for number, item in enumerate(tree)]
    return tree


def place_below(place: str, key: Any) -> str:
    """Return the place of an item in a tree, as the names of arrays have it."""
    part = str(key).replace("/", "|")
    return f"{place}/{part}" if place else part


def _decode(value: Any, array: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item, array) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "dict":
        return {_decode(key, array): _decode(item, array) for key, item in content}
    if tag == "tuple":
        return tuple(_decode(item, array) for item in content)
    if tag == "array":
        return array(*content)
    if tag == "bytes":
        return base64.b64decode(content, validate=True)
    if tag == "float":
        return float(content)
    raise ValueError(f"the tag {tag!r} is not known")

"""``orbax/_METADATA``: the names of the arrays of JAX in a checkpoint, as Orbax reads them: `read`.

Orbax joins a name and its folder to a path, where it does not keep its arrays in a database (OCDBT): so names lead it
to any file. What `save` writes is a database, in which a name is a key; nothing else is read. Older versions of
Orbax take for a database what has the file `DATABASE`; newer ones do that where the metadata do not say it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from supervisor_core.base.errors import DamagedCheckpointError
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.checkpoint.tree_file import parse_json

METADATA, DATABASE = "_METADATA", "manifest.ocdbt"
MAX_BYTES = 256 << 20
MAX_VALUES = 10_000_000

_MAX_VALUES_EACH = 1_000
"""Of an array as deep as a tree may be."""
_DICT_KEY = 2
_KIND = "np.ndarray"


def read(files: SealedFiles, folder: str, names: Collection[str]) -> bytes:
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

    Args:
        keys: its parts.

    Raises:
        ValueError: if it could lead elsewhere.
    """
    name = ".".join(keys)  # as Orbax joins them
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"an array's name, {name!r:.80}, leads out of its folder")


def _names(content: Any, has_database: bool) -> list[str]:
    """Return the names of the arrays, as the tree has them."""
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

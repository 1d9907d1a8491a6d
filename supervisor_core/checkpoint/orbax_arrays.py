"""The arrays of JAX in a folder of Orbax's, read by ``tensorstore`` alone, which Orbax itself reads them by.

Orbax opens files by their names, which somebody who may write there can have lead elsewhere at any moment. `folder_of`
is a folder for it in which they lead to what was looked at.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from supervisor_core.checkpoint import contents, orbax_metadata
from supervisor_core.checkpoint.manifest import SPARSE_BYTES, SPARSE_RATIO
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.checkpoint.tensors import Block, Tensor
from supervisor_core.errors import DamagedCheckpointError, UnreadableCheckpointError
from supervisor_core.install import pip_install

if TYPE_CHECKING:
    from supervisor_core.checkpoint.tensors import Numbers

_DESCRIPTORS = "/proc/self/fd"
"""Where Linux has the open files of a process by their numbers."""
_CACHE_BYTES = 64 << 20
"""Of chunks that were inflated; a chunk is read for several blocks."""


@contextmanager
def folder_of(files: SealedFiles, folder: str, listed: Collection[str], metadata: bytes) -> Iterator[str]:
    """Yield a folder to read Orbax's files from: links to files that are open, and were compared with the manifest; and
    a copy of the metadata that were looked at, whose owner may write them at any moment. A checkpoint of this user's is
    read where it is.

    Args:
        files: the checkpoint's. folder: Orbax's. listed: the files in it. metadata: the content of its `METADATA`.

    Raises:
        DamagedCheckpointError, UnreadableCheckpointError: if a file is not the one in the manifest.
    """
    if not os.path.isdir(_DESCRIPTORS) or contents.is_own(files):
        for name in listed:
            with files.open(name) as file:
                file.check()
        yield files.path(folder)
        return
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="tb-supervisor-orbax-"))
        for name in listed:
            os.makedirs(os.path.dirname(os.path.join(directory, name)), exist_ok=True)
            if name == f"{folder}/{orbax_metadata.METADATA}":
                with open(os.path.join(directory, name), "wb") as copy:
                    copy.write(metadata)
                continue
            file = stack.enter_context(files.open(name))
            file.check()
            os.symlink(f"{_DESCRIPTORS}/{file.fileno()}", os.path.join(directory, name))
        yield os.path.join(directory, folder)


def read(files: SealedFiles, folder: str, names: Collection[str], stack: ExitStack) -> tuple[Tensor, ...]:
    """Return the arrays in a folder of Orbax's.

    Args:
        files: the checkpoint's.
        folder: Orbax's.
        names: those of the arrays in the tree.
        stack: closes what stays open while they are read.

    Raises:
        DamagedCheckpointError: if it has other arrays, or larger ones than its files can have.
        UnreadableCheckpointError: if ``tensorstore`` is not installed, or it does not read them.
    """
    try:
        import tensorstore
    except ImportError as error:
        raise UnreadableCheckpointError(
            f"{files.path(folder)}: the values of Orbax's arrays are read by tensorstore, which is not installed here: "
            f"{pip_install('tensorstore')}"
        ) from error
    listed = files.below(folder)
    metadata = orbax_metadata.read(files, folder, names)
    path = stack.enter_context(folder_of(files, folder, listed, metadata))
    most = SPARSE_BYTES + SPARSE_RATIO * sum(map(files.size, listed))
    context = tensorstore.Context({"cache_pool": {"total_bytes_limit": _CACHE_BYTES}})
    driver = "zarr3" if orbax_metadata.uses_zarr3(metadata) else "zarr"
    found, total = [], 0
    for name in sorted(names):
        key = ".".join(name.split("/")) + "/"
        base = {"driver": "file", "path": f"{path}/"}
        spec = {"driver": driver, "kvstore": {"driver": "ocdbt", "base": base, "path": key}}
        try:
            array = tensorstore.open(spec, context=context, read=True, open=True).result()
        except Exception as error:
            raise UnreadableCheckpointError(f"{files.path(folder)}: {name!r:.200} cannot be read: {error}") from error
        shape = tuple(map(int, array.shape))
        chunk = math.prod(array.chunk_layout.read_chunk.shape or ())
        width = array.dtype.numpy_dtype.itemsize
        total += max(chunk, math.prod(shape)) * width
        if total > most:
            raise DamagedCheckpointError(f"{files.path(folder)}: its arrays are larger than its files can have")
        found.append(Tensor(name, array.dtype.name, shape, _reader(array, files.path(folder))))
    return tuple(found)


def _reader(array: Any, where: str) -> Any:
    import numpy as np

    def numbers(block: Block) -> Numbers:
        place = (*block.at, slice(block.begin, block.end)) if array.shape else ()
        try:
            found: Any = array[place].read().result()
        except Exception as error:
            raise DamagedCheckpointError(f"{where}: {error}") from error
        found = np.ascontiguousarray(found).reshape(-1)
        if found.dtype.kind == "c":
            return found.view(found.real.dtype)  # type: ignore[no-any-return]
        return found if found.dtype.kind in "biuf" else found.astype(np.float32)  # type: ignore[no-any-return]

    return numbers

"""Lists and reads remote directories through fsspec, which is asked directly: it can list a directory with the kinds of
its entries in one request, and its cached listings must be dropped, or a file that grows would keep its first size.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from supervisor_core.storage.filesystem import DirectoryEntry
from supervisor_core.storage.remote import as_os_error

NAMES_OF_A_REQUEST = 1000
"""Names that a store lists in one request: the page size of S3 and GCS."""

LAST_NAME = "\U0010ffff"
"""Comes after every name, in the order of the stores: that of the code points."""


class Found(NamedTuple):
    """A file, or a directory, in a listing."""

    path: str
    """Begins as that of the directory that was listed; that of a directory has no slash at its end."""
    size: int | None
    """None: a directory."""
    written_at: float | None = None
    """Wall time, by the clock of the store; None where it is not known."""


class ListingPage(NamedTuple):
    """A part of the listing of everything below a directory."""

    files: list[Found]
    """In the order of their paths."""
    last: str | None
    """The last path of it, after which the next begins; None: there is no next one."""
    requests: int


class ListingClient(Protocol):
    """What a `RemoteListing` asks. Failures raise `OSError`."""

    def page(self, root: str, after: str) -> ListingPage:
        """List everything below a directory from after a path on: a thousand names, or all where the store cannot
        begin at a name."""

    def children(self, directory: str) -> tuple[list[Found], int]:
        """Return what is in a directory, and the number of requests that this took."""

    def size_of(self, path: str) -> int | None:
        """Return a file's length; None for a directory."""

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return a part of a file; fewer bytes only where it ends."""


class FsspecClient:
    """A `ListingClient` of any store for which fsspec has a package.

    Args:
        filesystem: fsspec's.
    """

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    @as_os_error
    def page(self, root: str, after: str) -> ListingPage:
        """See `ListingClient.page`: all that there is."""
        self._filesystem.invalidate_cache()
        found = self._filesystem.find(root, detail=True)
        files = [each for each in self._found(root, found.values()) if each.size is not None and each.path > after]
        return ListingPage(sorted(files), None, 1 + len(found) // NAMES_OF_A_REQUEST)

    @as_os_error
    def children(self, directory: str) -> tuple[list[Found], int]:
        """See `ListingClient.children`."""
        self._filesystem.invalidate_cache()
        found = self._filesystem.ls(directory, detail=True)
        return list(self._found(directory, found)), 1 + len(found) // NAMES_OF_A_REQUEST

    @as_os_error
    def size_of(self, path: str) -> int | None:
        """See `ListingClient.size_of`."""
        self._filesystem.invalidate_cache()
        info = self._filesystem.info(path)
        return None if info["type"] == "directory" else int(info["size"])

    @as_os_error
    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """See `ListingClient.read_range`."""
        return bytes(self._filesystem.cat_file(path, start=offset, end=offset + length))

    def entries(self, path: str) -> list[DirectoryEntry]:
        """Return the entries of a directory."""
        return [DirectoryEntry(os.path.basename(each.path), each.size is None) for each in self.children(path)[0]]

    def _found(self, root: str, infos: Iterable[Any]) -> Iterator[Found]:
        """Yield what is below a directory; a store without directories may list a marker for the directory itself."""
        own = str(self._filesystem._strip_protocol(root)).rstrip("/")
        for info in infos:
            name = info["name"].rstrip("/")
            if name.startswith(own + "/"):
                size = None if info["type"] == "directory" else int(info["size"] or 0)
                yield Found(root.rstrip("/") + name.removeprefix(own), size, _written_at(info))


class S3Client(FsspecClient):
    """S3, and what speaks its protocol: a listing begins where it is asked to.

    Args:
        filesystem: s3fs's.
    """

    @as_os_error
    def page(self, root: str, after: str) -> ListingPage:
        """See `ListingClient.page`: a thousand names."""
        start, (_, prefix) = f"{root.rstrip('/')}/", self._place_of(root)
        answer, _ = self._listed(root, StartAfter=prefix + after.removeprefix(start)) if after else self._listed(root)
        last = answer["Contents"][-1]["Key"].removeprefix(prefix) if answer.get("IsTruncated") else None
        return ListingPage(list(self._files(root, answer)), None if last is None else start + last, 1)

    @as_os_error
    def children(self, directory: str) -> tuple[list[Found], int]:
        """See `ListingClient.children`."""
        found: list[Found] = []
        requests, more = 0, True
        following: dict[str, str] = {}
        while more:
            answer, prefix = self._listed(directory, Delimiter="/", **following)
            requests += 1
            found += self._files(directory, answer)
            found += [
                Found(f"{directory.rstrip('/')}/{each['Prefix'].removeprefix(prefix).rstrip('/')}", None)
                for each in answer.get("CommonPrefixes", ())
            ]
            more = bool(answer.get("IsTruncated"))
            following = {"ContinuationToken": answer.get("NextContinuationToken", "")}
        if not found:
            raise FileNotFoundError(directory)
        return found, requests

    def _listed(self, directory: str, **how: str) -> tuple[Any, str]:
        bucket, prefix = self._place_of(directory)
        return self._filesystem.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, **how), prefix

    def _files(self, directory: str, answer: Any) -> Iterator[Found]:
        _, prefix = self._place_of(directory)
        for each in answer.get("Contents", ()):
            name = each["Key"].removeprefix(prefix)
            if name and not name.endswith("/"):
                modified = each.get("LastModified")
                at = modified.timestamp() if isinstance(modified, datetime) else None
                yield Found(f"{directory.rstrip('/')}/{name}", int(each["Size"]), at)

    def _place_of(self, directory: str) -> tuple[str, str]:
        """Return the bucket of a directory, and how the keys of what is below it begin."""
        bucket, key, _ = self._filesystem.split_path(directory.rstrip("/"))
        return bucket, f"{key}/" if key else ""


def client_of(filesystem: Any) -> FsspecClient:
    """Return the client for one of fsspec's file systems."""
    is_s3 = "s3" in filesystem.protocol and hasattr(filesystem, "call_s3")
    return S3Client(filesystem) if is_s3 else FsspecClient(filesystem)


def _written_at(info: Any) -> float | None:
    at = info.get("LastModified") or info.get("mtime") or info.get("updated") or info.get("last_modified")
    if isinstance(at, datetime):
        return at.timestamp()
    return float(at) if isinstance(at, (int, float)) else None

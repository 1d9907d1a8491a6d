"""`SealedListing`: the sealed checkpoints that are in a directory; `find_sealed`: the directories that have some.

Anybody who may write into the logdir may have made them: what is read of them is bounded.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from supervisor_core.checkpoint import manifest as manifests
from supervisor_core.checkpoint.contents import FORMATS
from supervisor_core.checkpoint.doubt import Doubt
from supervisor_core.checkpoint.manifest import Manifest
from supervisor_core.checkpoint.recovery import Candidate, unlisted
from supervisor_core.checkpoint.set_aside import NOTE
from supervisor_core.errors import DamagedCheckpointError
from supervisor_core.storage.local import LOCAL
from supervisor_core.systems import user_id

_LOG = logging.getLogger("supervisor_core")

MAX_OF_OTHERS = 1000
"""Directories of one other user with the names of checkpoints: the newest by their names are looked at."""


class SealedListing:
    """The sealed checkpoints in one directory, as they are now.

    Args:
        directory: absolute; it may not be there yet.
        names: what matches their names, with a group ``step``.
    """

    def __init__(self, directory: str, names: re.Pattern[str]) -> None:
        self._directory = directory
        self._pattern = names
        self._has_told = False

    def found(self) -> list[tuple[Candidate, Manifest | None]]:
        """Return the checkpoints with their manifests, in the order in which to try them.

        Of a manifest there is what choosing and retention need (see `_in_short`): somebody may have put one of
        megabytes into thousands of directories.
        """
        found: list[tuple[Candidate, Manifest | None]] = []
        newest: tuple[str, Manifest] | None = None
        for step, path in self._directories():
            manifest: Manifest | None = None
            with suppress(DamagedCheckpointError):  # trying it says why
                read = manifests.read_manifest(path)
                manifest = _in_short(read)
                if newest is None or manifest.order > newest[1].order:
                    newest = path, replace(manifest, preserved=read.preserved)
            saved_at = None if manifest is None else manifest.saved_at
            whole = manifest is not None
            found.append((Candidate(path, step, "disk", saved_at, deletable=True, has_index=whole), manifest))
        if newest is not None:
            found = [(item, newest[1] if item.path == newest[0] else manifest) for item, manifest in found]

        def order(item: tuple[Candidate, Manifest | None]) -> tuple[bool, tuple[int, int, int]]:
            candidate, manifest = item
            return manifest is None, (0, 0, candidate.step or 0) if manifest is None else manifest.order

        return sorted(found, key=order, reverse=True)

    def _directories(self) -> list[tuple[int, str]]:
        """Return the directories with a checkpoint's name, with their steps; of each other user the newest."""
        by_owner: dict[int, list[tuple[int, str]]] = {}
        for name in self.names():
            if (match := self._pattern.fullmatch(name)) is None:
                continue
            path = os.path.join(self._directory, name)
            with suppress(OSError):
                owner = os.lstat(path).st_uid
                if os.path.isdir(path):
                    by_owner.setdefault(owner, []).append((int(match["step"]), path))
        kept = []
        for owner, found in by_owner.items():
            if owner not in (0, user_id()) and len(found) > MAX_OF_OTHERS:
                if not self._has_told:
                    text = "%s: %d directories of user %d have names of checkpoints; only the newest %d are looked at."
                    _LOG.warning(text, self._directory, len(found), owner, MAX_OF_OTHERS)
                self._has_told = True
                found = sorted(found)[-MAX_OF_OTHERS:]
            kept += found
        return kept

    def whole(self) -> list[tuple[str, Manifest]]:
        """Return the checkpoints with a valid manifest, oldest first."""
        return [(item.path, manifest) for item, manifest in reversed(self.found()) if manifest is not None]

    def names(self) -> list[str]:
        """Return the names in the directory; none where there is no directory.

        Raises:
            UnlistedCheckpointsError: if it cannot be listed.
        """
        try:
            return LOCAL.list_names(self._directory)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unlisted(self._directory, error) from error


def find_sealed(top: str, on_error: Callable[[OSError], None]) -> Iterator[str]:
    """Yield the local directories from ``top`` down in which there are sealed checkpoints.

    Args:
        top: where to begin.
        on_error: called for each directory that cannot be searched.
    """
    seen = set()
    for directory, files in LOCAL.walk(top, on_error):
        parent = os.path.dirname(directory)
        if manifests.NAME in files and NOTE not in files and parent not in seen:
            seen.add(parent)
            yield parent


def prefix_of(directory: str) -> str:
    """Return what the names of a directory's sealed checkpoints begin with: ours where there are none."""
    names = os.listdir(directory)
    found = (prefix for prefix in FORMATS if any(re.fullmatch(rf"{prefix}\d{{1,19}}(\.\d+)?", name) for name in names))
    return next(found, next(iter(FORMATS)))


def _in_short(manifest: Manifest) -> Manifest:
    """Return the part of a manifest that stays within 10 KB; the names in ``preserved`` count in the newest only."""
    return Manifest(
        format="",
        step=manifest.step,
        session=manifest.session,
        attempt=manifest.attempt,
        number=manifest.number,
        saved_at=manifest.saved_at,
        last_preserved_at=manifest.last_preserved_at,
        doubt=None if manifest.doubt is None else Doubt(manifest.doubt.text),
    )

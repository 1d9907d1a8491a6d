"""`SealedStore`: the sealed checkpoints of one directory: saves, verifies, sets aside and deletes.

    ckpt-1200/                          a checkpoint; its manifest makes it a whole one
    ckpt-1200.2/                        another of the same step, saved by a later session
    ckpt-1200.saving-<session>-<32 hex digits>/     a save under way, or one that was killed
    ckpt-1200.deleting-<32 hex digits>/             a deletion under way
    ckpt-1200.damaged/                  set aside, with the reason in ``why-set-aside.txt``
    last-good-ckpt-1200/                a second name for one that a framework is about to delete (`keep_last_good`)

A save is one directory that gets its name when it is sealed and durable; a deletion begins with a new name. So a kill
at any moment leaves whole checkpoints and directories that are none. The newest is the one of the highest attempt and
number in its manifest: what a chief saves after it was taken over is never resumed from.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import NamedTuple

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.errors import DamagedCheckpointError, UnlistedCheckpointsError
from supervisor_core.base.json_records import can_follow
from supervisor_core.base.systems import user_id
from supervisor_core.checkpoint import contents
from supervisor_core.checkpoint import manifest as manifests
from supervisor_core.checkpoint.blocks import IN_THREAD, BlockWriter
from supervisor_core.checkpoint.bundle import Progress, VerifiedCheckpoint
from supervisor_core.checkpoint.guard import Publisher, guarded
from supervisor_core.checkpoint.manifest import Manifest, SealedFile
from supervisor_core.checkpoint.recovery import (
    Candidate,
    CheckpointChoice,
    CheckpointKind,
    Listed,
    Skipped,
    newest_usable,
    unlisted,
)
from supervisor_core.checkpoint.retention import Doubt, Retention, Saved, decide
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.checkpoint.set_aside import LAST_GOOD, NOTE, Names, SetAside, names_aside, note_of
from supervisor_core.storage.local import LOCAL, local_path, refuse_link

_LOG = logging.getLogger("supervisor_core")

MAX_OF_OTHERS = 1000
"""Directories of one other user with the names of checkpoints: the newest by their names are looked at."""

Decode = Callable[[SealedFiles], object]
"""Decodes a checkpoint, or checks that it can be. Raises `DamagedCheckpointError` if not, and
`UnreadableCheckpointError` for one that is to be left alone: of another format, or another user's."""


@dataclass(frozen=True, kw_only=True)
class Sealed:
    """A checkpoint that was saved, or chosen to resume from."""

    path: str
    """Its directory."""
    manifest: Manifest
    skipped: tuple[Skipped, ...] = ()
    """The newer ones that were passed over."""

    @classmethod
    def chosen(cls, choice: CheckpointChoice) -> Sealed | None:
        """Return the checkpoint that was chosen; None without one."""
        manifest = None if choice.verified is None else choice.verified.manifest
        if choice.chosen is None or manifest is None:
            return None
        return cls(path=choice.chosen.path, manifest=manifest, skipped=choice.skipped)


class StagedFiles(NamedTuple):
    """What was written into a new checkpoint's directory."""

    doubt: Doubt | None = None
    """Why the checkpoint is in doubt; None where it is not."""
    files: tuple[SealedFile, ...] = ()
    """Those whose checksums are known already; the others are read."""


class SealedStore(CheckpointKind):
    """The sealed checkpoints of one local directory. The constructor reads nothing.

    Args:
        directory: where the checkpoints are; created by the first save.
        prefix: what their names begin with; the step follows.
        publisher: the session that saves: its check runs before each change, and its number orders the saves.
            Default: no check.

    Raises:
        ValueError: if the directory is not on a local file system.
    """

    def __init__(
        self, directory: str | os.PathLike[str], prefix: str = "ckpt-", *, publisher: Publisher | None = None
    ) -> None:
        local = local_path(directory)
        if local is None:
            raise ValueError(
                f"The directory {os.fspath(directory)!r} is not local: checkpoints of state trees need a local or "
                "mounted file system. Save them to one, and copy them from there."
            )
        self.directory = os.path.abspath(local)
        """Absolute: records name it, and are read from other working directories."""
        self._has_lock = publisher is not None
        self._publisher = publisher or Publisher(session="", attempt=0)
        self.filesystem = guarded(LOCAL, self._publisher.check)
        self._prefix = prefix
        stem = rf"{re.escape(prefix)}(?P<step>\d{{1,19}})"
        self.own_names = re.compile(rf"{stem}(\.\d+)?")
        self._second_name = re.compile(rf"{LAST_GOOD}{stem}|\.{LAST_GOOD}{re.escape(prefix)}\d{{1,19}}\.[0-9a-f]{{32}}")
        self._saving = re.compile(rf"{self.own_names.pattern}\.(saving-[0-9A-Za-z]*|deleting)-[0-9a-f]{{32}}")
        self._number = 0
        self._has_told = False
        self._swept = self._cannot_link = False

    @property
    def run(self) -> str:
        """See `CheckpointKind.run`."""
        return os.path.dirname(self.directory) if os.path.basename(self.directory) == "checkpoints" else self.directory

    def candidates(self) -> list[Candidate]:
        """Return the checkpoints, whole or not, newest first; those without a valid manifest come first, by step.

        Raises:
            UnlistedCheckpointsError: if the directory is there and cannot be listed.
        """
        return [candidate for candidate, _ in self._found()]

    def listed(self) -> Listed:
        """See `CheckpointKind.listed`."""
        return Listed(self.candidates())

    def newest_attempt(self) -> int:
        """Return the newest session's number in the manifests; 0 where there is none, or they cannot be listed.

        A session's number must be higher, also where the liveness file was deleted or not copied: else what it saves
        would count as older than what there is.
        """
        try:
            return max([0, *(item.attempt for _, item in self._whole() if can_follow(item.attempt))])
        except UnlistedCheckpointsError:  # choosing a checkpoint raises it
            return 0

    def newest_usable(
        self, *, start_over: bool = False, decode: Decode | None = None, latest_step: int | None = None
    ) -> CheckpointChoice:
        """Walk from the newest checkpoint back to the first one that verifies, and can be decoded; see
        `recovery.newest_usable`.

        Args:
            start_over: where all are damaged, choose none instead of raising.
            decode: called with each that is tried. Default: their content is not looked at.
            latest_step: pass over later ones. Default: none is too late.
        """
        verify = partial(self._verify, decode=decode)
        return newest_usable(self, verify, start_over=start_over, latest_step=latest_step)

    def verify(self, path: str, *, data: bool = True, on_progress: Progress | None = None) -> VerifiedCheckpoint:
        """See `CheckpointKind.verify`."""
        decode = partial(contents.check, kind=contents.FORMATS[self._prefix])
        return self._verify(path, decode=decode, data=data, on_progress=on_progress)

    def _verify(
        self, path: str, decode: Decode | None, *, data: bool = True, on_progress: Progress | None = None
    ) -> VerifiedCheckpoint:
        files = SealedFiles(path, manifests.read_manifest(path), on_progress)
        match, step = self.own_names.fullmatch(os.path.basename(path)), files.manifest.step
        if match is None or int(match["step"]) != step:
            raise DamagedCheckpointError(f"{path}: its manifest is of step {step}")
        try:
            if decode is not None:
                decode(files)
        except DamagedCheckpointError:
            files.verify()  # which says more plainly what is wrong, if a file was altered
            raise
        return files.verify(read_data=data)

    def stage(self, step: int) -> str:
        """Return a new directory for files of a checkpoint that other processes write, before `save` completes it.

        Raises:
            OSError: if it cannot be made.
            LogdirInUseError: if another chief has taken the logdir over.
        """
        self._prepare()
        staging = self._new_staging(step)
        self.filesystem.make_directory(staging)
        return staging

    def save(
        self,
        manifest: Manifest,
        write: Callable[[str], StagedFiles],
        *,
        staging: str | None = None,
        max_to_keep: int | None = 5,
        keep_every_n_hours: float | None = None,
        read_back: bool = True,
        decode: Decode | None = None,
        blocks: BlockWriter = IN_THREAD,
    ) -> Sealed:
        """Write a checkpoint, seal it, give it its name, and delete those that retention lets go of.

        Args:
            manifest: everything but the files and the number.
            write: called with a new directory, in which it writes all files.
            staging: a directory from `stage` instead, in which there are files already; deleted if the save fails.
            max_to_keep: see `retention.decide`.
            keep_every_n_hours: see `retention.decide`.
            read_back: read everything again and compare with the manifest before the checkpoint counts.
            decode: called before that with what is read back.
            blocks: what writes it, and may read it back.

        Raises:
            OSError, DamagedCheckpointError: why there is no checkpoint; those before stay as they were.
            LogdirInUseError: if another chief has taken the logdir over.
        """
        self._prepare()
        manifest = self._signed(manifest)
        staged = staging or self._new_staging(manifest.step)
        try:
            if staging is None:
                self.filesystem.make_directory(staged)
            doubt, written = write(staged)
            final = self._free_name(manifest.step)
            manifest = replace(manifest, doubt=doubt)
            manifest, retention = self._with_retention(manifest, final, max_to_keep, keep_every_n_hours)
            manifest = self._sealed(staged, manifest, read_back, decode, written, blocks)
            self.filesystem.move(staged, final)
            self.filesystem.sync((), self.directory)
        except BaseException:
            self.discard(staged)
            raise
        self._retain(retention)
        return Sealed(path=final, manifest=manifest)

    def seal(self, path: str, manifest: Manifest, *, read_back: bool = True, decode: Decode | None = None) -> Sealed:
        """Seal a checkpoint that a framework has written under its final name; retention is the framework's, too.

        Args:
            path: its directory; its files must be complete.
            manifest: everything but the files and the number.
            read_back: read everything again and compare with the manifest before the checkpoint counts.
            decode: called before that with what is read back.

        Raises:
            OSError, DamagedCheckpointError: why it is not sealed.
            LogdirInUseError: if another chief has taken the logdir over.
        """
        self._publisher.bring_back()
        manifest = self._sealed(path, self._signed(manifest), read_back, decode)
        self.filesystem.sync((), self.directory)
        return Sealed(path=path, manifest=manifest)

    def _with_retention(
        self, manifest: Manifest, final: str, max_to_keep: int | None, keep_every_n_hours: float | None
    ) -> tuple[Manifest, Retention]:
        """Return a manifest with what the next save has to know of the older checkpoints, and which of them stay."""
        earlier = self._whole()
        newest = earlier[-1][1] if earlier else None
        # What is preserved for good is none of retention's business any more.
        preserved = set(newest.preserved if newest else ()) & {os.path.basename(path) for path, _ in earlier}
        everything = [*earlier, (final, manifest)]
        retention = decide(
            [
                Saved(path, each.saved_at, in_doubt=each.doubt is not None)
                for path, each in everything
                if os.path.basename(path) not in preserved
            ],
            max_to_keep=max_to_keep,
            keep_every_n_hours=keep_every_n_hours,
            last_preserved_at=newest.last_preserved_at if newest else None,
        )
        preserved |= {os.path.basename(item.path) for item in retention.preserved}
        since = retention.last_preserved_at
        return replace(manifest, last_preserved_at=since, preserved=tuple(sorted(preserved))), retention

    def _signed(self, manifest: Manifest) -> Manifest:
        """Return a manifest with the session that saves it, and the number of the save in it."""
        self._number += 1
        session, attempt = self._publisher.session, self._publisher.attempt
        return replace(manifest, session=session, attempt=attempt, number=self._number)

    def _sealed(
        self,
        directory: str,
        manifest: Manifest,
        read_back: bool,
        decode: Decode | None,
        written: tuple[SealedFile, ...] = (),
        blocks: BlockWriter = IN_THREAD,
    ) -> Manifest:
        """Seal a directory, and read it back where that is wanted; return its manifest."""
        manifest = manifests.seal(directory, manifest, LOCAL, self._publisher.check, written)
        if read_back:
            files = SealedFiles(directory, manifest, blocks=blocks)
            if decode is not None:
                decode(files)
            files.verify()
        return manifest

    def keep_last_good(self, sealed: Sealed) -> None:
        """Keep a checkpoint under a second name, in place of the one that was kept before: for a framework that deletes
        checkpoints itself. Does nothing while one that is there is in doubt, so that the last good one before it stays.

        The second name is made of hard links. Where the file system has none, the log says so once.
        """
        target = os.path.join(self.directory, LAST_GOOD + os.path.basename(sealed.path))
        staged = os.path.join(self.directory, f".{os.path.basename(target)}.{uuid.uuid4().hex}")
        try:
            if any(manifest.doubt is not None for _, manifest in self._whole()):
                return
            for name in (*(file.path for file in sealed.manifest.files), manifests.NAME):
                self.filesystem.make_directory(os.path.dirname(os.path.join(staged, name)))
                os.link(os.path.join(sealed.path, name), os.path.join(staged, name), follow_symlinks=False)
            others = [name for name in self._listed_names() if self._second_name.fullmatch(name)]
            if os.path.lexists(target):
                self.filesystem.remove_tree(target)
            self.filesystem.move(staged, target)
            self.filesystem.sync((), self.directory)
        except OSError as error:
            self.discard(staged)
            if not self._cannot_link:
                _LOG.warning("The last good checkpoint is not kept beside the newest ones: %s", error)
            self._cannot_link = True
            return
        for name in others:
            if name != os.path.basename(target):
                self.discard(os.path.join(self.directory, name))

    def set_aside(
        self, prefix: str, reason: str, *, clock: Clock = SYSTEM_CLOCK, names: Names = names_aside
    ) -> SetAside | None:
        """Rename a checkpoint so that it is none; the reason goes into a file beside its own.

        Raises:
            OSError: if it cannot be renamed.
        """
        if os.path.dirname(prefix) != self.directory or not os.path.lexists(prefix):
            return None
        refuse_link(prefix)
        target = next(path for path in names(prefix) if not os.path.lexists(path))
        self.filesystem.move(prefix, target)
        at = clock.wall()
        self.filesystem.replace(os.path.join(target, NOTE), note_of(reason, at))
        return SetAside(path=target, name=os.path.basename(prefix), step=None, at=at, reason=reason)

    def sessions(self) -> set[str]:
        """See `CheckpointKind.sessions`."""
        return {manifest.session for _, manifest in self._whole() if manifest.session}

    def found_as(self, path: str) -> str:
        """See `CheckpointKind.found_as`: the last good checkpoint gets its own name again."""
        name = os.path.basename(path)
        own = os.path.join(self.directory, name.removeprefix(LAST_GOOD))
        if name.startswith(LAST_GOOD) and not os.path.lexists(own):
            refuse_link(path)
            self.filesystem.move(path, own)
        return own

    def doubt_about(self, path: str, verified: VerifiedCheckpoint) -> str | None:
        """See `CheckpointKind.doubt_about`."""
        doubt = None if verified.manifest is None else verified.manifest.doubt
        return None if doubt is None else doubt.text

    def choose(self, path: str, later: Collection[str]) -> None:
        """See `CheckpointKind.choose`: nothing but the manifests of those that are left says which is the newest."""

    def _found(self) -> list[tuple[Candidate, Manifest | None]]:
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
            is_own = not os.path.islink(path)
            found.append((Candidate(path, step, "disk", saved_at, deletable=is_own, has_index=whole), manifest))
        if newest is not None:
            found = [(item, newest[1] if item.path == newest[0] else manifest) for item, manifest in found]

        def order(item: tuple[Candidate, Manifest | None]) -> tuple[bool, tuple[int, int, int]]:
            candidate, manifest = item
            return manifest is None, (0, 0, candidate.step or 0) if manifest is None else manifest.order

        return sorted(found, key=order, reverse=True)

    def _directories(self) -> list[tuple[int, str]]:
        """Return the directories with a checkpoint's name, with their steps; of each other user the newest."""
        by_owner: dict[int, list[tuple[int, str]]] = {}
        for name in self._listed_names():
            if (match := self.own_names.fullmatch(name)) is None:
                continue
            path = os.path.join(self.directory, name)
            with suppress(OSError):
                owner = os.lstat(path).st_uid
                if os.path.isdir(path):
                    by_owner.setdefault(owner, []).append((int(match["step"]), path))
        kept = []
        for owner, found in by_owner.items():
            if owner not in (0, user_id()) and len(found) > MAX_OF_OTHERS:
                if not self._has_told:
                    text = "%s: %d directories of user %d have names of checkpoints; only the newest %d are looked at."
                    _LOG.warning(text, self.directory, len(found), owner, MAX_OF_OTHERS)
                self._has_told = True
                found = sorted(found)[-MAX_OF_OTHERS:]
            kept += found
        return kept

    def _whole(self) -> list[tuple[str, Manifest]]:
        """Return the checkpoints with a valid manifest, oldest first."""
        return [(item.path, manifest) for item, manifest in reversed(self._found()) if manifest is not None]

    def _listed_names(self) -> set[str]:
        try:
            return self.names()
        except OSError as error:
            raise unlisted(self.directory, error) from error

    def _prepare(self) -> None:
        """Before the first save: make the directory, and sweep what killed saves and deletions left behind."""
        self._publisher.bring_back()
        if self._swept:
            return
        self.filesystem.make_directory(self.directory)
        refuse_link(self.directory)
        if self._has_lock:  # without one it may be another's save under way
            for name in self._listed_names():
                if self._saving.fullmatch(name):
                    self.discard(os.path.join(self.directory, name))
        self._swept = True

    def _new_staging(self, step: int) -> str:
        name = f"{self._prefix}{step}.saving-{self._publisher.session}-{uuid.uuid4().hex}"
        return os.path.join(self.directory, name)

    def _free_name(self, step: int) -> str:
        base = os.path.join(self.directory, f"{self._prefix}{step}")
        if not os.path.lexists(base):
            return base
        return next(path for number in count(2) if not os.path.lexists(path := f"{base}.{number}"))

    def _retain(self, retention: Retention) -> None:
        for saved in retention.delete:
            doomed = f"{saved.path}.deleting-{uuid.uuid4().hex}"
            try:
                self.filesystem.move(saved.path, doomed)
                self.filesystem.remove_tree(doomed)
            except OSError as error:  # the next session sweeps it
                _LOG.info("The old checkpoint %s cannot be deleted: %s", saved.path, error)

    def discard(self, path: str) -> None:
        """Delete a directory, as one that `stage` has made; one that cannot be deleted is logged."""
        try:
            self.filesystem.remove_tree(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            _LOG.info("%s cannot be deleted: %s", path, error)


_IN_SHORT = ("step", "session", "attempt", "number", "saved_at", "last_preserved_at")


def _in_short(manifest: Manifest) -> Manifest:
    """Return the part of a manifest that stays within 10 KB; the names in ``preserved`` count in the newest only."""
    doubt = None if manifest.doubt is None else Doubt(manifest.doubt.text)
    return Manifest(format="", doubt=doubt, **{name: getattr(manifest, name) for name in _IN_SHORT})

"""`StagedCheckpoint`: a checkpoint is written and verified in a directory of its own, then moved into its place.

So a name like ``model.ckpt-1200`` never stands for anything but a whole checkpoint that would survive a power cut,
whatever kills the process; and one that is saved again under its name stays whole until the new one is.

The directory is ``<checkpoint>_temp_<session>_<32 hex digits>/``; without the session if none holds the logdir.
The data is moved first and the index last, since the index makes a checkpoint of the files. A save that is killed in
between leaves

* under a new name: data without an index, which is no checkpoint;
* under a name that was there before: new data with the old index, which is damaged.

The new index is still staged then, and the move is finished: by the save itself, or by the next session before it
chooses what to resume from (`store.finish_move`).

Local files only. A remote store has no renaming worth the name: there a checkpoint is written in its place, and the
state file alone says that it counts.

A chief whose logdir was taken over moves nothing into place any more: the store's check runs before each file, or on a
remote store before the writing begins.
"""

from __future__ import annotations

import logging
import os
import uuid

from supervisor_core.base.errors import DamagedCheckpointError, LogdirInUseError
from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint.store import CheckpointStore, move_into_place
from supervisor_core.storage.local import filesystem_for, local_path
from supervisor_core.storage.trees import remove_tree

_LOG = logging.getLogger("supervisor_core")


class StagedCheckpoint:
    """One checkpoint on its way. Made before the first byte of it; then `publish`, or `discard`, or both.

    Args:
        store: the checkpoints on disk.
        path: where it is going to be.

    Raises:
        OSError: if nothing can be written there.
        LogdirInUseError: on a remote store, if another chief has taken the logdir over.
    """

    def __init__(self, store: CheckpointStore, path: str) -> None:
        self._store = store
        self._filesystem = store.filesystem
        self._target = filesystem_for(path)[1]
        self._directory, name = os.path.split(self._target)
        self._replaces = self._filesystem.is_file(f"{self._target}.index")
        self._file_count = 0  # that are moved into place
        self._is_published = False
        self._workshop: str | None = None
        self.path = self._target
        """Where to write it."""
        if local_path(path) is None:
            store.check()
            return
        workshop = staging_path(self._target, store.session)
        self._workshop = workshop
        try:
            os.mkdir(workshop)  # and not its parents: making a logdir that has gone away does not bring it back
        except BaseException:
            self.discard()
            raise
        self.path = os.path.join(workshop, name)

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is written elsewhere than where it is going to be, which can still be changed then."""
        return self._workshop is not None

    def destination(self, written: str, path: str | None = None) -> str:
        """Return the path that `publish` gives it."""
        if self._workshop is None:
            return written
        return os.path.join(self._directory, os.path.basename(path or written))

    def publish(self, written: str, path: str | None = None) -> str:
        """Move what was written into its place, durably; return its path there.

        Args:
            written: the path of what was written, whose files are durable themselves.
            path: where it is going to be after all, if not where it was said; in the same directory. Not for remote
                stores.

        Raises:
            OSError: if that cannot be done.
            LogdirInUseError: if another chief has taken the logdir over.
        """
        if self._workshop is None:
            return written
        before, name = os.path.basename(written), os.path.basename(path or written)
        if name != before:
            self._target = os.path.join(self._directory, name)
            self._replaces = self._filesystem.is_file(f"{self._target}.index")
            for file in os.listdir(self._workshop):
                renamed = name + file.removeprefix(before)
                os.replace(os.path.join(self._workshop, file), os.path.join(self._workshop, renamed))
        self._file_count = len(os.listdir(self._workshop))
        move_into_place(self._filesystem, self._workshop, self._directory)
        self._is_published = True
        os.rmdir(self._workshop)
        return os.path.join(self._directory, name)

    def discard(self) -> None:
        """Delete what there is of it, unless it counts: once the state file names it, it stays, whatever failed then.

        One that was there before under its name stays as it was; where the move has begun, it is finished, since the
        older one's data is gone. If that fails too, the rest stays staged for the next session. What has been moved
        into place stays where another chief has taken the logdir over: it may be theirs by now. Raises nothing of all
        that.
        """
        try:
            if self._workshop is None:
                if not ((self._replaces or self._store.may_name(self._target)) and self._is_whole()):
                    self._store.delete(self._target)
            elif self._replaces and self._has_begun:
                if os.path.isdir(self._workshop):
                    move_into_place(self._filesystem, self._workshop, self._directory)
                    os.rmdir(self._workshop)
            else:
                self._take_back(self._workshop)
        except (OSError, LogdirInUseError) as error:  # the save's own error is the one to raise
            _LOG.warning("What a failed save left of %s cannot be deleted: %s", self._target, error)

    def _take_back(self, workshop: str) -> None:
        try:
            if self._has_begun and not (self._is_published and self._store.may_name(self._target)):
                self._store.delete(self._target)
        finally:  # last, since it shows what was half moved into place; no other process knows of it: it needs no check
            if os.path.isdir(workshop):
                remove_tree(workshop)

    @property
    def _has_begun(self) -> bool:
        """Whether a file of it has left the directory where it was written."""
        staged = os.listdir(self._workshop) if self._workshop and os.path.isdir(self._workshop) else []
        return self._file_count > len(staged)

    def _is_whole(self) -> bool:
        try:
            bundle.verify(self._target)
        except DamagedCheckpointError as error:
            _LOG.warning("%s was only partly replaced: %s", self._target, error)
            return False
        return True


def staging_path(prefix: str, session: str | None) -> str:
    """Return a new name for the directory in which a checkpoint is written.

    Args:
        prefix: the checkpoint's final prefix.
        session: the session that writes it; None if it does not hold the logdir.
    """
    owner = "" if session is None else f"{session}_"
    return f"{prefix}_temp_{owner}{uuid.uuid4().hex}"

"""The ledger: what each session has saved, and what it has let go, so that a kill at any moment leaks nothing.

A save is several steps: data and index are moved into place, the state file is replaced, older checkpoints are deleted.
Before the first of them the session writes down what it is about to do, in a file of its own:

``<logdir>/.supervisor.checkpoints/attempt-000012-6f1d3c0a9b7e4d21-model.ckpt.json``: the number of the attempt, the
session's id, and what its checkpoints are called (percent-encoded). It is replaced as a whole (written beside, synced,
renamed). Byte by byte: one JSON object, ASCII, then a newline (0x0a):

    "v"        1
    "session"  the session's id
    "attempt"  its number among the run's sessions
    "saved"    what is not let go, oldest first; of each [path, attempt, number, saved at]:
               the path without endings, relative to the logdir; the attempt that saved it, and the how manieth save of
               that attempt it was (from 1); wall time in seconds since the epoch
    "let_go"   what is to be deleted once the state file does not name it; of each [path, {file: written at, ...}]:
               the path as above; its files, in the order of their deletion, and when each had last been written

The session that comes next reads all of them, takes over what is still there into its own file, deletes the earlier
files, and finishes the deletions once its own first checkpoint counts. A file is deleted only if nobody has written it
since it was let go, and if the state file could be read and did not name its checkpoint.

The state file says in a comment which save it is of (`SaveId`). If the ledger knows of a later save with a higher step,
that one is resumed from: the process was killed just before it replaced the state file, or a chief that had been taken
over replaced it last. A state file that somebody edited, or another program wrote, counts as it is.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

from supervisor_core.checkpoint.filesystem import Filesystem, filesystem_for, refuse_link
from supervisor_core.checkpoint.guard import Publisher
from supervisor_core.checkpoint.lease_record import LARGEST_ATTEMPT, LATEST
from supervisor_core.checkpoint.names import CheckpointNames, deletable_files, files_of, last_part, step_in_name
from supervisor_core.checkpoint.session_history import can_follow
from supervisor_core.checkpoint.state_file import CheckpointState, SaveId, make_relative, read_state

DIRECTORY = ".supervisor.checkpoints"
"""Where in the logdir the ledgers are."""

STATE_NAME = "checkpoint"
"""The state file, as supervised sessions call it."""

VERSION = 1
MAX_BYTES = 16 << 20
"""A file that is longer is none of ours, and is not read."""

_NAME = re.compile(r"attempt-(\d{6,19})-[0-9A-Za-z]+-(.+)\.json(\.tmp[0-9a-f]{32})?")
_LOG = logging.getLogger("supervisor_core")


class SavedAs(NamedTuple):
    """A checkpoint, and which save it is of."""

    path: str
    """Relative to the logdir, without endings."""
    id: SaveId
    saved_at: float
    """Wall time, seconds since the epoch."""


class LetGo(NamedTuple):
    """A checkpoint that is to be deleted."""

    path: str
    """Relative to the logdir, without endings."""
    files: Mapping[str, float]
    """Its files, relative to the logdir, in the order of their deletion, and when each had last been written."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """What one session has written down."""

    session: str
    attempt: int
    saved: tuple[SavedAs, ...] = ()
    let_go: tuple[LetGo, ...] = ()


def encode(page: Page) -> bytes:
    """Return the bytes of a session's file."""
    content = {
        "v": VERSION,
        "session": page.session,
        "attempt": page.attempt,
        "saved": [[item.path, *item.id, item.saved_at] for item in page.saved],
        "let_go": [[item.path, dict(item.files)] for item in page.let_go],
    }
    return json.dumps(content, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"


def decode(data: bytes) -> Page:
    """Return what a session's file says.

    Raises:
        ValueError: if that cannot be understood, or a path leads out of the logdir; says why.
    """
    try:
        raw = json.loads(data.decode("ascii"))
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not isinstance(raw, dict) or raw.get("v") != VERSION:
        raise ValueError(f"it is not of version {VERSION}")
    try:
        return Page(
            session=str(raw["session"]),
            attempt=_attempt(raw["attempt"]),
            saved=tuple(
                SavedAs(_inside(path), SaveId(_attempt(attempt), int(number)), _finite(saved_at))
                for path, attempt, number, saved_at in raw["saved"]
            ),
            let_go=tuple(
                LetGo(_inside(path), {_inside(file): _finite(written_at) for file, written_at in files.items()})
                for path, files in raw["let_go"]
            ),
        )
    except (AttributeError, KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"a field is missing or of another kind: {error}") from error


def newest_attempt(logdir: str | os.PathLike[str]) -> int:
    """Return the newest attempt that a logdir's ledger or state file knows of; 0 where they know of none.

    Both count: somebody may have deleted the ledger and the lease, and a number that the state file has must not be
    given again, or what a later session saves would not count as later. Of none is known that could not be counted on.
    """
    if not logdir:
        return 0
    filesystem, name = filesystem_for(logdir)
    try:
        listing = filesystem.list_names(os.path.join(name, DIRECTORY))
    except OSError:
        listing = []
    state = read_state(os.path.join(name, STATE_NAME), filesystem=filesystem).state
    numbers = [int(match.group(1)) for match in map(_NAME.fullmatch, listing) if match]
    if state is not None and state.save_id is not None:
        numbers.append(state.save_id.attempt)
    return max([0, *filter(can_follow, numbers)])


def later_saves(state: CheckpointState | None, pages: Sequence[Page]) -> list[SavedAs]:
    """Return the saves that came after the one which a state file says it is of, newest first; see the module.

    Those of a higher step only: so what is resumed from never goes back. None where the state file does not say.
    """
    if state is None or state.save_id is None:
        return []
    step, save_id = step_in_name(state.model_checkpoint_path), state.save_id
    if step is None:
        return []
    found = {item for page in pages for item in page.saved if item.id > save_id}
    later = [item for item in found if (step_in_name(item.path) or -1) > step]
    return sorted(later, key=lambda item: item.id, reverse=True)


class Ledger:
    """The ledger of one logdir's checkpoints of one name.

    Args:
        filesystem: reads and writes; for a session that writes, one that asks before each change.
        logdir: the run's directory, as ``filesystem`` names it.
        basename: what the checkpoints' names begin with, directories below the logdir included.
    """

    def __init__(self, filesystem: Filesystem, logdir: str, basename: str) -> None:
        self._filesystem = filesystem
        self._logdir = logdir
        self._directory = os.path.join(logdir, DIRECTORY)
        self._name = quote(basename, safe="")
        self._names = CheckpointNames(last_part(basename), "")
        self._checkpoints = os.path.dirname(basename)
        """Where they are, relative to the logdir."""

    def pages(self) -> list[Page]:
        """Return what the sessions have written down, by attempts; what cannot be read or understood is left out."""
        return [page for _, page in self._found() if page is not None]

    def let_go(self) -> set[str]:
        """Return the checkpoints that are to be deleted, by the last parts of their paths."""
        pages = self.pages()
        kept = {item.path for page in pages for item in page.saved}
        return {last_part(item.path) for page in pages for item in page.let_go if item.path not in kept}

    def later_than(self, state: CheckpointState | None) -> list[SavedAs]:
        """Return `later_saves`, reading nothing where the state file does not say which save it is of."""
        return [] if state is None or state.save_id is None else later_saves(state, self.pages())

    def _found(self) -> list[tuple[str, Page | None]]:
        """Return the names of the files, temporary ones too, and what they say."""
        try:
            listing = sorted(self._filesystem.list_names(self._directory))
        except OSError:
            return []
        names = [(name, match) for name in listing if (match := _NAME.fullmatch(name)) and match.group(2) == self._name]
        return [(name, None if match.group(3) else self._read(name)) for name, match in names]

    def _read(self, name: str) -> Page | None:
        path = os.path.join(self._directory, name)
        try:
            with self._filesystem.open(path) as reader:
                if reader.size > MAX_BYTES:
                    raise ValueError(f"it has {reader.size:,} bytes, more than {MAX_BYTES:,}")
                return decode(reader.read_at(0, reader.size))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _LOG.warning("The ledger of earlier sessions cannot be read: %s: %s", path, error)
            return None


class SessionLedger(Ledger):
    """The ledger as one session keeps it. For one thread at a time.

    Args:
        filesystem: asks before each change, see `supervisor_core.checkpoint.guard.GuardedFilesystem`.
        logdir: the run's directory, as ``filesystem`` names it.
        basename: what the checkpoints' names begin with.
        publisher: the session.
    """

    def __init__(self, filesystem: Filesystem, logdir: str, basename: str, publisher: Publisher) -> None:
        super().__init__(filesystem, logdir, basename)
        self._publisher = publisher
        self._own = f"attempt-{publisher.attempt:06d}-{publisher.session}-{self._name}.json"
        self._earlier: list[str] = []
        """The files of earlier sessions, which are deleted once this one's says what they say."""
        self._saved: dict[str, SavedAs] = {}
        self._let_go: dict[str, LetGo] = {}
        self._newest: SaveId = SaveId(publisher.attempt, 0)

    def later_than(self, state: CheckpointState | None) -> list[SavedAs]:
        """Return `later_saves`; nothing is read where the state file is of this session's newest save."""
        return [] if state is None or state.save_id == self._newest else super().later_than(state)

    def take_over(self, spared: Collection[str] | None) -> None:
        """Take over what earlier sessions have written down; their deletions are finished after the next save.

        Args:
            spared: checkpoints that are not deleted, by the last parts of their paths: those that the state file names,
                and what was restored. None where the state file cannot be read: then nothing is garbage.
        """
        for name, page in self._found():
            if page is None or page.attempt < self._publisher.attempt:
                self._earlier.append(name)
            if page is not None:  # in the order of the attempts: the later one knows better
                for item in page.saved:
                    self._saved[item.path] = item
                    self._let_go.pop(item.path, None)
                for gone in page.let_go:
                    self._let_go[gone.path] = gone
                    self._saved.pop(gone.path, None)
        # What the state file names was not let go after all: the process was killed before it replaced it.
        self._let_go = {
            path: item for path, item in self._let_go.items() if spared is not None and last_part(path) not in spared
        }

    def announce(
        self, path: str, saved_at: float, *, keep: Sequence[str], let_go: Sequence[str], preserved: Sequence[str] = ()
    ) -> SaveId:
        """Write down what a save is about to do, before it does any of it; return which save it is.

        Args:
            path: where the checkpoint is going to be.
            saved_at: wall time.
            keep: the checkpoints that the state file is going to list.
            let_go: those that are going to be deleted after that.
            preserved: those that are neither listed nor deleted.

        Raises:
            OSError: if it cannot be written down.
            LogdirInUseError: if another chief has taken the logdir over.
        """
        self._newest = SaveId(self._newest.attempt, self._newest.number + 1)
        item = SavedAs(self._relative(path), self._newest, saved_at)
        self._saved[item.path] = item
        names = list(map(self._relative, keep))
        for name in (
            *names,
            *map(self._relative, preserved),
            item.path,
        ):  # saved again under its name, or let go by a save that came to nothing
            self._let_go.pop(name, None)
        kept = [self._saved[name] for name in names if name in self._saved and name != item.path]
        # What is let go stays noted until it is deleted: something may come between, whose save is not the last one.
        self._let_go |= {described.path: described for described in map(self._describe, let_go)}
        page = Page(
            session=self._publisher.session,
            attempt=self._publisher.attempt,
            saved=(*kept, item),
            let_go=tuple(self._let_go.values()),
        )
        own = os.path.join(self._directory, self._own)
        if self._newest.number == 1:
            self._filesystem.make_directory(self._directory)
        refuse_link(self._directory)
        self._filesystem.replace(own, encode(page))
        while self._earlier:
            self._remove(os.path.join(self._directory, self._earlier.pop()))
        return item.id

    def settle(self, keep: Sequence[str], deleted: Sequence[str]) -> None:
        """Say that a save is done with; delete what was let go before it, and could not be deleted until now.

        Args:
            keep: the checkpoints that the state file lists, the new one included.
            deleted: those that have been deleted since.

        Raises:
            LogdirInUseError: if another chief has taken the logdir over.
        """
        names = set(map(self._relative, keep))
        self._saved = {name: item for name, item in self._saved.items() if name in names}
        for path in deleted:
            self._let_go.pop(self._relative(path), None)
        self._delete()

    def _delete(self) -> None:
        """Delete what was let go, but no file that somebody has written since, and none that is no checkpoint's."""
        for item in list(self._let_go.values()):
            is_done = True
            own = self._own_files(item)
            for file, written_at in item.files.items():
                if file not in own:
                    continue
                path = os.path.join(self._logdir, file)
                try:
                    found = self._filesystem.modified_at(path)
                    if found is not None and found <= written_at and self._filesystem.contains(self._logdir, path):
                        self._filesystem.remove(path)
                        _LOG.info("Deleted %s, as an earlier session had planned.", path)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    is_done = False
                    _LOG.info("The old checkpoint file %s cannot be deleted: %s", path, error)
            if is_done:
                del self._let_go[item.path]

    def _own_files(self, item: LetGo) -> set[str]:
        """Return which of the files are this run's: anybody who can write into the logdir can write such a page."""
        directory = os.path.join(self._logdir, self._checkpoints)
        listing = [last_part(file) for file in item.files if os.path.dirname(file) == self._checkpoints]
        found = deletable_files(self._filesystem, directory, last_part(item.path), listing, self._names)
        return {os.path.join(self._checkpoints, file) for file in found}

    def _describe(self, prefix: str) -> LetGo:
        directory = os.path.dirname(prefix) or "."
        files = {}
        for name in files_of(last_part(prefix), self._filesystem.list_names(directory)):
            path = os.path.join(directory, name)
            try:
                written_at = self._filesystem.modified_at(path)
            except FileNotFoundError:
                continue
            if written_at is not None:
                files[self._relative(path)] = written_at
        return LetGo(self._relative(prefix), files)

    def _relative(self, path: str) -> str:
        return make_relative([path], self._logdir)[0]

    def _remove(self, path: str) -> None:
        try:
            self._filesystem.remove(path)
        except FileNotFoundError:
            pass
        except OSError as error:  # the next session tries again
            _LOG.info("The earlier session's %s cannot be deleted: %s", path, error)


def _inside(path: Any) -> str:
    """Return a path that stays in the logdir."""
    if not isinstance(path, str) or not path or path.startswith("/") or "://" in path or ".." in path.split("/"):
        raise ValueError(f"{path!r} is no path in the logdir")
    return path


def _attempt(value: Any) -> int:
    if type(value) is not int or not 0 <= value < LARGEST_ATTEMPT:
        raise ValueError(f"{value!r:.80} is no attempt")
    return value


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < LATEST:
        raise ValueError(f"{value!r} is no time")
    return float(value)

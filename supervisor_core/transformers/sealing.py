"""The `Trainer`'s own checkpoints, sealed: ``<output_dir>/checkpoint-<step>`` with our manifest in it.

The Trainer writes a checkpoint in place, under its final name, and its state (``trainer_state.json``) last. The
manifest is added when all of it is durable: a directory with a valid one is a whole checkpoint.

The Trainer also deletes: with ``save_total_limit`` the newest stay, whatever is in them. So the last good one is kept
under a second name, ``last-good-checkpoint-<step>``, as hard links, which take no space while the first name is there.
"""

from __future__ import annotations

import logging
import os
import stat
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from transformers import TrainerState

from supervisor_core.base.errors import DamagedCheckpointError, SaveFailedError, UnreadableCheckpointError
from supervisor_core.checkpoint import contents
from supervisor_core.checkpoint.contents import TRAINER_STATE
from supervisor_core.checkpoint.manifest import NAME, Manifest, list_files, refusal
from supervisor_core.checkpoint.ownership import own_there
from supervisor_core.checkpoint.recovery import Skipped
from supervisor_core.checkpoint.retention import doubt_of
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.checkpoint.sealed_store import Sealed, SealedStore
from supervisor_core.engine.deadline import NEVER, Deadline
from supervisor_core.engine.saving import loss_text
from supervisor_core.events.telemetry import Trigger
from supervisor_core.torch.tensors import tensor_with_nan
from supervisor_core.training.saver import Job, Saver
from supervisor_core.training.state import Captured

_LOG = logging.getLogger("supervisor_core")

FORMAT = contents.TRANSFORMERS
PREFIX = "checkpoint-"

NOT_OURS = ".not-ours-"
"""What the name of a directory begins with that `clear_the_way` has moved away."""

UNSEALED = "The checkpoint is not sealed: that its files are whole is not known."
UNKNOWN = "The checkpoint was not chosen by resume_from(): that its files are whole is not known."

CAPTURED = ("model", "optimizer", "scheduler", "random:python", "random:numpy", "random:torch")


def newest(directory: str, *, start_over: bool = False, trust: bool = False) -> Sealed | None:
    """Return the newest checkpoint that is sealed and verifies, and that the Trainer can load; where none is sealed,
    the newest that is complete.

    Args:
        directory: the Trainer's output directory.
        start_over: where all are damaged, return None instead of raising.
        trust: see `contents.check`.

    Raises:
        NoUsableCheckpointError: if there are sealed checkpoints, and none verifies; lists each with its damage.
        ValueError: if the directory is not local.
    """
    store = SealedStore(directory, PREFIX)
    decode = partial(_check, trust=trust)
    recovery = store.newest_usable(start_over=True, decode=decode)
    if (sealed := Sealed.chosen(recovery)) is not None:
        return sealed
    found = store.candidates()
    unsealed = [item for item in found if not os.path.lexists(os.path.join(item.path, NAME))]
    skipped = {item.path: item for item in recovery.skipped}
    for item in sorted(unsealed, key=lambda item: item.step or 0, reverse=True):
        try:
            chosen = complete(item.path)
            if chosen is None:
                continue
            decode(SealedFiles(item.path, chosen))
        except DamagedCheckpointError as error:
            skipped[item.path] = Skipped(item.path, str(error), not isinstance(error, UnreadableCheckpointError))
            continue
        others = tuple(each for each in skipped.values() if each.path != item.path)
        return Sealed(path=item.path, manifest=replace(chosen, files=()), skipped=others)
    if len(unsealed) < len(found):
        store.newest_usable(start_over=start_over, decode=decode)  # which raises
    return None


def _check(files: SealedFiles, *, trust: bool) -> None:
    """See `contents.check`; and the Trainer's state has to be one that this version takes."""
    contents.check(files, FORMAT, trust=trust, may_write=True)
    try:
        TrainerState(**contents.trainer_state(files))
    except Exception as error:
        what = f"this version of Transformers does not take it: {type(error).__name__}: {error}"
        raise UnreadableCheckpointError(f"{files.path(TRAINER_STATE)}: {what}") from error


def complete(path: str) -> Manifest | None:
    """Return a manifest for a checkpoint that is not sealed, with its files as they are; None where its saving has not
    ended.

    Raises:
        DamagedCheckpointError: if a file of it is none, or cannot be read.
    """
    try:
        step = contents.trainer_state(SealedFiles.of(path, TRAINER_STATE))["global_step"]  # before all others
        return replace(unsealed(path, step), files=list_files(path)) if type(step) is int else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refusal(path, error) from error
    except (DamagedCheckpointError, KeyError):
        return None


def unsealed(path: str, step: int) -> Manifest:
    """Return what is known of a checkpoint of the Trainer's that has no manifest: nothing of its files."""
    try:
        saved_at = os.lstat(os.path.join(path, TRAINER_STATE)).st_mtime
    except OSError:
        saved_at = 0.0
    return Manifest(format=FORMAT, step=step, saved_at=saved_at, not_captured=(UNSEALED,))


def clear_the_way(directory: str, step: int) -> bool:
    """Move away what is in the place of the checkpoint that the Trainer is about to write, if the Trainer would write
    through it into other files: it opens them by their names.

    Args:
        directory: where the Trainer saves.
        step: the step that it saves.

    Returns:
        Whether it may save there.
    """
    path = os.path.join(directory, f"{PREFIX}{step}")
    problem = _strange(path, directory)
    if problem is None:
        return True
    aside = os.path.join(directory, f"{NOT_OURS}{PREFIX}{step}-{uuid.uuid4().hex}")
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return True
    except OSError as error:
        _LOG.error("Step %d is not saved: %s, and it cannot be moved away: %s", step, problem, error)
        return False
    _LOG.warning("%s was moved to %s, so that the Trainer does not write into it: %s", path, aside, problem)
    return True


def _strange(path: str, directory: str) -> str | None:
    """Return why a directory is not only this process's; None where it is, or there is none."""
    trusted: set[int] = {0, os.geteuid()}
    knows_all = False
    waiting = [path]
    while waiting:
        item = waiting.pop()
        try:
            status = os.lstat(item)
            if stat.S_ISDIR(status.st_mode):
                waiting += [os.path.join(item, name) for name in os.listdir(item)]
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"{item} cannot be looked at ({error.strerror or error})"
        if not stat.S_ISDIR(status.st_mode):
            if item == path or not stat.S_ISREG(status.st_mode):
                return f"{item} is a symbolic link, or no regular file"
            if status.st_nlink > 1:
                return f"{item} has {status.st_nlink} names (hard links)"
        if status.st_uid not in trusted and not knows_all:
            trusted |= own_there(directory)
            knows_all = True
        if status.st_uid not in trusted:
            return f"{item} belongs to another user ({status.st_uid})"
    return None


class SealingSaver(Saver):
    """Seals what the Trainer has saved, in a thread of its own; asks the Trainer for a checkpoint that is due.

    Args:
        store: not used: the Trainer saves elsewhere.
        args: see `Saver`.
        directory: where the Trainer saves.
        restored: what it has restored.
        skipped: the checkpoints that were passed over where nothing was restored.
        deletes: whether the Trainer deletes older checkpoints.
        session: the session.
        others: see `Saver`.
    """

    format = FORMAT
    names_directory = False
    how_to_observe = "; steps that are recomputed, as after a kill, would be compared"

    def __init__(
        self,
        store: SealedStore,
        *args: Any,
        directory: str,
        restored: Sealed | None,
        skipped: Sequence[Skipped],
        deletes: bool,
        session: Any,
        **others: Any,
    ) -> None:
        own = SealedStore(directory, PREFIX, publisher=session.recorder.publisher)
        super().__init__(own, *args, session=session, **others)
        self._restored, self._passed_over, self._keeps_last_good = restored, skipped, deletes
        self.wanted: Trigger | None = None
        """What a checkpoint that the Trainer is to save was asked for by; None where none is due."""

    def path(self, step: int) -> str:
        """Return the directory of the checkpoint of a step."""
        return os.path.join(self._store.directory, f"{PREFIX}{step}")

    def read(self, start_over: bool) -> tuple[Sealed, Any] | tuple[None, Sequence[Skipped]]:
        """See `Saver.read`; the Trainer has read it."""
        if self._restored is None:
            self._skipped = self._passed_over
            return None, self._passed_over
        return self._restored, {"objects": {}, "random": {}}

    def start(self, step: int, restored: Sealed | None) -> None:
        """See `Saver.start`."""
        super().start(step, restored)
        self._skipped = ()  # they stay where they are: under another name the Trainer would count them as its own

    def is_saved(self, step: int) -> bool:
        """Return whether this step is saved, or is being sealed."""
        under_way = self._current
        return self._is_on_disk(step) or (under_way is not None and under_way.step == step)

    def hold(self, step: int) -> bool:
        """See `Saver.hold`: the state is the Trainer's to save."""
        return False

    def save_due(self, step: int, trigger: Trigger) -> bool:
        """See `Saver.save_due`; the Trainer saves it, when the callback has returned."""
        if self._current is not None:
            return False
        self._plan(step)
        if not self._is_on_disk(step):
            self.wanted = trigger
        return True

    def written(
        self,
        step: int,
        counters: Mapping[str, int],
        trigger: Trigger,
        blocked_secs: float,
        limits: tuple[str, ...] = (),
    ) -> None:
        """Seal the checkpoint of a step that the Trainer has written: in the background.

        Args:
            step: the step.
            counters: those of the checkpoint.
            trigger: why it was saved.
            blocked_secs: how long the training was blocked.
            limits: what this one does not hold, besides what none of them holds.
        """
        self._plan(step)
        captured = Captured(
            tree={},
            counters={"step": step, **counters},
            names=CAPTURED,
            not_captured=(*self._state.all_limits(), *limits),
            compared=self._state.values_now(),
            data_position=None,
        )
        job = Job(step, trigger, captured, blocked_secs)
        self._warn_of(job)
        self._put(job)

    def save(self, step: int, trigger: Trigger, deadline: Deadline = NEVER) -> str | None:
        """Wait until the step's checkpoint is sealed, and return its directory; None where the Trainer saved none.

        Raises:
            SaveFailedError: if it takes longer than the deadline.
        """
        if not self.wait_until_saved(deadline):
            raise SaveFailedError(self._hanging_text)
        if self.newest is not None and self._is_on_disk(step):
            return self.newest[0]
        _LOG.warning("The Trainer has not saved its last step. %s", loss_text(self.newest, step))
        return None

    def _write(self, job: Job) -> Sealed:
        path = self.path(job.step)
        doubt = doubt_of(self._failure, self._losses_not_finite(), _with_nan(path))
        manifest = replace(self._manifest(job), doubt=doubt)
        read_back = self._options.verify_checkpoints
        sealed = self._store.seal(path, manifest, read_back=read_back, decode=self._check_saved)
        if self._keeps_last_good and doubt is None:
            self._store.keep_last_good(sealed)
        return sealed

    def _check_saved(self, files: SealedFiles) -> None:
        """See `Saver._check_saved`: what the Trainer has written in a way of its own it may also read."""
        try:
            super()._check_saved(files)
        except DamagedCheckpointError as error:
            _LOG.warning("This checkpoint would be passed over by a restart: %s", error)


def _with_nan(directory: str) -> str | None:
    """Return the name of a tensor of the model's that has NaN; what is pickled is not looked at."""
    for name in sorted(os.listdir(directory)):
        if name.endswith(".safetensors") and (tensor := tensor_with_nan(os.path.join(directory, name))) is not None:
            return f"{name}: {tensor}"
    return None

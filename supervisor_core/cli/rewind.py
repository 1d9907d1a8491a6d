"""``tb-supervisor rewind``: lets the next start of a training resume from an earlier checkpoint."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress

import click

from supervisor_core.base.errors import DamagedCheckpointError, LogdirInUseError
from supervisor_core.base.log import error_text, printable
from supervisor_core.checkpoint.contents import FORMATS
from supervisor_core.checkpoint.guard import LOCK_NAME
from supervisor_core.checkpoint.names import basename_of, last_part
from supervisor_core.checkpoint.recovery import CheckpointKind
from supervisor_core.checkpoint.recovery import rewind as rewind_to
from supervisor_core.checkpoint.sealed_store import SealedStore
from supervisor_core.checkpoint.set_aside import LAST_GOOD
from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.cli import WrongInput, paths
from supervisor_core.engine.logdir_hold import LogdirHold
from supervisor_core.process.progress_page import pages_in
from supervisor_core.process.runtime_directory import private_directories
from supervisor_core.run.watch.liveness import chief_path, read_chief
from supervisor_core.storage.local import absolute, filesystem_for, local_path


@click.command(
    short_help="Let the next start resume from an earlier checkpoint.",
    epilog="\b\nExamples:\n  tb-supervisor rewind /runs/mnist/checkpoints/ckpt-800\n"
    "  tb-supervisor rewind /runs/mnist/model.ckpt-800",
)
@click.argument("checkpoint", shell_complete=paths)
def rewind(checkpoint: str) -> None:
    """Let the next start of a training resume from CHECKPOINT, as after a loss that became NaN.

    CHECKPOINT is a directory such as ckpt-800, or the name of a TensorFlow checkpoint without its ending. Checkpoints
    that a start would resume from before it get a new name, rewound-NAME, beside it. None is deleted.

    Exit status: 0 if the next start resumes from it; 1 if it is damaged, or one cannot be moved; 2 if there is no such
    checkpoint, or the training is alive.
    """
    path = _real(checkpoint)
    try:
        store = _store_of(path)
    except (OSError, ValueError) as error:
        raise WrongInput(f"{path} cannot be read: {error_text(error)}") from error
    try:
        logdirs = _logdirs_of(store)
        with ExitStack() as held:
            for each in logdirs:
                held.enter_context(LogdirHold(each).while_idle())
            moved = rewind_to(store, path)
    except LogdirInUseError as error:
        raise WrongInput(f"{error}. Stop the training first.") from error
    except DamagedCheckpointError as error:
        raise click.ClickException(f"Nothing was moved: {error}") from error
    except OSError as error:
        raise click.ClickException(f"Not all was moved; repeat the command: {error_text(error)}") from error
    for item in moved:
        click.echo(printable(f"Moved {item.name} to {item.path}"))
    name = last_part(path).removeprefix(LAST_GOOD)
    more = "" if moved else ", as before"
    click.echo(printable(f"The next start in {logdirs[0]} resumes from {name}{more}."))


def _store_of(path: str) -> CheckpointKind:
    """Return the checkpoints among which one is."""
    directory, name = os.path.split(path)
    own = name.removeprefix(LAST_GOOD)
    prefix = next((prefix for prefix in FORMATS if own.startswith(prefix) and own[len(prefix) :][:1].isdigit()), None)
    # An interrupted call may have given the last good checkpoint its own name again.
    has_one = prefix is not None and any(os.path.isdir(os.path.join(directory, each)) for each in (name, own))
    if prefix is not None and has_one and local_path(path) is not None:
        return SealedStore(directory, prefix)
    filesystem = filesystem_for(path)[0]
    if name in ("", ".", "..") or not filesystem.is_file(f"{path}.index"):
        raise WrongInput(f"There is no checkpoint {path}.")
    above, folder = os.path.split(directory)
    store = CheckpointStore(directory, basename_of(name))
    if folder and not filesystem.is_file(store.state_path):
        inner = CheckpointStore(above, f"{folder}/{basename_of(name)}")
        store = inner if filesystem.is_file(inner.state_path) else store
    return store


def _real(checkpoint: str) -> str:
    """Return the absolute path of a checkpoint, in its real directory: the locks on the way up to a link are others."""
    path = absolute(checkpoint.rstrip("/").removesuffix(".index"))
    if (local := local_path(path)) is None:
        return path
    directory, name = os.path.split(local)
    return os.path.join(os.path.realpath(directory), name)


def _logdirs_of(store: CheckpointKind) -> list[str]:
    """Return the logdirs whose sessions may save in a directory, the most likely first: all on the way up, since the
    nearest lock may be anybody's file; the run's directory if no lock is found.

    Raises:
        LogdirInUseError: if a process of this machine that is alive saves there.
    """
    chiefs, locks, sessions = [], [], store.sessions()
    directory, is_there = store.directory, store.filesystem.is_file
    while last_part(directory) and (local_path(store.directory) is not None or "://" in directory):
        if is_there(chief_path(directory)):
            chiefs.append(directory)
            with suppress(OSError, ValueError):  # the hold says what is wrong with it
                chief = read_chief(directory)
                sessions |= set() if chief is None or chief.yields_logdir else {chief.session}
        elif is_there(os.path.join(directory, LOCK_NAME)):
            locks.append(directory)
        directory = os.path.dirname(directory)
    for page in pages_in(private_directories()):
        if page.session in sessions and page.is_running and not page.ended:  # also after its lock was deleted
            who = f"process {page.pid} (session {page.session})"
            raise LogdirInUseError(f"The logdir {page.logdir or store.directory} is in use by {who}")
    return [*chiefs, *locks] or [store.run]

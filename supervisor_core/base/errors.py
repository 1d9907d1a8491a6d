"""What can go wrong, as types a caller can catch.

Errors of the caller's own making (a wrong argument) are plain ``ValueError`` and ``TypeError``. The rest:

    SupervisorError
    +-- OptionsError            an option that cannot be used (also a ValueError)
    +-- LogdirInUseError        another live chief holds the logdir
    +-- RanksError              the processes of a distributed training do not go together
    +-- RunFinishedError        a worker came, or waits, though the run has finished
    +-- CheckpointError
    |   +-- DamagedCheckpointError   one checkpoint's files do not verify
    |   |   +-- UnreadableCheckpointError   the file system refuses to read one; it may be whole
    |   +-- NoUsableCheckpointError  there are checkpoints, and none can be read
    |   +-- UnlistedCheckpointsError the directory of the checkpoints cannot be listed (also an OSError)
    |   +-- SaveFailedError          a checkpoint could not be saved, or saves failed too often
    +-- EventsError
    |   +-- EventsWriteError    events that could not be written (disk full, file system gone)
    |   +-- WriterClosedError   the writer was closed and not reopened
    +-- ServiceError            a service thread failed; names the service and the remedy
    +-- StalledError            there was no progress for too long, and ``Options.hang_action`` ended the session
    +-- WaitTimeoutError        what was waited for did not come in time (also a TimeoutError)

Errors that TensorFlow programs catch by TensorFlow's own types keep those types; they live in ``supervisor_core.tf1``.
"""

from __future__ import annotations

from supervisor_core.base.log import printable_lines


class SupervisorError(Exception):
    """The base of every error that this project raises on its own account. Its text may be shown on a terminal: names
    and paths in it are others' texts."""

    def __str__(self) -> str:
        return printable_lines(super().__str__())


class OptionsError(SupervisorError, ValueError):
    """An option has a value that cannot be used; the text says which, what came, and what was expected."""


class LogdirInUseError(SupervisorError, RuntimeError):
    """Another live process is the chief of this logdir; the text says which one and since when."""


class RanksError(SupervisorError, RuntimeError):
    """The processes of a distributed training do not go together, or one of them has ended; the text says how."""


class RunFinishedError(SupervisorError, RuntimeError):
    """The run that a worker was to take part in has finished; the text says when and how."""


class CheckpointError(SupervisorError, RuntimeError):
    """The base of the errors that concern checkpoints."""


class DamagedCheckpointError(CheckpointError):
    """The files of one checkpoint are missing, cut short or altered; the text says which file and where."""


class UnreadableCheckpointError(DamagedCheckpointError):
    """A file of a checkpoint is there and cannot be read (permission, I/O error). It may be whole: it is left alone."""


class NoUsableCheckpointError(CheckpointError):
    """There are checkpoints and none can be read: each is listed with its damage, rather than starting at step 0."""


class UnlistedCheckpointsError(CheckpointError, OSError):
    """The directory of the checkpoints is there and cannot be listed. No session starts at step 0 for it, and a save is
    tried again: the fault may pass."""


class SaveFailedError(CheckpointError):
    """A checkpoint could not be saved, or none can be; or more saves in a row failed than
    ``Options.max_save_failures`` allows. The text says which."""


class EventsError(SupervisorError, RuntimeError):
    """The base of the errors that concern events files."""


class EventsWriteError(EventsError):
    """Events could not be written; the text says how many were lost, where, and why.

    Args:
        message: the text.
        lost: how many events are lost for good since this was last reported.
        pending: how many are held in memory, to be written as soon as that is possible again.
    """

    def __init__(self, message: str, *, lost: int = 0, pending: int = 0) -> None:
        super().__init__(message)
        self.lost = lost
        self.pending = pending


class WriterClosedError(EventsError):
    """Something was added to a writer that was closed; call ``reopen()`` first."""


class ServiceError(SupervisorError, RuntimeError):
    """A service thread failed; the text names the service, the cause and the remedies."""


class StalledError(SupervisorError, RuntimeError):
    """A session made no progress for too long, and ``Options.hang_action`` ended it; the text says in which phase, at
    which step and where."""


class WaitTimeoutError(SupervisorError, TimeoutError):
    """What was waited for did not happen within the time allowed; the text says what it was."""

"""TensorFlow's errors: what people read of one, and which may pass."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import tensorflow as tf

from supervisor_core.base.errors import DamagedCheckpointError
from supervisor_core.tf1.tf_errors import error_text, is_outside_fault
from tests.cases import each

LOST = """Graph execution error:

=====================
UNAVAILABLE: From /job:worker/replica:0/task:0:
Socket closed
\t [[{{node global_step/Read/ReadVariableOp_S13}}]]
Recent warning and error logs:
UNAVAILABLE: From /job:ps/replica:0/task:0:
Socket closed
=====================
Additional GRPC error information from remote target /job:ps/replica:0/task:0 while calling /tensorflow.WorkerService:
:UNKNOWN:Error received from peer  {grpc_message:"Socket closed", grpc_status:14}"""


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no"), "ValueError: no"),
        (ValueError("two\n\n  lines\n"), "ValueError: two lines"),
        (ValueError(""), "ValueError: "),
        (
            tf.errors.UnavailableError(None, None, LOST),
            "UnavailableError: UNAVAILABLE: From /job:worker/replica:0/task:0: Socket closed "
            "UNAVAILABLE: From /job:ps/replica:0/task:0: Socket closed",
        ),
        (tf.errors.AbortedError(None, None, "Graph execution error:"), "AbortedError: Graph execution error:"),
        (tf.errors.AbortedError(None, None, "peer restarted"), "AbortedError: peer restarted"),
    ],
)
def test_the_cause_is_what_is_left(error: BaseException, text: str) -> None:
    """One line with the type and the cause; nothing is left out of an error that says nothing else."""
    assert error_text(error) == text


ERRORS = tf.errors


def make(kind: type[Exception], message: str = "something") -> Exception:
    """An error of TensorFlow's."""
    return kind(None, None, message)


@each(
    "error",
    [
        make(ERRORS.UnavailableError),
        make(ERRORS.DeadlineExceededError),
        make(ERRORS.ResourceExhaustedError, "OOM when allocating tensor"),
        make(ERRORS.UnknownError, "/logs/model.ckpt-5.index.tempstate8; Input/output error\n\t [[{{node SaveV2}}]]"),
        make(ERRORS.FailedPreconditionError, "/logs/model.ckpt-5.index; Read-only file system"),
        make(ERRORS.PermissionDeniedError, "/logs/model.ckpt-5.index; Permission denied [Op:SaveV2]"),
        make(ERRORS.NotFoundError, "/logs/model.ckpt-5_temp; No such file or directory"),
        make(ERRORS.AbortedError, "/logs/model.ckpt-5.index; Stale file handle"),
        make(ERRORS.InternalError, "Error executing an HTTP request: HTTP response code 500"),
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        DamagedCheckpointError("model.ckpt-5.index: it was altered"),
    ],
)
def test_what_the_outside_world_does_may_pass(error: Exception) -> None:
    """No space, an I/O error, a store that is busy, a file system that is gone: worth another try."""
    assert is_outside_fault(error)


@each(
    "error",
    [
        make(ERRORS.FailedPreconditionError, "Error while reading resource variable v: uninitialized"),
        make(ERRORS.InvalidArgumentError, "You must feed a value for placeholder 'x'; No such file or directory"),
        make(ERRORS.FailedPreconditionError, "/logs/model.ckpt-5.index; Is a directory"),
        make(ERRORS.CancelledError, "Session has been closed."),
        make(ERRORS.NotFoundError, "Resource localhost/v/N10tensorflow3VarE does not exist."),
        make(ERRORS.AbortedError, "Session handle is not found"),
        make(ERRORS.InternalError, "a bug"),
        make(ERRORS.DataLossError, "corrupted record at 7"),
        make(ERRORS.OutOfRangeError, "End of sequence"),
        ValueError("No space left on device"),
        RuntimeError("Attempted to use a closed Session."),
    ],
)
def test_what_the_program_does_stays(error: Exception) -> None:
    """A mistake, exhausted input, a session that is closed: another try is of no use."""
    assert not is_outside_fault(error)


def test_the_words_are_those_that_tensorflow_uses(tmp_path: Path) -> None:
    """A real failure of TensorFlow's to write a file is recognised."""
    with pytest.raises(ERRORS.OpError) as caught, tf.io.gfile.GFile(str(tmp_path / "no" / "file"), "w") as file:
        file.write("text")
    assert is_outside_fault(caught.value)

"""`error_text`: what people read of an error."""

from __future__ import annotations

import pytest
import tensorflow as tf

from supervisor_core.tf1.error_text import MAX_CHARS, error_text

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


def test_it_is_bounded() -> None:
    """An error with the whole graph in it does not end up in every record."""
    assert len(error_text(ValueError("x" * 100_000))) == MAX_CHARS

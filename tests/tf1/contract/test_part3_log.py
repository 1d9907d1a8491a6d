"""Contract part 3: what a program's log shows, and in which form. Programs in processes of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from forked import ForkServer

from tests.cases import each

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (?P<level>[A-Z]+) supervisor_core: (?P<text>.*)")

SEEN = [r"global_step/sec: \d", r"Saving checkpoint to path .*model\.ckpt", r"Recording summary at step \d+"]

TRAINING = """
import logging, sys, threading
import tensorflow as tf
from supervisor_core import Supervisor
seen = threading.Event()
def note(record):
    if record.getMessage().startswith("global_step/sec"):
        seen.set()
    return True
logging.getLogger("supervisor_core").addFilter(note)
with tf.Graph().as_default():
    step = tf.compat.v1.train.get_or_create_global_step()
    train_op = step.assign_add(1)
    tf.compat.v1.summary.scalar("loss", 1.0)
    supervisor = Supervisor(logdir=sys.argv[1], save_summaries_secs=0.05, save_model_secs=0.05)
    if sys.argv[2] == "INFO":
        tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)
    with supervisor.managed_session() as sess:
        sess.run(train_op)
        if sys.argv[2] == "INFO":
            while not seen.is_set():
                sess.run(train_op)
    with Supervisor(logdir=None).managed_session():  # warns: services without a logdir
        pass
"""
WARNING = "Standard services need a 'logdir' passed to the SessionManager"

SAYING = """
import logging, sys
import supervisor_core.tf1
{configured}
logging.getLogger("supervisor_core").warning("a warning")
logging.getLogger("supervisor_core").info("an info")
"""


def log_of(code: str) -> list[str]:
    """Run a program and return the lines that it logs to standard error."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def log_of_training(fork_server: ForkServer, directory: Path, level: str) -> list[str]:
    """Let the training run to its end and return the lines that it logs to standard error."""
    log = directory / "log"
    with (
        log.open("wb") as file,
        closing(fork_server.start(["-c", TRAINING, str(directory / "run"), level], stderr=file.fileno())) as process,
    ):
        assert process.wait() == 0, log.read_text()
    return log.read_text().splitlines()


def messages(lines: list[str], level: str) -> list[str]:
    """The texts of one level; every line must have time, level and name."""
    found = [LINE.fullmatch(line) for line in lines if "supervisor_core" in line or "Standard services" in line]
    assert all(found), lines
    return [match["text"] for match in found if match is not None and match["level"] == level]


def test_under_tensorflow_s_verbosity_the_original_s_messages_are_seen(tmp_path: Path, fork_server: ForkServer) -> None:
    """After set_verbosity(INFO) rates, saves and summaries are seen, each with time and name."""
    texts = messages(log_of_training(fork_server, tmp_path, "INFO"), "INFO")
    for pattern in SEEN:
        assert [text for text in texts if re.match(pattern, text)], (pattern, texts)


def test_without_set_up_warnings_are_seen(tmp_path: Path, fork_server: ForkServer) -> None:
    """A program that has set nothing up sees warnings, with time and name, and nothing below."""
    lines = log_of_training(fork_server, tmp_path, "unset")
    assert messages(lines, "WARNING") == [WARNING]
    assert messages(lines, "INFO") == []


@pytest.mark.parametrize(
    ("configured", "warnings", "infos"),
    [
        pytest.param('logging.getLogger("tensorflow").setLevel("ERROR")', 0, 0, id="tensorflow-error"),
        pytest.param('logging.getLogger("tensorflow").setLevel("INFO")', 1, 1, id="tensorflow-info"),
        pytest.param(
            'logging.getLogger("tensorflow").setLevel("ERROR")\nlogging.getLogger("supervisor_core").setLevel("INFO")',
            1,
            1,
            id="own-level",
        ),
    ],
)
def test_the_level_is_tensorflow_s_or_the_program_s_own(configured: str, warnings: int, infos: int) -> None:
    """The level is that of TensorFlow's logger, until the program sets that of this project's."""
    lines = log_of(SAYING.format(configured=configured))
    assert messages(lines, "WARNING") == ["a warning"] * warnings
    assert messages(lines, "INFO") == ["an info"] * infos


@each("logger", ["", "supervisor_core"])
def test_a_handler_of_the_program_s_own_writes_alone(logger: str) -> None:
    """Where the program has set up the root's or this project's logger, each message is written once, as it has it."""
    configured = f"""
handler = logging.StreamHandler()
handler.setFormatter(logging.Formatter("mine: %(name)s %(message)s"))
logging.getLogger({logger!r}).addHandler(handler)
"""
    assert log_of(SAYING.format(configured=configured)) == ["mine: supervisor_core a warning"]


def test_a_program_that_turns_propagation_off_hears_its_own_handlers_only() -> None:
    """With ``propagate = False`` and no handler nothing comes from here but Python's own last resort."""
    configured = 'logging.getLogger("supervisor_core").propagate = False'
    assert log_of(SAYING.format(configured=configured)) == ["a warning"]

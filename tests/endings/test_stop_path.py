"""The files that a SIGTERM passes through, until STOP is written and the lease released."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

from forked import ForkServer

SCRIPT = Path(__file__).parents[2] / "scripts/stop_path.py"
MOST_FILES = 25
"""Of the set that the script calls ``ending``, without `WATCHDOG`; a few calls depend on which thread comes first."""
WATCHDOG = {
    "process/page_writer.py",
    "process/stacks_file.py",
    "engine/timeouts.py",
    "engine/hang_stacks.py",
    "engine/hangs.py",
    "engine/liveness_writer.py",
}
"""They are on the way, too: at an end the page is closed, the timer disarmed, the file of stacks removed, and the
liveness file says how it ended."""


def test_a_signal_passes_through_few_files(fork_server: ForkServer) -> None:
    """The script sees the whole way, and the way stays short."""
    with closing(fork_server.start([str(SCRIPT)])) as process:
        report = process.stdout.read()
        assert process.wait() == 0
    sets = {name: set(files.split()) for name, files in re.findall(r"^(\w+): .*((?:\n    .*)*)", report, re.MULTILINE)}
    assert sets["ending"] < sets["deciding"] < sets["all"]
    passed = {"engine/signal_watch.py", "engine/ending.py", "engine/logdir_hold.py"}
    assert passed < sets["ending"]
    assert len(sets["ending"] - WATCHDOG) <= MOST_FILES

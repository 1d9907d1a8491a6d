"""A printed command is taken by a shell as exactly what was meant."""

from __future__ import annotations

from pathlib import Path

from pasting import NAMES, paste

from supervisor_core.base.log import command_line, printable
from tests.cases import each


def test_a_shell_takes_the_words_as_they_were(tmp_path: Path) -> None:
    """Each hostile name is one word of one command, byte by byte, and no other command is run."""
    meant = [["tb-supervisor", "inspect", f"--run={name}", "--", f"/runs/{name}"] for name in NAMES]
    assert paste([command_line(*words) for words in meant], tmp_path) == meant


def test_a_shell_without_such_quotes_runs_nothing_else(tmp_path: Path) -> None:
    """dash does not know ``$'...'``: the word may be another one there, but it stays one word."""
    calls = paste([command_line("rm", "--", name) for name in NAMES], tmp_path, shell="dash")
    assert [call[:2] for call in calls] == [["rm", "--"]] * len(NAMES)
    assert {len(call) for call in calls} == {3}


@each("name", NAMES)
def test_a_command_is_on_one_line_and_can_be_seen(name: str) -> None:
    """Nothing in it is obeyed by a terminal, so it can be printed anywhere as it is."""
    text = command_line("rm", "--", name)
    assert printable(text) == text
    text.encode()

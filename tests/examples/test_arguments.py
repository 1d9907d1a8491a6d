from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from examples.demo.__main__ import main
from tests.cases import each

ROOT = Path(__file__).parents[2]


@each(
    "args, words",
    [
        (("--steps", "many"), "invalid int value: 'many'"),
        (("--steps", "0"), "--steps is 0; expected a whole number from 1"),
        (("--twice",), "unrecognized arguments: --twice"),
        (("--logdir", str(ROOT)), "is not empty"),
        (("--logdir", __file__), "is a file"),
    ],
)
def test_wrong_arguments_give_one_line_and_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], words: str
) -> None:
    """What cannot be used ends the demo before anything starts, with one line that says why."""
    monkeypatch.setattr(sys, "argv", ["demo", *args])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: ModuleSpec(name, None))  # all is installed
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    (line,) = printed.err.splitlines()
    assert line.startswith("demo: ")
    assert words in line

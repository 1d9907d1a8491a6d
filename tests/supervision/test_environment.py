"""What a session says of where it runs."""

from __future__ import annotations

import pytest

from supervisor_core.supervision.environment import run_name, versions


@pytest.mark.parametrize(
    ("given", "logdir", "name"),
    [
        ("mine", "/logs/a", "mine"),
        (None, "/logs/a", "a"),
        (None, "/logs/a/", "a"),
        (None, "gs://bucket/logs/a", "a"),
        (None, None, "."),
        (None, "/", "."),
    ],
)
def test_a_run_is_named_after_its_directory(given: str | None, logdir: str | None, name: str) -> None:
    """Unless the program names it."""
    assert run_name(given, logdir) == name


def test_a_relative_logdir_is_named_after_what_it_is(tmp_path, monkeypatch) -> None:
    """``.`` is the directory one stands in."""
    (tmp_path / "run-7").mkdir()
    monkeypatch.chdir(tmp_path / "run-7")
    assert run_name(None, ".") == "run-7"


def test_versions_name_python_and_this_project() -> None:
    """And nothing is imported to find out."""
    assert {"python", "tensorboard-plugin-supervisor"} <= set(versions())

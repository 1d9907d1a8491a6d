"""What a session says of where it runs."""

from __future__ import annotations

import os
import socket

import pytest

from supervisor_core.supervision.environment import run_name, task_name, versions


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


PS = {"TF_CONFIG": '{"cluster": {"ps": ["a:1"], "worker": ["b:1"]}, "task": {"type": "ps", "index": 0}}'}


@pytest.mark.parametrize(
    ("given", "devices", "environ", "name"),
    [
        ("mine", "worker:1", PS, "mine"),
        (None, "worker:1", PS, "ps:0"),
        (None, "worker:1", {}, "worker:1"),
        (None, "worker:1", {"TF_CONFIG": "{}"}, "worker:1"),
        (None, None, {}, f"{socket.gethostname()}-{os.getpid()}"),
    ],
)
def test_a_process_is_named_after_its_task(
    given: str | None, devices: str | None, environ: dict[str, str], name: str
) -> None:
    """The program's word first, then the environment's, then the graph's; the last resort tells who it is."""
    assert task_name(given, devices, environ) == name


def test_a_configuration_that_makes_no_sense_is_no_reason_not_to_train(caplog) -> None:
    """It is said, and the next best name is taken."""
    assert task_name(None, "worker:1", {"TF_CONFIG": "worker:1"}) == "worker:1"
    assert "TF_CONFIG is not JSON" in caplog.text

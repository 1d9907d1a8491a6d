"""What a session says of where it runs."""

from __future__ import annotations

import pytest

from supervisor_core.supervision.environment import run_name, versions


@pytest.fixture(autouse=True)
def no_root(monkeypatch) -> None:
    """Nothing says where all runs are."""
    monkeypatch.delenv("SUPERVISOR_LOGDIR", raising=False)


@pytest.mark.parametrize(
    ("given", "logdir", "name"),
    [
        ("mine", "/logs/a", "mine"),
        (None, "/logs/a", "logs/a"),
        (None, "/data/exp1/train/", "exp1/train"),
        (None, "/data/exp2/train", "exp2/train"),
        (None, "gs://bucket/logs/a", "logs/a"),
        (None, "gs://bucket", "bucket"),
        (None, "/a", "a"),
        (None, None, "."),
        (None, "/", "."),
    ],
)
def test_a_run_is_named_after_its_place(given: str | None, logdir: str | None, name: str) -> None:
    """Unless the program names it; ``train`` alone would be the name of half of all runs."""
    assert run_name(given, logdir) == name


@pytest.mark.parametrize(
    ("root", "logdir", "name"),
    [
        ("/data", "/data/digits", "digits"),
        ("/data/", "/data/team/exp1/train", "team/exp1/train"),
        ("gs://bucket/logs", "gs://bucket/logs/a/b/c", "a/b/c"),
        ("/data", "/database/digits", "database/digits"),
        ("/data/digits", "/data/digits", "data/digits"),
    ],
)
def test_below_the_logdir_it_is_named_as_the_exporter_names_it(monkeypatch, root: str, logdir: str, name: str) -> None:
    """The environment says what the exporter's logdir is."""
    monkeypatch.setenv("SUPERVISOR_LOGDIR", root)
    assert run_name(None, logdir) == name


def test_a_relative_logdir_is_named_after_what_it_is(tmp_path, monkeypatch) -> None:
    """``.`` is the directory one stands in."""
    (tmp_path / "exp1" / "run-7").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "exp1" / "run-7")
    assert run_name(None, ".") == "exp1/run-7"


def test_versions_name_python_and_this_project() -> None:
    """And nothing is imported to find out."""
    assert {"python", "tensorboard-plugin-supervisor"} <= set(versions())

"""Names of checkpoint files are distinguished to the letter."""

from __future__ import annotations

import pytest

from supervisor_core.checkpoint.names import CheckpointNames, files_of, last_part, step_in_name


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("/logs/model.ckpt-1200", 1200),
        ("/logs/model.ckpt-00001200", 1200),
        ("/logs/run-7/model.ckpt", None),
        ("/logs/model.ckpt-abc", None),
        ("model-2-3", 3),
        ("m-99999999999999999999", None),
    ],
)
def test_the_step_in_a_name(path: str, step: int | None) -> None:
    """The number after the last hyphen, of the name alone."""
    assert step_in_name(path) == step


def test_the_last_part_of_a_path() -> None:
    """Slashes of both kinds part names."""
    assert [last_part(path) for path in ("a/b", r"a\b", "b", "/x/y\\b")] == ["b"] * 4


def test_the_files_of_one_checkpoint() -> None:
    """Exactly its own files, in the order in which they may be deleted."""
    listing = [
        "m-5.meta",
        "m-5.data-00001-of-00002",
        "m-5.data-00000-of-00002",
        "m-5.index",
        "m-50.index",
        "m-5.index.bak",
    ]
    assert files_of("m-5", listing) == ["m-5.index", "m-5.data-00000-of-00002", "m-5.data-00001-of-00002", "m-5.meta"]


def test_the_checkpoints_in_a_listing() -> None:
    """With and without a step, of one basename; never the state file."""
    names = CheckpointNames("m", "m-latest")
    listing = ["m-5.index", "m.index", "m-6", "m-latest", "mm-5.index", "m-5.data-00000-of-00001"]
    assert names.prefixes(listing) == {"m-5", "m"}

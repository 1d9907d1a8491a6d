"""`inspect` and `verify` name the same checkpoint, also where a newer one is damaged on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from supervisor_core.training import supervise


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_the_newest_whole_one(run: Callable[..., Result], tmp_path: Path, damaged: int) -> None:
    """A file of one is cut, a manifest of another is gone: both pass them over, and say why."""
    with supervise(tmp_path, save_secs=None, save_steps=1, max_to_keep=9) as training:
        for _ in training.steps(4):
            training.wait_until_saved()
    saved = tmp_path / "checkpoints"
    files = sorted(path for path in (saved / "ckpt-4").iterdir() if path.name == "tree.json")
    if damaged:
        files[0].write_bytes(files[0].read_bytes()[:-1])
    if damaged > 1:
        (saved / "ckpt-3" / "supervisor-manifest.json").unlink()
    verified = json.loads(run("verify", "--json", tmp_path).stdout)["runs"][0]
    inspected = json.loads(run("inspect", "--json", tmp_path).stdout)["runs"][0]
    assert inspected["last_good_checkpoint"]["path"] == verified["resume"] == f"{saved}/ckpt-{4 - damaged}"
    reasons = {item["step"]: item["damage"] for item in inspected["checkpoints"] if item["damage"] is not None}
    assert sorted(reasons) == [4, 3][:damaged][::-1]

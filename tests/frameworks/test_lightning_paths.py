"""Paths in Lightning's checkpoints that another user may have written."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.parametrize("is_of_callback", [True, False])
def test_paths_that_a_callback_may_remove(tmp_path: Path, is_of_callback: bool) -> None:
    """Are those in its own directory, and none for a state of no callback's."""
    pytest.importorskip("lightning", reason="lightning is not installed: make test-frameworks has it")
    from lightning.pytorch.callbacks import ModelCheckpoint

    from supervisor_core.lightning.checkpoint import drop_foreign

    models = tmp_path / "models"
    models.mkdir()
    (models / "link").symlink_to(tmp_path)
    callback = ModelCheckpoint(dirpath=models)
    own, beside = f"{models}/a.ckpt", f"{models}/../b"
    for path in (beside, str(models), f"{models}/link/b", f"local://{own}", f"{own}::{beside}", "a.ckpt", 5, "\0"):
        state = {"best_model_path": path, "kth_best_model_path": own, "best_k_models": {own: 1.0, path: 2.0}, "x": 1}
        key = callback.state_key if is_of_callback else "another"
        drop_foreign({"callbacks": {key: state}}, [callback], "file")
        kept = {"kth_best_model_path": own, "best_k_models": {own: 1.0}}
        none = {"kth_best_model_path": "", "best_k_models": {}}
        assert state == {"best_model_path": "", **(kept if is_of_callback else none), "x": 1}, path

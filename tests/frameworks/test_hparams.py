"""Hyperparameters as PyTorch and Lightning write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor_core.run.watch.logdir_watch import LogdirWatch

pytestmark = pytest.mark.timeout(600)  # Lightning is imported

GIVEN = {"lr": 0.1, "layers": 3, "amp": True, "optimizer": "adam"}


def test_pytorch_writes_them_below_the_run(tmp_path: Path) -> None:
    """``add_hparams`` makes a run of its own, named by the time; they are the training's."""
    tensorboard = pytest.importorskip("torch.utils.tensorboard", reason="PyTorch is not installed")
    with tensorboard.SummaryWriter(str(tmp_path / "a")) as writer:
        for step in range(5):
            writer.add_scalar("loss", 1.0 / (1 + step), step)
        writer.add_hparams(GIVEN, {"final": 0.5})
    runs = LogdirWatch(str(tmp_path)).refresh().runs
    assert len(runs) == 2
    assert runs["a"].run.hparams == GIVEN
    assert runs["a"].run.tag_values.of("loss") is not None


def test_lightning_writes_them_into_the_run(tmp_path: Path) -> None:
    """Nested ones are flattened, as its logger does."""
    loggers = pytest.importorskip("lightning.pytorch.loggers", reason="Lightning is not installed")
    logger = loggers.TensorBoardLogger(str(tmp_path), name="a", version="v")
    logger.log_hyperparams({**GIVEN, "data": {"batch": 32}})
    logger.log_metrics({"loss": 0.5}, step=1)
    logger.finalize("success")
    found = LogdirWatch(str(tmp_path)).refresh().runs["a/v"].run.hparams
    assert found == {**GIVEN, "data/batch": 32}

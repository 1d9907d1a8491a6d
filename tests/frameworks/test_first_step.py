"""The first step after a resume may be the last one of its epoch, or of its session: what it was made with is compared
before the program sets it for the next epoch, and before the session ends. For each callback of a framework's loop."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PER_EPOCH = 5

LIGHTNING = """
import lightning, torch
from supervisor_core.lightning import SupervisorCallback


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.drop = torch.nn.Linear(2, 1), torch.nn.Dropout(0.1)

    def on_train_epoch_start(self):
        self.drop.p = 0.6 if self.current_epoch else 0.1

    def training_step(self, batch, index):
        if self.trainer.global_step + 1 == stop:
            supervisor.run.request_stop()
        return self.drop(self.layer(batch)).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


supervisor = SupervisorCallback(logdir)
trainer = lightning.Trainer(
    accelerator="cpu", devices=1, max_epochs=3, logger=False, enable_progress_bar=False, enable_model_summary=False,
    enable_checkpointing=False, callbacks=[supervisor],
)
trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(4 * PER_EPOCH, 2), 4))
"""

TRANSFORMERS = """
import torch, transformers
from supervisor_core.transformers import SupervisorCallback


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.drop = torch.nn.Linear(2, 1), torch.nn.Dropout(0.1)

    def forward(self, x=None, labels=None):
        return {"loss": self.drop(self.layer(x)).square().mean()}


class Sets(transformers.TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step % PER_EPOCH == 0:
            net.drop.p = 0.6 if state.global_step else 0.1
        if state.global_step + 1 == stop:
            supervisor.run.request_stop()


supervisor, net = SupervisorCallback(), Net()
args = transformers.TrainingArguments(
    output_dir=logdir, num_train_epochs=3, per_device_train_batch_size=4, use_cpu=True, report_to=[],
    disable_tqdm=True, save_strategy="no",
)
data = [{"x": torch.ones(2), "labels": 0} for _ in range(4 * PER_EPOCH)]
trainer = transformers.Trainer(net, args, train_dataset=data, callbacks=[Sets(), supervisor])
trainer.train(resume_from_checkpoint=supervisor.resume_from())
"""

KERAS = """
import keras, numpy as np
from supervisor_core.keras import SupervisorCallback


class Sets(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if batch == 0 and supervisor.is_training:
            self.model.layers[0].rate = 0.6 if self.epoch else 0.1
        if supervisor.is_training and supervisor.run.global_step + 1 == stop:
            supervisor.run.request_stop()

    def get_state(self):
        return {}

    def set_state(self, state):
        pass


supervisor = SupervisorCallback(logdir)
model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dropout(0.1), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.ones((4 * PER_EPOCH, 2))
model.fit(x, x[:, :1], epochs=3, batch_size=4, verbose=0, callbacks=[Sets(), supervisor])
"""

FACADES = {"lightning": LIGHTNING, "transformers": TRANSFORMERS, "keras": KERAS}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("second", [0, 1], ids=["to the end", "one step"])
@pytest.mark.parametrize("facade", FACADES)
def test_the_first_step_is_compared(tmp_path: Path, facade: str, second: int) -> None:
    """Stopped one step before the second epoch's end: the dropout's rate, which its first batch sets, is not that."""
    for module in (facade, "torch"):
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed: make test-frameworks has it")
    program = tmp_path / "train.py"
    head = f"import sys\nPER_EPOCH, logdir, stop = {PER_EPOCH}, sys.argv[1], int(sys.argv[2])\n"
    last = "print('verdict', supervisor.exactness and supervisor.exactness.verdict)\n"
    program.write_text(head + FACADES[facade] + last)
    environment = {**os.environ, "KERAS_BACKEND": "torch", "PYTHONPATH": str(Path(__file__).parents[2])}
    first = 2 * PER_EPOCH - 1 - second
    for stop in (first, second and first + 1):
        command = [sys.executable, str(program), str(tmp_path / "run"), str(stop)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert f"at step {first} differs (0.6 before, 0.1 now)" in done.stdout.splitlines()[-1]

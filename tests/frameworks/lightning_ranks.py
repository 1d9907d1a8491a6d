"""A fit in two processes, which Lightning's own launcher starts: here by forking, since each has all that it imports.

Each rank says what it does into a file of its own. A plan is what to do at which step, on which rank.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import traceback
import uuid
import warnings
from collections.abc import Mapping
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import lightning
import torch
import torchmetrics
from lightning.fabric.strategies.launchers import subprocess_script as observer
from lightning.pytorch.strategies.launchers import subprocess_script as launcher
from torch.utils.data import DataLoader, TensorDataset

from supervisor_core.engine import worker_registry
from supervisor_core.lightning import SupervisorCallback

PAUSE = threading.Event()  # never set
worker_registry.LAST_READ_SECS = 60.0  # rank 0 reads that the others have ended, however busy the machine is
SAMPLES, BATCH, EPOCHS = 44, 4, 3
MEETING = "TEST_RANKS_MEET_AT"


class Forked:
    """The process of another rank, as `subprocess.Popen` for Lightning's launcher.

    Args:
        train: what it does.
        environment: its environment.
    """

    def __init__(self, train: Any, environment: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        self._lock = threading.Lock()
        self.pid = os.fork()
        if self.pid:
            return
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.environ.update(environment)
            train()
            os._exit(0)
        except SystemExit:
            os._exit(1)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def poll(self) -> int | None:
        """Return how it has ended; None if it has not."""
        with self._lock:  # Lightning's observer calls it, too
            if self.returncode is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
            return self.returncode

    def wait(self) -> int:
        """Wait until it has ended; return how."""
        while self.poll() is None:
            PAUSE.wait(0.01)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, signum: int) -> None:
        """Send it a signal, if it lives."""
        if self.poll() is None:
            os.kill(self.pid, signum)


class Model(lightning.LightningModule):
    """A model with batch normalization, dropout, an average over the epoch and a metric; says the samples and the bits
    of the loss of each batch."""

    def __init__(self, said: Any, plan: Mapping[str, Any]) -> None:
        super().__init__()
        self.said, self.plan = said, plan
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2)
        )
        self.mean = torchmetrics.MeanMetric()
        self.is_new = True
        self.automatic_optimization = not plan.get("manual")

    @property
    def supervisor(self) -> SupervisorCallback:
        """The callback."""
        return next(item for item in self.trainer.callbacks if isinstance(item, SupervisorCallback))

    def training_step(self, batch: Any, number: int) -> Any:
        """Do what the plan has, and say what is trained on."""
        run, exactness = self.supervisor.run, self.supervisor.exactness
        assert run is not None
        if self.is_new and exactness is not None:
            print(" ".join(("exact", *exactness.reasons)), file=self.said)
        self.is_new = False
        run.wait_until_saved()
        self.act(run)
        ids, features, labels = batch
        loss = torch.nn.functional.cross_entropy(self.layers(features + torch.randn(4)), labels)
        self.mean(loss)
        self.log("local", loss, on_epoch=True, on_step=False)
        self.log("mean", self.mean, on_epoch=True, on_step=False)
        self.log("average", loss, on_epoch=True, on_step=False, sync_dist=True)
        if not self.automatic_optimization:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        print(f"{self.current_epoch} {number} {ids.tolist()} {loss.item().hex()}", file=self.said)
        return loss

    def act(self, run: Any) -> None:
        """Do what the plan has for this rank at this step."""
        plan = self.plan
        if run.global_step != plan.get("step") or plan.get("rank") not in (None, self.global_rank):
            return
        if plan["act"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif plan["act"] == "fail":
            raise ArithmeticError("the loss exploded")
        elif plan["act"] == "hang":
            PAUSE.wait()
        elif plan["act"] == "stop":
            run.request_stop()
        else:
            for worker in multiprocessing.active_children():  # of the loader
                os.kill(worker.pid or 0, signal.Signals[plan["act"]])
            os.kill(os.getpid(), signal.Signals[plan["act"]])
            while not run._coord.should_stop():  # the signal is here: the next agreement has it
                PAUSE.wait(0.01)

    def validation_step(self, batch: Any, number: int) -> None:
        """Draws random numbers, and another number on each rank."""
        torch.rand(1 + self.global_rank)
        self.log("val", torch.nn.functional.cross_entropy(self.layers(batch[1]), batch[2]), sync_dist=True)

    def on_train_epoch_start(self) -> None:
        """Say the averages of the epoch before, which are known then; older versions call it in a resume, too."""
        self.say_averages()

    def on_train_end(self) -> None:
        """And those of the last epoch."""
        self.say_averages()

    def say_averages(self) -> None:
        """Say the averages that each rank has, and those over the ranks."""
        found = self.trainer.callback_metrics
        names = [name for name in ("local", "mean", "average", "val") if name in found]
        if names:
            print(" ".join(f"{name} {found[name].item().hex()}" for name in names), file=self.said)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """A hook that waits for the other ranks, as Lightning allows."""
        checkpoint["ranks"] = int(self.trainer.strategy.reduce(torch.ones(()), reduce_op="sum"))

    def configure_optimizers(self) -> Any:
        """An optimizer and a schedule."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=100)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def fit(
    directory: Path, plan: Mapping[str, Any] | None, *, ranks: int = 2, save_steps: int = 4, **arguments: Any
) -> None:
    """Train; the first call starts the other ranks, through Lightning's launcher."""
    plan = plan or {}
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    if not rank:
        os.environ[MEETING] = f"file://{directory}/{uuid.uuid4().hex}"
    others: list[Forked] = []

    def started(command: Any, env: Mapping[str, str], cwd: Any) -> Forked:
        others.append(Forked(lambda: fit(directory, plan, ranks=ranks, save_steps=save_steps, **arguments), env))
        return others[-1]

    launcher.subprocess.Popen = started
    meet: Any = torch.distributed.init_process_group  # over a file: a free port may be taken in between
    torch.distributed.init_process_group = partial(meet, init_method=os.environ[MEETING])
    watch: Any = observer._ChildProcessObserver
    watch.__init__ = partialmethod(watch.__init__, sleep_period=plan.get("observed", 0.05))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    lightning.seed_everything(7 + rank, verbose=False)
    said = open(directory / f"rank-{rank}", "a", buffering=1)  # noqa: SIM115
    features = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(1))
    dataset = TensorDataset(torch.arange(SAMPLES), features, torch.arange(SAMPLES) % 2)
    trainer = lightning.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", devices=ranks, strategy="ddp", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=str(directory),
        callbacks=[SupervisorCallback(directory / "run", save_secs=None, save_steps=save_steps)], **arguments,
    )  # fmt: skip
    module = Model(said, plan)
    try:
        workers = plan.get("workers", 0)
        trainer.fit(module, DataLoader(dataset, BATCH, shuffle=True, num_workers=workers), DataLoader(dataset, BATCH))
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=said)
        raise
    print("end " + sum(part.double().sum() for part in module.state_dict().values()).item().hex(), file=said)
    for other in others:
        print(f"rank {1 + others.index(other)} {other.wait()}", file=said)

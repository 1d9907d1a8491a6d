"""A ``fit`` in several processes, as of ``Trainer(devices=2, strategy="ddp")``: what is supervised, and saved.

The model, the optimizers, the loops and the callbacks are rank 0's. Each rank has its own position in the data, random
states, and metrics of the epoch under way.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from supervisor_core.base.errors import CheckpointError
from supervisor_core.lightning.checkpoint import LightningState
from supervisor_core.torch.tensors import model_limits
from supervisor_core.training.ranks import RanksState
from supervisor_core.training.state import Captured
from supervisor_core.training.tree import Room

HOOK_STATE = "The state of DistributedDataParallel's communication hook is not captured."


@dataclass(kw_only=True)
class FitRanksState(RanksState):
    """The state of one rank of a ``fit``."""

    trainer: LightningState
    """The trainer's part of it."""

    def collect(self) -> None:
        """See `RanksState.collect`. All ranks have Lightning collect its checkpoint, as `Trainer.save_checkpoint` has:
        hooks of the program may wait for the other ranks in it."""
        try:
            self.trainer.dump()
        except Exception as error:  # the other ranks wait for this one
            self.failure = error
        super().collect()

    def capture(self, step: int, *, in_place: bool = False, room: Room | None = None) -> Captured:
        """See `RanksState.capture`.

        Raises:
            CheckpointError: where the ranks have not collected it together, as after an error of rank 0.
        """
        if self._collected is None and self.failure is None:
            raise CheckpointError(
                "Rank 0 saves nothing of Lightning's alone: hooks of the program may wait for the others."
            )
        return super().capture(step, in_place=in_place, room=room)

    def release(self) -> None:
        """See `RanksState.release`."""
        super().release()
        self.trainer.release()

    def _part(self) -> dict[str, Any]:
        if self.failure is not None:
            return {"error": f"{type(self.failure).__name__}: {self.failure}"}
        return super()._part()


def module_of(trainer: Any, name: str) -> Any:
    """Return a module of the package that a `Trainer` is of: ``lightning.pytorch`` or ``pytorch_lightning``."""
    package = type(trainer.fit_loop).__module__.partition(".loops.")[0]
    return import_module(f"{package}.{name}")


def refuse_strategy(trainer: Any) -> None:
    """Do nothing, but where the processes of a ``fit`` cannot be supervised.

    Raises:
        ValueError: if they are not those of DistributedDataParallel, started outside of the program.
    """
    size = trainer.world_size
    if size == 1:
        return
    strategy = trainer.strategy
    kind = type(strategy).__name__
    theirs = module_of(trainer, "strategies")
    if not isinstance(strategy, theirs.DDPStrategy) or isinstance(
        strategy, (theirs.DeepSpeedStrategy, theirs.XLAStrategy)
    ):
        raise ValueError(
            f"SupervisorCallback supervises several processes under DistributedDataParallel only; here are {size} "
            f'under {kind}. Use Trainer(strategy="ddp"), or one process.'
        )
    method = getattr(strategy, "_start_method", "popen")
    if method != "popen":
        raise ValueError(
            f"SupervisorCallback does not supervise processes that {kind} starts by {method} (ddp_{method}, "
            f'ddp_notebook); here are {size}. Use Trainer(strategy="ddp") in a script, or torchrun.'
        )
    if getattr(strategy, "_model_averaging_period", None) is not None:
        raise ValueError(
            f"{kind}(model_averaging_period=...) trains another model on each rank between two averages, and rank 0's "
            "alone would be saved: leave it out."
        )


def limits_of(trainer: Any) -> tuple[str, ...]:
    """Return what the ranks have that no checkpoint holds: sentences."""
    size, strategy, module = trainer.world_size, trainer.strategy, trainer.lightning_module
    if size == 1:
        return ()
    hook = () if getattr(strategy, "_ddp_comm_state", None) is None else (HOOK_STATE,)
    # With manual optimization DistributedDataParallel does not broadcast rank 0's buffers before each step.
    return (*hook, *model_limits(size, strategy.model if module.automatic_optimization else module))


class _Alive:
    """In the place of the other ranks' processes: neither ended nor failed."""

    returncode = None

    def poll(self) -> None:
        """Do nothing."""

    def send_signal(self, signum: int) -> None:
        """Do nothing."""


@contextmanager
def launcher_waits() -> Iterator[None]:
    """Have Lightning's launcher, in rank 0's process, not kill this process while the block runs, though another rank
    has ended: this one writes its last checkpoint and its record. After it the launcher ends what still hangs."""
    held = [(thread, thread._child_processes) for thread in _observers()]
    for thread, _ in held:
        thread._child_processes = [_Alive()]
    try:
        yield
    finally:
        for thread, processes in held:
            if thread._child_processes:  # not where `let_ranks_end` has taken them
                thread._child_processes = processes


def let_ranks_end() -> None:
    """Have Lightning's launcher, in rank 0's process, not kill this process as soon as another rank has ended: all of
    them end by a signal, each by itself."""
    for thread in _observers():
        thread._child_processes = []


def _observers() -> list[Any]:
    return [thread for thread in threading.enumerate() if hasattr(thread, "_child_processes")]  # Lightning's

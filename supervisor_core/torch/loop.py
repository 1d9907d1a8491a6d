"""`supervised`: the batches of all epochs that are left, as one supervised session of a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from supervisor_core.engine.loop_exit import LoopExit, loop_exit
from supervisor_core.engine.timeouts import stop_timeout
from supervisor_core.errors import LogdirInUseError, RanksError
from supervisor_core.options import Options
from supervisor_core.torch.distributed_run import DistributedRun
from supervisor_core.torch.loop_frame import LoopFrame
from supervisor_core.torch.position import BATCHES, ONCE, LoaderPosition, batch_size_of, batches_of
from supervisor_core.torch.range_position import RangePosition, counts_steps
from supervisor_core.torch.ranks import Ranks, present_ranks
from supervisor_core.torch.ranks_state import NUMBER, RanksState
from supervisor_core.torch.shards import ShardFiles, Shards, is_sharded, refuse_split, shards_of
from supervisor_core.torch.tensors import KINDS, model_facts, random_sources, structure_of, thread_facts, unwrapped
from supervisor_core.torch.workers import outlive_signals
from supervisor_core.training.due import SavePolicy
from supervisor_core.training.finished_loops import finished, refuse_again
from supervisor_core.training.in_loop import InLoop, last_of_epoch
from supervisor_core.training.position import Accumulated
from supervisor_core.training.run import Run
from supervisor_core.training.state import DATA, TrainingState

LEFT = "It was saved in the middle of a batch: random numbers that the batch had drawn are drawn again."

STEPS_ONCE = "Write one loop over all of them: for step in supervised(range(max_steps), logdir, ...)."

EPOCHS_ONCE = "Write one loop over all of them: for batch in supervised(loader, logdir, epochs=3, ...)."

BUFFERS = "The statistics of BatchNorm differ from rank to rank: those of the ranks other than 0 are not captured."


def supervised(
    loader: Iterable[Any],
    logdir: str | os.PathLike[str],
    *,
    epochs: int = 1,
    model: Any,
    optimizer: Any = None,
    scaler: Any = None,
    scheduler: Any = None,
    ema: Any = None,
    state: Mapping[str, Any] | None = None,
    options: Options | None = None,
    save_secs: float | None = 600.0,
    save_steps: int | None = None,
    max_to_keep: int | None = 5,
    keep_every_n_hours: float | None = None,
    replay: bool = False,
) -> SupervisedLoop:
    """Return an iterable over the batches of all epochs that are left: a supervised session while it is iterated.

    It resumes from the newest whole checkpoint in the middle of an epoch, saves in the background, and ends between two
    steps at SIGTERM. A step is a call of ``optimizer.step()``; batches whose gradients are only accumulated are none,
    and nothing is saved after them. Where the program draws its batches itself, ``range(max_steps)`` takes the loader's
    place: the loop yields the number of each step, and a resume goes on with the next one.

    Args:
        loader: a ``DataLoader``, torchdata's ``StatefulDataLoader``, or any iterable with the same batches each epoch;
            or a range of steps.
        logdir: the run's directory, on a local or mounted file system.
        epochs: the number of passes through the loader, over all sessions of the run.
        model: a module; what ``torch.compile`` and ``DistributedDataParallel`` wrap around it is not saved.
        optimizer: its optimizer. Default: each batch is a step.
        scaler: a ``GradScaler``.
        scheduler: a learning rate scheduler.
        ema: an averaged model, or anything with ``state_dict``.
        state: more objects with ``state_dict``/``load_state_dict``, and dicts, by name.
        options: see `supervisor_core.Options`.
        save_secs: seconds between checkpoints; None saves none by time.
        save_steps: steps between checkpoints; None saves none by steps.
        max_to_keep: the number of checkpoints to keep; None keeps all.
        keep_every_n_hours: keep one checkpoint of each such period besides; None keeps none.
        replay: on a resume load the consumed batches again and drop them, for datasets that draw random numbers in the
            loader's workers; it takes as long as loading them took.

    Raises:
        ValueError: if an interval or ``epochs`` is not positive, the logdir is not local, or the loader is an iterator
            and there are several epochs; in the loop, if an epoch has no batch, or nothing is left to do and a loop of
            this process came to that end before.
        TypeError: if an object has no ``state_dict``.
        RanksError: if the optimizer is a ``ZeroRedundancyOptimizer``.

    Example:
        with supervised(loader, "/runs/mnist", epochs=3, model=model, optimizer=optimizer) as loop:
            for batch in loop:
                optimizer.zero_grad()
                loss = loss_of(model, batch)
                loss.backward()
                optimizer.step()

        ``for batch in supervised(...):`` alone works, too. An exception in its body is then recorded without its text
        until the process has ended, and with Python 3.10 and 3.11 ``sys.exit(0)`` in it counts as an error.

    """
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
        raise ValueError(f"epochs is {epochs!r}; expected a number from 1.")
    if epochs > 1 and isinstance(loader, Iterator) and type(loader).__module__ in ("builtins", "itertools"):
        raise ValueError(f"epochs is {epochs}, and the loader is a {type(loader).__name__}. {ONCE}")
    parts = {"model": unwrapped(model), "optimizer": optimizer, "scaler": scaler, "scheduler": scheduler}
    parts["ema"] = None if ema is None else unwrapped(ema)
    objects = {name: part for name, part in parts.items() if part is not None}
    clash = {DATA, *objects} & set(state or {})
    if clash:
        raise ValueError(f"state has {', '.join(sorted(clash))}, which supervised() saves already; use other names.")
    options = options or Options()
    outlive_signals(loader, stop_timeout(options))
    ranks = present_ranks()
    count = 1 if ranks is None else ranks.size
    position: LoaderPosition | RangePosition
    if counts_steps(loader, epochs):
        position, end = RangePosition(loader), loader.stop
    else:
        size = batch_size_of(loader)
        position = LoaderPosition(loader, random_sources, replay=replay, ranks=count, batch_size=size)
        end = batches_of(loader)
    if splits := isinstance(model, torch.nn.Module) and is_sharded(objects["model"]):
        objects.update(shards_of(objects["model"], optimizer, is_alone=ranks is None))
    of_model = model_facts(parts["model"], with_dtype=splits)
    shards = ShardFiles(is_split=splits, whole=ranks is None or not splits, trust=options.trust_pickled)
    training: dict[str, Any] = {
        "objects": {**objects, **(state or {}), DATA: position},
        "sources": random_sources,
        "kinds": (*KINDS, shards),
        "facts": lambda: {**_facts(loader, count, is_range=isinstance(position, RangePosition)), **of_model},
        "limits": lambda: (*position.limits, *loop.limits, *model_limits(model, count)),
    }
    named: dict[str, Any] = {
        "options": options,
        "policy": SavePolicy(
            save_secs=save_secs, save_steps=save_steps, max_to_keep=max_to_keep, keep_every_n_hours=keep_every_n_hours
        ),
        "facade": "supervised",
        "first_step": position.batch,
    }
    if ranks is None:
        run = Run(os.fspath(logdir), state=TrainingState(**training), **named)
    else:
        refuse_split(optimizer)
        split = tuple(part for part in objects.values() if isinstance(part, Shards))
        run = DistributedRun(
            os.fspath(logdir),
            state=RanksState(ranks=ranks, own=(*(state or {}), DATA), shards=split, **training),
            structure="" if splits else structure_of(objects["model"]),
            **named,
        )
    loop: SupervisedLoop = SupervisedLoop(run, position, epochs, optimizer, ranks, end, tuple(parts.values()))
    return loop


class SupervisedLoop(InLoop):
    """What `supervised` returns. Iterated once; its other methods are for the body of the loop.

    Args:
        run: the session.
        position: where the training stands in its data.
        epochs: how many there are.
        optimizer: its steps are counted; None counts batches.
        ranks: the processes of a distributed training.
        end: the number of batches in an epoch, or where the range of steps ends; -1 where it is not known.
        parts: what the program has given, as it is before it is split into shards.
    """

    def __init__(
        self,
        run: Run,
        position: LoaderPosition | RangePosition,
        epochs: int,
        optimizer: Any,
        ranks: Ranks | None,
        end: int,
        parts: tuple[Any, ...],
    ) -> None:
        self.run = run
        self._parts = parts
        self._position = position
        self._epochs = epochs
        self._ranks = ranks
        self._end = end
        self._counts_steps = isinstance(position, RangePosition)
        self._frame: LoopFrame | None = None
        self._tracks_steps = hasattr(optimizer, "register_step_post_hook")
        self._optimizer = optimizer
        self._error: BaseException | None = None
        self._generator: Generator[Any, None, None] | None = None
        self._stepped = self._was_left = self._is_entered = self._is_begun = False
        self._accumulated = Accumulated()
        self._writer: Any = None
        run.save_point.moment = self._moment

    @property
    def limits(self) -> tuple[str, ...]:
        """What a checkpoint of this moment does not capture: sentences."""
        of_frame = () if self._frame is None else self._frame.limits
        return (*((LEFT,) if self._was_left else ()), *self._accumulated.limits, *of_frame)

    @property
    def epoch(self) -> int:
        """The present epoch, from 0."""
        return self._position.epoch

    @property
    def batch(self) -> int:
        """The number of the present batch in its epoch, from 0; that of the present step in a loop over a range."""
        return self._position.batch

    @property
    def writer(self) -> Any:
        """A ``torch.utils.tensorboard.SummaryWriter`` that writes into the run's one events file."""
        if self._writer is None:
            from supervisor_core.torch.writer import summary_writer

            self._writer = summary_writer(self.run)
        return self._writer

    def log(self, tag: str | Mapping[str, Any], value: Any = None) -> None:
        """Write scalars of the present step; see `supervisor_core.Run.log`."""
        self.run.log(tag, value)

    def __enter__(self) -> SupervisedLoop:
        """Return this; an exception in the block is then the session's error. Nothing begins before the loop."""
        self._is_entered = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        """End the session that a ``break`` or an exception has left open."""
        self._error = error
        if self._generator is not None:
            self._generator.close()

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches that are left, of all epochs; restores first."""
        if self._is_begun:
            raise RuntimeError(
                "This supervised() was iterated before, and its session has ended with that loop. Write one loop over "
                "all epochs, or call supervised() again: it goes on from the last step."
            )
        self._is_begun = True
        generator = self._supervised()
        if self._is_entered:  # else nothing may hold it: a loop that is left has to end it
            self._generator = generator
        return generator

    def _supervised(self) -> Generator[Any, None, None]:
        """Yield the batches that are left, of all epochs; restores first."""
        hook = None
        if self._tracks_steps:
            hook = self._optimizer.register_step_post_hook(self._note_step)
        error: BaseException | None = None
        left: LoopExit | None = None
        try:
            self._begin()
            run, position, accumulated = self.run, self._position, self._accumulated
            run.save_point.is_in_step = True  # until the loop ends: each step's end asks for what is due
            is_stopped, step, counts_batches = run.stop_probe(), run.step, not self._tracks_steps
            frame: LoopFrame | None = self._look(sys._getframe(1))
            last, has_batches = self._end - 1, False
            while position.epoch < self._epochs:
                if is_stopped() and self._is_at_boundary:
                    return  # before the epoch's order is drawn
                for batch in position.batches():
                    self._stepped, has_batches = False, True
                    if position.batch == last:
                        with last_of_epoch(run):
                            yield batch
                    else:
                        yield batch
                    position.batch += 1
                    if frame is not None:
                        frame.step_ended(sys._getframe(1))
                        frame = None
                    if (self._stepped or counts_batches) and not accumulated.count:
                        step()
                    else:
                        self._count()
                    if is_stopped() and self._is_at_boundary:
                        return  # before the next batch draws random numbers
                position.next_epoch()
            if not has_batches:  # where the last checkpoint is of the last batch, its epoch had not ended
                refuse_again(run.logdir, *self._progress, self._once)
            finished(run.logdir, *self._progress)
        except GeneratorExit:  # the loop was left in its body
            left = LoopExit(self._error is not None, self._error) if self._is_entered else loop_exit()
            raise
        except BaseException as raised:
            error = raised
            raise
        finally:
            if hook is not None:
                hook.remove()
            self.run.save_point.is_in_step = False
            if left is None:
                self.run.__exit__(None if error is None else type(error), error, None)
            else:
                self._leave(left)

    def _begin(self) -> None:
        present = present_ranks()
        if (present is None) != (self._ranks is None):
            raise RanksError(
                "torch.distributed was initialised, or destroyed, after supervised() was called: call "
                "init_process_group() before supervised(), and destroy_process_group() after the loop."
            )
        try:
            self.run.__enter__()
            refuse_again(self.run.logdir, *self._progress, self._once)
        except LogdirInUseError as error:
            if present is not None or int(os.environ.get("WORLD_SIZE", "1") or 1) == 1:
                raise
            raise LogdirInUseError(
                f"{error} This is one of {os.environ['WORLD_SIZE']} processes (WORLD_SIZE), and torch.distributed is "
                "not initialised: call torch.distributed.init_process_group() before supervised()."
            ) from error

    def _look(self, frame: FrameType) -> LoopFrame:
        """Look at the variables around the loop, before its first step."""
        captured = (*self._parts, *self.run.state.objects.values(), *self._position.generators())
        self._frame = LoopFrame(frame, captured, is_range=self._counts_steps)
        return self._frame

    @property
    def _progress(self) -> tuple[str, int, int]:
        """What is counted, how many there are, and how many are done."""
        if self._counts_steps:
            return "steps", self._end, self._position.batch
        return "epochs", self._epochs, self._position.epoch

    @property
    def _once(self) -> str:
        return STEPS_ONCE if self._counts_steps else EPOCHS_ONCE

    @contextmanager
    def _moment(self) -> Iterator[int | None]:
        """A phase begins in the loop's body: after the step of its batch, as an evaluation, or before it."""
        is_done = self._stepped or not self._tracks_steps
        if self._accumulated.count or (not is_done and self._has_gradients):
            yield None
            return
        self._position.batch += is_done
        self._was_left = True
        try:
            yield self.run.global_step + is_done
        finally:
            self._position.batch -= is_done
            self._was_left = False

    def _leave(self, left: LoopExit) -> None:
        """The loop was left in its body: count its step if it was made, and remember if not."""
        self._was_left = True  # what the rest of the body would have done is not known
        if left.is_clean and self._stepped:
            self._position.batch += 1
            self._count()
        self.run.left_by(left)

    def _count(self) -> None:
        """The body of the loop has ended: count its step, if the optimizer made one. In a loop over a range each body
        is a step; it is not saved while gradients are accumulated. A scaler leaves the optimizer's step out, too."""
        if self._stepped or not self._tracks_steps or (self._counts_steps and not self._has_gradients):
            self._accumulated.stepped()
            self.run.step()
            return
        self._accumulated.add()
        if self._counts_steps:
            self.run.count_step()
        else:
            self.run.moved()

    @property
    def _has_gradients(self) -> bool:
        parameters = (part for group in self._optimizer.param_groups for part in group["params"])
        return any(part.grad is not None for part in parameters)

    @property
    def _is_at_boundary(self) -> bool:
        """Whether no gradients are accumulated: also where more batches than ever made no step."""
        return not self._accumulated.count or self._accumulated.is_longest

    def _note_step(self, *_: Any) -> None:
        self._stepped = True


def model_limits(model: Any, ranks: int) -> tuple[str, ...]:
    """Return what a model has of which not all is captured: sentences.

    Args:
        model: with what ``DistributedDataParallel`` wraps around it.
        ranks: how many processes train it.
    """
    is_alike = ranks == 1 or getattr(model, "broadcast_buffers", False)  # DistributedDataParallel's
    norms = (torch.nn.modules.batchnorm._BatchNorm, torch.nn.modules.instancenorm._InstanceNorm)
    own = (
        part
        for part in ([] if is_alike else model.modules())
        if isinstance(part, norms) and not isinstance(part, torch.nn.SyncBatchNorm) and part.track_running_stats
    )
    return (BUFFERS,) if any(True for _ in own) else ()


def _facts(loader: Any, ranks: int, *, is_range: bool = False) -> dict[str, str]:
    """Return what has to be the same for an exact resume; a range of steps may become longer."""
    facts = {**thread_facts(), NUMBER: str(ranks)}
    if is_range:
        return facts
    if hasattr(loader, "num_workers"):
        facts["number of workers"] = str(loader.num_workers)
    if (size := batch_size_of(loader)) is not None or hasattr(loader, "batch_size"):
        facts["batch size"] = str(size)
    dataset: Any = getattr(loader, "dataset", None)
    if hasattr(dataset, "__len__"):
        facts["number of samples"] = str(len(dataset))
    if (batches := batches_of(loader)) >= 0:
        facts[BATCHES] = str(batches)
    return facts

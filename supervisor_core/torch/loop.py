"""`SupervisedLoop`: the batches of all epochs that are left, as one supervised session of a run."""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from types import GeneratorType
from typing import Any

import torch

from supervisor_core.base.errors import LogdirInUseError, RanksError
from supervisor_core.engine.loop_exit import LoopExit, loop_exit
from supervisor_core.torch.accelerated import unprepared
from supervisor_core.torch.optimizer_steps import OptimizerSteps, UnsavedOptimizers
from supervisor_core.torch.position import EMPTY, LoaderPosition, RangePosition, batches_of, loader_facts
from supervisor_core.torch.ranks import TorchRanks, present_ranks
from supervisor_core.torch.workers import release
from supervisor_core.training import random_state
from supervisor_core.training.in_loop import InLoop, end_of_epoch, last_of_epoch
from supervisor_core.training.position import Accumulated
from supervisor_core.training.run import Run
from supervisor_core.training.step_loop import finished, refuse_again
from supervisor_core.training.values import Values
from supervisor_core.training.variables import asking

LEFT = "It was saved in the middle of a batch: random numbers that the batch had drawn are drawn again."

RANGE_ONCE = "Write one loop over all of them: for step in supervised(range(max_steps), logdir, ...)."

EPOCHS_ONCE = "Write one loop over all of them: for batch in supervised(loader, logdir, epochs=3, ...)."


_asking = partial(asking, __name__)
"""Returns the frame of the program that asks for a batch."""


class SupervisedLoop(InLoop):
    """What `supervised` returns. Iterated once; its other methods are for the body of the loop.

    Args:
        run: the session.
        loader: the loader, or the range of steps.
        position: where the training stands in its data.
        limits: where the training ends: the number of "epochs", of "steps", or both.
        optimizers: their steps are counted; without any, batches are.
        ranks: the processes of a distributed training.
        parts: what the program has given, as it is before it is split into shards.
        given: the models, the optimizers and the loader, by name.
    """

    def __init__(
        self,
        run: Run,
        loader: Any,
        position: LoaderPosition | RangePosition,
        limits: Mapping[str, int],
        optimizers: Mapping[str, Any],
        ranks: TorchRanks | None,
        parts: tuple[Any, ...],
        given: Mapping[str, Any],
    ) -> None:
        self.run = run
        self._parts = parts
        self._loader = loader
        self._dataset: Any = None
        self._position = position
        self._limits = limits
        self._ranks = ranks
        self._counts_steps = isinstance(position, RangePosition)
        self._end: int = loader.stop if self._counts_steps else batches_of(loader)
        self._values: Values | None = None
        self._steps = OptimizerSteps(optimizers)
        self._given = dict(given)
        self._unsaved = UnsavedOptimizers((*parts, *run.state.objects.values()))
        self._error: BaseException | None = None
        self._generator: Generator[Any, None, None] | None = None
        self._was_left = self._is_entered = self._is_begun = self._has_batches = False
        self._is_enumerated, self._looks = False, True
        self._pass: EpochPass | None = None
        self._has_ended = False
        self._accumulated = Accumulated()
        self._writer: Any = None
        run.save_point.moment = self._moment

    @property
    def limits(self) -> tuple[str, ...]:
        """What a checkpoint of this moment does not capture: sentences."""
        is_whole = self._pass is not None and self._position.batch in (0, self._end)
        enumerated = (ENUMERATED,) if self._is_enumerated and not is_whole else ()
        left = (() if self._pass is None else self._pass.limits) or ((LEFT,) if self._was_left else ())
        if self.run.goal.is_finished:  # as for early stopping, `finish` and `break`: nothing follows
            left = ()
        return (*left, *self._accumulated.limits, *self._steps.limits, *enumerated, *self._unsaved.limits)

    def _loader_facts(self) -> dict[str, str]:
        """What of the loader has to be the same for an exact resume; a range of steps may become longer."""
        return {} if self._counts_steps else loader_facts(self._loader)

    @property
    def epoch(self) -> int:
        """The present epoch, from 0."""
        return self._position.epoch

    @property
    def batch(self) -> int:
        """The number of the present batch in its epoch, from 0; that of the present step in a loop over a range."""
        return self._position.batch

    @property
    def is_last(self) -> bool:
        """Whether the present batch is the last one of its epoch; for the loop's body. `TypeError` for a loader without
        a length."""
        if self._end < 0:
            raise TypeError("The loader has no length: use epochs(), and do what ends an epoch after its batches.")
        return self._position.batch == self._end - 1

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

    def __len__(self) -> int:
        """Return the number of batches in an epoch, as the loader does."""
        if self._end < 0:
            raise TypeError("The loader has no length.")
        return self._end

    @property
    def dataset(self) -> Any:
        """The loader's dataset."""
        return self._dataset if self._loader is None else self._loader.dataset

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches that are left, of all epochs; within a loop over `epochs` those of that epoch."""
        if self._pass is not None:
            return self._pass.batches()
        return self._once(self._all_batches())

    def epochs(self) -> Iterator[int]:
        """Yield the number of each epoch that is left, from 0: for a program with a loop over epochs of its own, which
        iterates over this in each of them.

        What follows the batches, as an evaluation or ``scheduler.step()``, belongs to the epoch: a checkpoint is of
        before it, or of after it. Where the training ends within an epoch, the session ends with the inner loop.

        Raises:
            ValueError: if the loader is a range.
            RuntimeError: in the loop, if the program has not iterated over this in the epoch.

        Example:
            for epoch in loop.epochs():
                train(model, loop, optimizer)
                test(model, test_loader)
                scheduler.step()
        """
        if self._counts_steps:
            raise ValueError("The loader is a range of steps, which has no epochs: iterate over the loop itself.")
        self._pass = EpochPass(self)
        return self._once(self._pass.epochs())

    def _once(self, items: Generator[Any, None, None]) -> Iterator[Any]:
        if self._is_begun:
            raise RuntimeError(
                "This supervised() was iterated before, and its session has ended with that loop. Write one loop over "
                "all epochs, or call supervised() again: it goes on from the last step."
            )
        self._is_begun = True
        generator = self._supervised(items)
        if self._is_entered:  # else nothing may hold it: a loop that is left has to end it
            self._generator = generator
        return generator

    def _all_batches(self) -> Generator[Any, None, None]:
        while self._has_epoch():
            if not (yield from self._batches()):
                break
            self._next_epoch()

    def _next_epoch(self) -> None:
        if (said := self._position.next_epoch()) is not None:
            self.run.notify(said)

    def _has_epoch(self) -> bool:
        """Whether an epoch is to begin, or to go on: before its order is drawn."""
        run, is_left = self.run, self._position.epoch < self._limits.get("epochs", math.inf)
        return (
            is_left
            and run.global_step < run.goal.until
            and not (run.should_stop() and self._accumulated.is_at_boundary)
        )

    def _batches(self) -> Generator[Any, None, bool]:
        """Yield the batches that are left of the present epoch; return whether it is over then."""
        run, position, steps, accumulated = self.run, self._position, self._steps, self._accumulated
        is_stopped, step, counts_batches, goal = run.stop_probe(), run.step, not steps.are_seen, run.goal
        if self._values is None:
            self._look()
        elif self._pass is not None:
            self._values.compare(_asking())  # the program has begun an epoch
        last = self._end - 1
        for batch in position.batches():
            steps.made, self._has_batches = 0, True
            if position.batch == last:
                with last_of_epoch(run):
                    yield batch
            else:
                yield batch
            position.batch += 1
            if self._looks:  # also where a resume finds no batch left of its epoch
                self._looks = run.first_step_ended(_asking(), batch)
                self._is_enumerated = not self._counts_steps and _is_enumerated()
                self._unsaved.first_ended()
            if (steps.made or counts_batches) and not accumulated.count:
                step()
            else:
                self._count()
            if (is_stopped() or run.global_step >= goal.until) and self._accumulated.is_at_boundary:
                return position.batch > last >= 0 and not is_stopped()  # before the next batch draws random numbers
        was_empty = isinstance(position, LoaderPosition) and not (position.batch or position.is_over)
        if was_empty and "epochs" not in self._limits:  # no number of such epochs makes a step
            raise ValueError(EMPTY.format(type(self._loader).__name__))
        return True

    def _supervised(self, items: Generator[Any, None, None]) -> Generator[Any, None, None]:
        """Yield the items, within the session; restores first."""
        self._steps.begin()
        error: BaseException | None = None
        left: LoopExit | None = None
        try:
            self._begin()
            self.run.save_point.is_in_step = True  # until the loop ends: each step's end asks for what is due
            yield from items
            if not self._has_batches:  # where the last checkpoint is of the last batch, its epoch had not ended
                self._refuse_again()
            for progress in self._progress:
                finished(self.run.logdir, *progress)
        except GeneratorExit:  # the loop was left in its body
            left = LoopExit(self._error is not None, self._error) if self._is_entered else loop_exit()
            raise
        except BaseException as raised:
            error = raised
            raise
        finally:
            if left is None:
                self._end_session(error)
            elif not self._has_ended:
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
            self._refuse_again()
            self.run.goal.limit(self._limits, self.run.global_step)
        except LogdirInUseError as error:
            if present is not None or int(os.environ.get("WORLD_SIZE", "1") or 1) == 1:
                raise
            raise LogdirInUseError(
                f"{error} This is one of {os.environ['WORLD_SIZE']} processes (WORLD_SIZE), and torch.distributed is "
                "not initialised: call torch.distributed.init_process_group() before supervised()."
            ) from error

    def _end_session(self, error: BaseException | None = None) -> None:
        """End the session: at the loop's end, and where a training ends within an epoch of a loop over `epochs`."""
        self._has_ended = True
        self._look_no_more()
        try:
            self.run.__exit__(None if error is None else type(error), error, None)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Hold the loader no more: its persistent workers end with the last reference to it."""
        if not self._counts_steps and self._loader is not None:
            release(unprepared(self._loader))
            self._dataset = getattr(self._loader, "dataset", None)
            self._position.let_go()
            self._loader = self._values = self.run.state.values = None
            self._given.clear()  # what looked at it holds it, too
            self._unsaved = UnsavedOptimizers(())

    def _look_no_more(self) -> None:
        self._steps.end()
        self._unsaved.close()
        self.run.save_point.is_in_step = False

    def _look(self) -> None:
        captured = (*self._parts, *self.run.state.objects.values(), *self._position.generators())
        position = self._position
        epoch = None if self._pass is None else lambda: position.epoch
        counts = self._counts_steps
        self._values = Values(
            captured, self._given,
            is_range=counts, by_steps=counts, epoch=epoch, argument=_argument, unwrap=unprepared,
        )  # fmt: skip
        self.run.watch_values(self._values, _asking())
        self._unsaved.start(self._values)

    @property
    def _progress(self) -> list[tuple[str, int, int]]:
        done = {"epochs": self._position.epoch, "steps": self.run.global_step}
        return [(what, until, done[what]) for what, until in self._limits.items()]

    def _refuse_again(self) -> None:
        for progress in self._progress:
            refuse_again(self.run.logdir, *progress, RANGE_ONCE if self._counts_steps else EPOCHS_ONCE)

    @contextmanager
    def _moment(self) -> Iterator[int | None]:
        """A phase begins in the loop's body: after the step of its batch, as an evaluation, or before it."""
        if self._pass is not None and not self._pass.is_open:
            yield self.run.global_step if self._pass.is_whole and not self._accumulated.count else None
            return
        is_done = bool(self._steps.made) or not self._steps.are_seen
        if self._accumulated.count or (not is_done and self._steps.has_gradients):
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
        self._was_left = True  # what the rest would have done is not known
        if self._pass is not None and not self._pass.is_open:
            self._pass.left()
        elif left.is_clean:
            self._body_left()
        self._look_no_more()
        try:
            self.run.left_by(left)
        finally:
            self._let_go()

    def _body_left(self) -> None:
        """The body was left by ``break``: count its step if it was made."""
        if self._steps.made:
            self._position.batch += 1
            self._count()

    def _count(self) -> None:
        """The body of the loop has ended: count its step, if the optimizer made one. In a loop over a range each body
        is a step; it is not saved while gradients are accumulated. A scaler leaves the optimizer's step out, too."""
        steps = self._steps
        if steps.made or not steps.are_seen or (self._counts_steps and not steps.has_gradients):
            self._accumulated.stepped()
            self.run.step()
            return
        self._accumulated.add()
        if self._counts_steps:
            self.run.count_step()
        else:
            self.run.moved()


ENUMERATED = (
    "The numbers of enumerate() around the loop begin again at 0 where an epoch goes on: if more than the log depends "
    "on them, use loop.batch."
)
GIVEN = "The state of {0} is not captured. Give it to supervised(): %s={0}."


def _is_enumerated() -> bool:
    """Return whether an ``enumerate`` asks for the present item: one over a generator that is running."""
    objects = gc.get_objects()
    if enumerate not in map(type, objects):  # a look at each object of the process takes 10 ms
        return False
    found = (inner for item in objects if type(item) is enumerate for inner in gc.get_referents(item))
    return any(isinstance(inner, GeneratorType) and inner.gi_running for inner in found)


def _argument(value: Any, name: str) -> str | None:
    """Return what is said of an object that an argument of `supervised` captures; None for any other."""
    kinds = {"optimizer": torch.optim.Optimizer, "scheduler": torch.optim.lr_scheduler.LRScheduler}
    kinds |= {"scaler": torch.amp.GradScaler, "ema": torch.optim.swa_utils.AveragedModel}
    found = next((argument for argument, kind in kinds.items() if isinstance(value, kind)), None)
    found = "ema" if found is None and "ema" in name.lower() else found
    return None if found is None else GIVEN % found


LEFT_AFTER = "It was saved when the loop over epochs had been left: what follows the batches may be left out."
NOT_ITERATED = (
    "The epoch has ended, and its batches were not asked for: iterate over the loop in it, as in "
    "`for epoch in loop.epochs():` and `for batch in loop:`, in place of the loader."
)
AGAIN = "The batches of this epoch were iterated before: iterate over the loop once in each epoch."


class EpochPass:
    """The epochs of a program that has a loop over them of its own, ``for epoch in loop.epochs():``.

    In an epoch there is what the program does before its batches, the loop over the batches, and what follows them, as
    an evaluation or ``scheduler.step()``. A checkpoint is of a moment between two batches, or of the epoch's end:

        before the batches    nothing is saved; a resume within the epoch comes here again, and the random states are
                              set to those of the save when the batches begin
        after the last batch  a checkpoint says that the batches are over: a resume goes on with what follows them
        what follows them     nothing is saved, but at a signal: a copy of the moment before, which is kept meanwhile
        the epoch's end       the position is that of the next epoch; the same step is saved once more if that is due

    So what follows the batches is done once, wherever the process is killed. A training that ends within an epoch ends
    its session when the loop over the batches ends: what follows them is not in its checkpoint.

    Args:
        loop: the session's.
    """

    def __init__(self, loop: SupervisedLoop) -> None:
        self._loop = loop
        self._is_asked = self._is_after = False
        self._random: Any = None
        self._after = ExitStack()
        self.limits: tuple[str, ...] = ()
        """What a checkpoint of this moment does not capture: sentences."""
        self.is_open = False
        """Whether the loop over the batches is under way."""
        self.is_whole = False
        """Whether the state is that of the moment after a batch, and its step is counted."""

    def epochs(self) -> Generator[int, None, None]:
        """Yield the epochs that are left."""
        loop, run, position = self._loop, self._loop.run, self._loop._position
        while not loop._has_ended and loop._has_epoch():
            self._is_asked = False
            if position.batch:  # a resume
                self._random = random_state.capture(run.state.sources())
                loop._steps.made_before()
            yield position.epoch
            if self._has_ended():
                return
            if self.is_open:  # the program has caught what has ended the loop over the batches
                self._left_by_break()
            if not self._is_asked:
                raise RuntimeError(NOT_ITERATED)
            self._is_after = False
            self._after.close()
            if loop._values is not None:
                loop._values.compare(_asking(), is_whole=False)  # the program's number of the epoch is still this one's
            loop._next_epoch()
            run.state_changed()
            if loop._accumulated.is_at_boundary:
                run.save_if_due()

    def batches(self) -> Generator[Any, None, None]:
        """Yield the batches that are left of the present epoch."""
        loop = self._loop
        if loop._has_ended:
            return
        if self._is_asked:
            raise RuntimeError(AGAIN)
        self._is_asked = self.is_open = True
        if self._random is not None:
            random_state.restore(loop.run.state.sources(), self._random)
            self._random = None
        try:
            is_over = yield from loop._batches()
        except GeneratorExit:
            if loop_exit().is_by_error is False:
                self._left_by_break()
            raise
        self.is_open = False
        if is_over:
            self._follows()
        else:
            loop._end_session()

    def _has_ended(self) -> bool:
        return self._loop._has_ended

    def left(self) -> None:
        """The loop over the epochs was left by ``break`` or an exception, after the batches."""
        if not self._is_after:
            return
        self.limits = (LEFT_AFTER,)
        position = self._loop._position
        if position.is_over:
            position.is_over = False  # both loops were left, one after the other: as one is left in its body
        else:
            position.next_epoch()
        self._after.close()
        self._loop.run.state_changed()

    def _left_by_break(self) -> None:
        """The loop over the batches was left by ``break``: this epoch has no more of them."""
        self._loop._position.is_over = True
        self._loop._body_left()
        self.is_open = False
        self._follows()

    def _follows(self) -> None:
        self.is_whole = self._is_after = True
        self._after.enter_context(end_of_epoch(self._loop.run))
        self.is_whole = False

"""`supervised`: a training loop of JAX as one supervised session of a run."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any

import jax

from supervisor_core.base.errors import CheckpointError, SaveFailedError
from supervisor_core.base.options import Options
from supervisor_core.engine.loop_exit import LoopExit, loop_exit
from supervisor_core.jax.arrays import (
    JaxArrays,
    arrays_of,
    from_tree,
    is_in_place,
    local,
    on_devices,
    pytree_of,
    to_tree,
)
from supervisor_core.jax.ranks import JaxRanksState, present_ranks
from supervisor_core.jax.shards import ShardedArrays, is_key, sharded_in, write_pieces
from supervisor_core.training.distributed_run import DistributedRun
from supervisor_core.training.in_loop import InLoop
from supervisor_core.training.objects import Access, access
from supervisor_core.training.ranks import NUMBER
from supervisor_core.training.run import Run
from supervisor_core.training.save_point import SavePolicy
from supervisor_core.training.state import BY_STEP, DATA, TrainingState, digest
from supervisor_core.training.tree import NumpyArrays, copy_tree
from supervisor_core.training.values import CARRIED, GENERATOR

MOST_AHEAD = 8
"""Steps by which the program may be ahead of a loss that it logged."""

NOT_SET = "run.state was not set in the loop: it is what it was at the start. Set it in each step, as run.state = ..."
LEFT = "It was saved in the middle of a step: its batch is left out."
KEY = (
    "The random key in {} is not captured. Keep it in run.state, or make the step's key of the number of the step: "
    "jax.random.fold_in(key, step)."
)
MEAN = (
    "A step has changed the arrays in {}: if a later step uses what is left there, as a mean, it is not captured. Keep "
    "it in run.state."
)


def supervised(
    logdir: str | os.PathLike[str],
    *,
    state: Any,
    data: Any = None,
    options: Options | None = None,
    save_secs: float | None = 600.0,
    save_steps: int | None = None,
    max_to_keep: int | None = 5,
    keep_every_n_hours: float | None = None,
) -> SupervisedTraining:
    """Return one supervised session of a training, to be entered with ``with``.

    It resumes from the newest whole checkpoint, saves in the background, and ends between two steps at SIGTERM. In
    several processes (``jax.distributed``) each calls it with the same logdir, on a file system that they share: they
    stop and save after the same step, and process 0 writes.

    Args:
        logdir: the run's directory, on a local or mounted file system.
        state: a pytree: best a dict of parameters, optimizer state and random keys by name; also a train state of
            Flax. Objects of Flax NNX, and others with ``get_state``/``set_state``, are values of that dict, and are
            restored in place. Otherwise what was restored is ``run.state``.
        data: an iterator with ``get_state`` and ``set_state``, as those of Grain; or ``"step"``, if the number of the
            step alone decides the batch. Default: its position is not saved, and a resume is not called exact.
        options: see `supervisor_core.Options`.
        save_secs: seconds between checkpoints; None saves none by time.
        save_steps: steps between checkpoints; None saves none by steps.
        max_to_keep: the number of checkpoints to keep; None keeps all.
        keep_every_n_hours: keep one checkpoint of each such period besides; None keeps none.

    Raises:
        ValueError: if an interval is not positive, or the logdir is not local.
        TypeError: if ``data`` is neither.
        RanksError: if there are several processes, and ``jax.distributed`` was not initialised.

    Example:
        with supervised("/runs/mnist", state={"params": params, "opt_state": opt_state}, data=batches) as run:
            for step in run.steps(10_000):
                run.state, loss = train_step(run.state, next(batches))
                run.log("loss", loss)
    """
    policy = SavePolicy(save_secs, save_steps, max_to_keep, keep_every_n_hours)
    return SupervisedTraining(os.fspath(logdir), state, data, options or Options(), policy)


class SupervisedTraining(InLoop):
    """What `supervised` returns. Its methods are called by the training's thread.

    Args:
        logdir: the run's directory.
        state: the state at the start; see `supervised`.
        data: the iterator over the batches; None for none.
        options: see `Options`.
        policy: when checkpoints are saved.
    """

    def __init__(self, logdir: str, state: Any, data: Any, options: Options, policy: SavePolicy) -> None:
        self._state = state
        self._by_name = type(state) is dict and all(isinstance(name, str) for name in state)
        self._arrays = JaxArrays()
        if self._by_name and DATA in state:
            raise ValueError(f'state has "{DATA}", which is the name of the position in the data; use another name.')
        self._names = names = tuple(state) if self._by_name else ("state",)
        self._with_methods: set[str] = set()
        objects: dict[str, Any] = {name: self._access(name) for name in names}
        by_step = isinstance(data, str) and data == BY_STEP
        if data is not None and not by_step:
            objects[DATA] = data
        sharded = ShardedArrays(lambda: sharded_in({name: to_tree(self._pytree(name)) for name in names}))
        training: dict[str, Any] = {
            "objects": objects,
            "kinds": (self._arrays, sharded, NumpyArrays()),
            "facts": _facts,
            "limits": self._limits,
            "data_by_step": by_step,
            "present": self._all_arrays,
            "words": {GENERATOR: KEY, CARRIED: MEAN},
            "is_generator": _is_raw_key,
        }
        named: dict[str, Any] = {"options": options, "policy": policy, "facade": "supervised"}
        ranks = present_ranks()
        if ranks is None:
            self.run = Run(logdir, state=TrainingState(**training), **named)
        else:
            of_ranks = JaxRanksState(
                ranks=ranks,
                own=(DATA,) if DATA in objects else (),
                shards=(sharded,),
                write_shards=partial(write_pieces, ranks),
                local_digests=lambda: {name: self._digest_here(name) for name in names},
                **training,
            )
            self.run = DistributedRun(logdir, state=of_ranks, structure=self._structure(), **named)
        self._is_set = self._in_step = self._was_left = self._stepped = False
        self._at_start: list[jax.Array] | None = None
        self._losses: deque[tuple[int, str, Any]] = deque()

    @property
    def state(self) -> Any:
        """The present state. Set it to what a step returns; before that nothing of it is saved."""
        return self._state

    @state.setter
    def state(self, state: Any) -> None:
        self._state = state
        self._is_set = True

    def __enter__(self) -> SupervisedTraining:
        """Begin: restore, start to save and to watch signals; see `supervisor_core.Run.__enter__`."""
        self._arrays.present_bytes = sum(array.nbytes for array in self._all_arrays())
        self.run.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End: save what is not on disk, write the stop record, release the logdir."""
        try:
            if self._in_step:
                self._leave(is_done=self._is_set and LoopExit(error is not None, error).is_clean)
            if error is None:
                self._write_losses(self.global_step)
        except BaseException as raised:
            self.run.__exit__(type(raised), raised, raised.__traceback__)
            raise
        self.run.__exit__(kind, error, trace)

    def steps(self, until: int) -> Iterator[int]:
        """Yield the number of each step from the restored one up to ``until``; ends early when a stop is requested.

        Args:
            until: the run's last step, over all sessions.
        """
        if self._in_step:  # the program has caught an exception that left a loop in its body
            self._leave(is_done=False)
        for step in self.run.steps(until):
            self._is_set, self._in_step = False, True
            before = None if self._stepped else self._all_arrays()
            try:
                yield step
            except GeneratorExit:
                if self._in_step and loop_exit().is_by_error is False:  # else `__exit__` knows the exception
                    self._leave(is_done=self._is_set)
                raise
            self._in_step = False
            if before is not None:
                self._learn(before)
                before = None
            self._write_losses(step - MOST_AHEAD)

    def log(self, tag: str | Mapping[str, Any], value: Any = None) -> None:
        """Write scalars of the present step into the run's events file.

        A scalar on a device is written when it is there. The program waits for it only when it is `MOST_AHEAD` steps
        ahead: so a device that hangs stops the count of steps, and is seen as a stall. Log the loss in each step.

        Args:
            tag: the tag; or tags with their values.
            value: the value, where ``tag`` is one: a number, or an array with one.
        """
        for name, item in (tag if isinstance(tag, Mapping) else {tag: value}).items():
            if hasattr(item, "is_ready"):
                item.copy_to_host_async()
                self._losses.append((self.global_step, name, item))
            else:
                self.run.log(name, item)

    def _part(self, name: str) -> Any:
        if not self._by_name:
            return self._state
        if not isinstance(self._state, Mapping) or name not in self._state:
            raise CheckpointError(
                f"run.state has no {name!r} any more, which it had at the start; expected a dict with the same names."
            )
        return self._state[name]

    def _access(self, name: str) -> Access:
        part = self._part(name)
        of_leaves = Access(lambda: to_tree(pytree_of(self._part(name))), lambda saved: self._restore(name, saved))
        # An nnx.Rngs has an attribute of any name: each draws a key. A dict is a value, which each step replaces.
        if is_in_place(part) or type(part) is dict:
            return of_leaves
        try:
            reach = access(name, part)
        except TypeError:
            return of_leaves
        self._with_methods.add(name)
        return Access(reach.get, lambda saved: reach.set(on_devices(saved)))

    def _pytree(self, name: str) -> Any:
        """Return a part of the state as a pytree; nothing for an object that has methods of its own."""
        return () if name in self._with_methods else pytree_of(self._part(name))

    def _digest_here(self, name: str) -> str:
        """Return a digest of what this process alone has of a part of the state."""
        saved = self.run.state.objects[name].get() if name in self._with_methods else to_tree(local(self._pytree(name)))
        return digest(copy_tree(saved, self.run.state.kinds))

    def _structure(self) -> str:
        """Return a digest of the names, shapes and types of the state, which are the same in every process."""
        with_paths = jax.tree_util.tree_flatten_with_path([self._pytree(name) for name in self._names])[0]
        found = [
            (jax.tree_util.keystr(path), str(getattr(leaf, "dtype", "")), list(getattr(leaf, "shape", ())))
            for path, leaf in with_paths
        ]
        return digest({"names": list(self._names), "leaves": found})

    def _restore(self, name: str, saved: Any) -> None:
        part = self._part(name)
        restored = from_tree(saved, pytree_of(part))
        if is_in_place(part):
            from flax import nnx

            nnx.update(part, restored)
        elif self._by_name:
            self._state = {**self._state, name: restored}
        else:
            self._state = restored

    def _all_arrays(self) -> list[jax.Array]:
        parts = self._state.values() if self._by_name else [self._state]
        return [array for part in parts for array in arrays_of(pytree_of(part))]

    def _learn(self, before: list[jax.Array]) -> None:
        """After the first step: see whether it has taken over the memory of the state, and has set the state."""
        self._stepped = True
        self._arrays.by_reference = not any(array.is_deleted() for array in before)
        if self._is_unchanged(before):
            self._at_start = before

    def _is_unchanged(self, before: list[jax.Array]) -> bool:
        present = self._all_arrays()
        return len(present) == len(before) and all(map(lambda one, other: one is other, present, before))

    def _limits(self) -> tuple[str, ...]:
        """What a checkpoint of this moment does not capture: sentences."""
        self._refuse_if_not_finite()
        if self._at_start is not None and not self._is_unchanged(self._at_start):
            self._at_start = None
        unset = (NOT_SET,) if self._at_start else ()
        return (*unset, *((LEFT,) if self._was_left else ()))

    def _refuse_if_not_finite(self) -> None:
        watched = self.run.options.watched_loss
        if watched is not None:
            self._write_losses(self.global_step)
            if self.run.loss_is_finite is False:
                raise SaveFailedError(f"The watched loss {watched!r} is not finite: nothing is saved.")

    def _leave(self, *, is_done: bool) -> None:
        """The loop was left in its body: count its step if that is done, and remember if not."""
        self._in_step = False
        self._was_left = not is_done
        self.run.left_step(is_done=is_done)

    def _write_losses(self, until: int) -> None:
        """Write those that are there, and those up to a step, which are waited for."""
        losses = self._losses
        while losses and (losses[0][0] <= until or losses[0][2].is_ready()):
            step, name, value = losses.popleft()
            self.run.log(name, value, step)


def _is_raw_key(value: Any) -> bool:
    return isinstance(value, jax.Array) and (is_key(value) or (value.dtype == "uint32" and value.shape in RAW_KEYS))


RAW_KEYS = ((2,), (4,))
"""The shapes of random keys without a type of their own."""


def _facts() -> dict[str, str]:
    return {
        NUMBER: str(jax.process_count()),
        "number of devices": str(jax.device_count()),
        "kind of device": jax.devices()[0].device_kind,
        "jax_enable_x64": str(jax.config.jax_enable_x64),
        "jax_threefry_partitionable": str(jax.config.jax_threefry_partitionable),
        "jax_default_matmul_precision": str(jax.config.jax_default_matmul_precision),
    }

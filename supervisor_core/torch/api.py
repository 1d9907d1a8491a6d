"""`supervised`: a training loop of PyTorch as one supervised session of a run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from supervisor_core.base.options import Options
from supervisor_core.engine.timeouts import stop_timeout
from supervisor_core.torch.accelerated import position_of, refuse_prepared, scaler_of, unprepared
from supervisor_core.torch.loop import SupervisedLoop
from supervisor_core.torch.module_state import NAME, ModuleState
from supervisor_core.torch.position import ONCE, LoaderPosition, RangePosition, counts_steps
from supervisor_core.torch.ranks import TorchRanks, present_ranks
from supervisor_core.torch.shards import ShardFiles, Shards, is_sharded, refuse_split, shards_of, write_shards
from supervisor_core.torch.tensors import (
    KINDS,
    model_facts,
    model_limits,
    random_sources,
    structure_of,
    thread_facts,
    unwrapped,
)
from supervisor_core.torch.workers import outlive_signals
from supervisor_core.training.distributed_run import DistributedRun
from supervisor_core.training.objects import Access, flattened
from supervisor_core.training.ranks import NUMBER, RanksState
from supervisor_core.training.run import Run
from supervisor_core.training.save_point import SavePolicy
from supervisor_core.training.state import DATA, TrainingState


def supervised(
    loader: Iterable[Any],
    logdir: str | os.PathLike[str],
    *,
    epochs: int | None = None,
    steps: int | None = None,
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
    place: the loop yields the number of each step, and a resume goes on with the next one. What accelerate has prepared
    is given as it is.

    Args:
        loader: a ``DataLoader``, torchdata's ``StatefulDataLoader``, or any iterable with the same batches each epoch;
            or a range of steps.
        logdir: the run's directory, on a local or mounted file system.
        epochs: the number of passes through the loader, over all sessions of the run. Default: 1; with ``steps`` any.
        steps: the number of steps after which the training is completed, over all sessions of the run. With both,
            whichever comes first. Default: no limit.
        model: a module; what ``torch.compile`` and ``DistributedDataParallel`` wrap around it is not saved. Several, as
            a GAN has, are a list, a tuple or a dict: ``model={"generator": g, "critic": c}``; so are several of the
            following.
        optimizer: its optimizer. Default: each batch is a step. With several, a pass in which at least one makes a
            step is a step.
        scaler: a ``GradScaler``.
        scheduler: a learning rate scheduler.
        ema: an averaged model, or anything with ``state_dict``.
        state: more objects with ``state_dict``/``load_state_dict``, dicts of values, and dicts, lists and tuples of
            objects, by name.
        options: see `supervisor_core.Options`.
        save_secs: seconds between checkpoints; None saves none by time.
        save_steps: steps between checkpoints; None saves none by steps.
        max_to_keep: the number of checkpoints to keep; None keeps all.
        keep_every_n_hours: keep one checkpoint of each such period besides; None keeps none.
        replay: on a resume load the consumed batches again and drop them, for datasets that draw random numbers in the
            loader's workers; it takes as long as loading them took.

    Raises:
        ValueError: if an interval, ``epochs`` or ``steps`` is not positive, ``steps`` are given with a range, the
            logdir is not local, the loader is an iterator and there are several epochs, or accelerate's loader leaves
            out batches or its optimizer is DeepSpeed's or Megatron-LM's; in the loop, if an epoch has no batch, or
            nothing is left to do and a loop of this process came to that end before.
        TypeError: if an object has no ``state_dict``, or there is no model.
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
    limits = _limits(epochs, steps)
    epochs = limits.get("epochs", 1)
    if epochs > 1 and isinstance(loader, Iterator) and type(loader).__module__ in ("builtins", "itertools"):
        raise ValueError(f"epochs is {epochs}, and the loader is a {type(loader).__name__}. {ONCE}")
    given, prepared = _named("model", model, "a module"), _named("optimizer", optimizer, "an optimizer")
    if not given:
        raise TypeError("model is None; expected a module, or a list, tuple or dict of them.")
    refuse_prepared(loader, *prepared.values())
    scaler = scaler_of(*prepared.values()) if scaler is None else scaler
    models, optimizers = _unwrapped(given), _unwrapped(prepared)
    others = {**_named("scaler", scaler), **_named("scheduler", scheduler), **_named("ema", ema)}
    parts = {**models, **optimizers, **_unwrapped(others)}
    objects, own = dict(parts), _unwrapped(flattened(state or {}))  # in several processes rank 0's, and each rank's
    clash = {DATA, NAME, *objects} & {*own, *(state or {})}
    if clash:
        raise ValueError(f"state has {', '.join(sorted(clash))}, which supervised() saves already; use other names.")
    options = options or Options()
    outlive_signals(unprepared(loader), stop_timeout(options))
    ranks = present_ranks()
    count = 1 if ranks is None else ranks.size
    position, limits = _position(loader, limits, replay=replay, ranks=count)
    modules = {name: item for name, item in models.items() if isinstance(item, torch.nn.Module)}
    state_of_modules = ModuleState(modules)
    if splits := any(map(is_sharded, modules.values())):
        objects.update(shards_of(modules, optimizers, is_alone=ranks is None))
    of_model = model_facts(*models.values(), with_dtype=splits)
    shards = ShardFiles(is_split=splits, whole=ranks is None or not splits, trust=options.trust_pickled)
    training: dict[str, Any] = {
        "objects": {**objects, NAME: state_of_modules, **own, DATA: position},
        "sources": random_sources,
        "kinds": (*KINDS, shards),
        "can_be_read_in_place": True,
        "facts": lambda: {**thread_facts(), NUMBER: str(count), **loop._loader_facts(), **of_model},
        "limits": lambda: (*position.limits, *loop.limits, *model_limits(count, *given.values())),
    }
    named: dict[str, Any] = {
        "options": options,
        "policy": SavePolicy(save_secs, save_steps, max_to_keep, keep_every_n_hours),
        "facade": "supervised",
        "first_step": position.batch,
    }
    if ranks is None:
        run = Run(os.fspath(logdir), state=TrainingState(**training), **named)
    else:
        named["structure"] = "" if splits else structure_of(*modules.values())
        run = _run_of_rank(logdir, ranks, training, own=(*own, DATA), optimizers=optimizers.values(), **named)
    captured = (*parts.values(), *(state or {}).values())
    seen = {**models, **optimizers, **({} if isinstance(loader, Sequence) else {"loader": loader})}
    loop: SupervisedLoop = SupervisedLoop(run, loader, position, limits, optimizers, ranks, captured, seen)
    return loop


def _position(
    loader: Any, limits: dict[str, int], *, replay: bool, ranks: int
) -> tuple[LoaderPosition | RangePosition, dict[str, int]]:
    """Return the position in the data, and where the training ends: a range has its own end.

    Raises:
        ValueError: for a range with a number of steps besides.
    """
    if not counts_steps(loader, limits.get("epochs", 1)):
        return position_of(loader, random_sources, replay=replay, ranks=ranks), limits
    if "steps" in limits:
        raise ValueError(
            f"steps is {limits['steps']}, and the loader is a range, whose numbers are the steps: write the range up "
            "to it."
        )
    return RangePosition(loader), {"steps": loader.stop}


def _run_of_rank(
    logdir: str | os.PathLike[str],
    ranks: TorchRanks,
    training: Mapping[str, Any],
    *,
    own: tuple[str, ...],
    optimizers: Iterable[Any],
    **named: Any,
) -> Run:
    """Return the session's run in one of several processes.

    Args:
        training: the arguments of `TrainingState`.
        own: the names of the objects that each rank has of its own.
        named: more arguments of `DistributedRun`.
    """
    for item in optimizers:
        refuse_split(item)
    split = tuple(part for part in training["objects"].values() if isinstance(part, Shards))
    state = RanksState(ranks=ranks, own=own, shards=split, write_shards=partial(write_shards, ranks), **training)
    return DistributedRun(os.fspath(logdir), state=state, **named)


def _limits(epochs: int | None, steps: int | None) -> dict[str, int]:
    """Return where a training ends: those that are given."""
    limits = {}
    for name, value in (("epochs", epochs), ("steps", steps)):
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; expected a number from 1.")
            limits[name] = value
    return limits or {"epochs": 1}


def _named(name: str, given: Any, what: str | None = None) -> dict[str, Any]:
    """Return the objects that an argument has, by their names in checkpoints: one, several, or for None none.

    Args:
        name: the argument's.
        what: what it has to be, where a dict of values is none.
    """
    found = {} if given is None else flattened({name: given})
    if what is not None and (type(given) is dict or isinstance(given, (list, tuple))) and found.get(name) is given:
        kind = type(given).__name__
        raise TypeError(f"{name} is a {kind} without one; expected {what}, or a list, tuple or dict of them.")
    return {each: item for each, item in found.items() if not isinstance(item, Access)}  # a dict's values besides


def _unwrapped(objects: Mapping[str, Any]) -> dict[str, Any]:
    return {name: unwrapped(unprepared(item)) for name, item in objects.items()}

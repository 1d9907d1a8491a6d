"""What is tried: for each framework its systems, and how a training is drawn at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.exactness.programs import EPOCHS, PER_EPOCH

OURS = "ours"
NONE = "none"


@dataclass(frozen=True)
class Peer:
    """A framework's own tool."""

    name: str
    is_own_reference: bool = False
    """Whether it changes the training even uninterrupted, so that it is compared with itself."""
    fits: Callable[[dict[str, Any]], bool] = lambda options: True
    """Whether it takes a training of these options."""


@dataclass(frozen=True)
class Framework:
    """A family of trials."""

    name: str
    modules: tuple[str, ...]
    """What its program imports."""
    program: Callable[[dict[str, Any]], str]
    """The program, below `benchmarks.exactness.programs`."""
    draw: Callable[[random.Random], dict[str, Any]]
    """Returns how to train."""
    packages: tuple[str, ...]
    """Whose versions are named."""
    peers: tuple[Peer, ...]
    weight: int
    """Its share of the trials."""
    fixed: tuple[dict[str, Any], ...] = ()
    """How it trains, where that is not drawn: each with SIGTERM and with SIGKILL."""


@dataclass(frozen=True)
class Interrupted:
    """When the sessions of a trial are interrupted, and how often is saved."""

    at: tuple[int, ...]
    how: str
    save_every: int


def interrupted(rng: random.Random, accumulate: int) -> Interrupted:
    """Draw when a trial is interrupted: after the first epoch, so that each system has saved; one in three twice."""
    last = PER_EPOCH * EPOCHS - 1
    first = rng.randint(PER_EPOCH + 2, last)
    again = rng.random() < 0.33 and first + 2 < last
    at = (first, rng.randint(first + 1, last)) if again else (first,)
    how = rng.choices(("kill", "moment", "SIGTERM"), (5, 3, 2))[0]
    return Interrupted(at, how, rng.randint(1, 3) if accumulate > 1 else rng.randint(2, 7))


def by_kill(given: Interrupted) -> Interrupted:
    """Return the same for a peer: it is killed."""
    return replace(given, how="kill" if given.how == "SIGTERM" else given.how)


def _torch(rng: random.Random) -> dict[str, Any]:
    loader = rng.choices(("map", "generator", "stream", "stateful", "none"), (5, 1, 2, 2, 2))[0]
    workers = rng.choice((0, 2))
    draws = rng.choices(("nothing", "torch", "numpy", "python", "some"), (6, 1, 1, 1, 1))[0]
    if loader == "stream":
        draws = rng.choice(("nothing", "python"))
    if loader == "none":
        workers, draws = 0, rng.choice(("torch", "numpy", "python"))
    return {
        "loader": loader, "workers": workers, "draws": draws, "ahead": loader == "none" and rng.random() < 0.3,
        "persistent": bool(workers and loader != "stateful" and rng.random() < 0.3),
        "shuffle": rng.random() < 0.8,
        "replay": bool(workers and rng.random() < 0.3),
        "noise": rng.choice(("none", "none", "numpy", "python")),
        "amp": rng.choice(("none", "bfloat16", "bfloat16 with GradScaler")),
        "ema": rng.choice(("", "parameters", "buffers")),
        "accumulate": rng.choice((1, 3)),
        "dropout": rng.choice((0.0, 0.3)),
        "optimizer": rng.choice(("AdamW", "SGD")),
        "scheduler": rng.choice(("none", "one cycle", "cosine")),
        "evaluates": rng.random() < 0.3,
    }  # fmt: skip


def _transformers(rng: random.Random) -> dict[str, Any]:
    workers = rng.choice((0, 0, 2))
    data = rng.choices(("indices", "stream"), (6, 1))[0]
    return {
        "data": data,
        "draws": "nothing" if data == "stream" else rng.choices(("nothing", "torch", "numpy", "some"), (6, 1, 1, 1))[0],
        "workers": workers if data == "indices" else 0,
        "persistent": bool(workers and data == "indices" and rng.random() < 0.3),
        "amp": rng.choice(("none", "bfloat16")),
        "accumulate": rng.choice((1, 3)),
        "dropout": rng.choice((0.0, 0.3)),
        "optimizer": rng.choice(("adamw_torch", "sgd")),
        "scheduler": rng.choice(("linear", "cosine")),
        "evaluates": rng.random() < 0.4,
    }


def _lightning(rng: random.Random) -> dict[str, Any]:
    options = _torch(rng)
    return {
        **options,
        "loader": "map" if options["loader"] in ("stateful", "none") else options["loader"],
        "draws": "nothing" if options["loader"] in ("stateful", "none") else options["draws"],
        "ahead": False,
        "noise": "none",
        "amp": rng.choice(("none", "bfloat16")),
        "ema": rng.choice(("", "", "parameters")),
        "scheduler": rng.choice(("none", "one cycle")),
    }


def _keras(rng: random.Random) -> dict[str, Any]:
    backend = rng.choices(("tensorflow", "torch", "jax"), (3, 2, 1))[0]
    kinds = ["arrays", "arrays", "PyDataset", "PyDataset that draws", "tf.data"]
    if backend == "tensorflow":
        kinds += ["tf.data", "tf.data that reshuffles"]
    if backend == "torch":
        kinds = [*kinds[:-1], "DataLoader", "DataLoader"]
    execution = 1 if backend == "torch" else rng.choice((1, 1, 2))
    return {
        "backend": backend,
        "data": rng.choice(kinds),
        "shuffle": rng.random() < 0.7,
        "steps per execution": execution,
        "amp": rng.random() < 0.3,
        "ema": rng.random() < 0.4,
        "accumulate": rng.choice((1, 1, 3)),
        "dropout": rng.random() < 0.5,
        "optimizer": rng.choice(("AdamW", "SGD")),
        "callbacks": rng.random() < 0.4,
        "evaluates": rng.random() < 0.3,
    }


def _jax(rng: random.Random) -> dict[str, Any]:
    return {
        "data=": rng.random() < 0.9,
        "shuffle": rng.random() < 0.8,
        "draws": rng.random() < 0.4,
        "threads": rng.choice((1, 4)),
        "noise": rng.random() < 0.3,
        "bfloat16": rng.random() < 0.3,
        "accumulate": rng.choice((1, 1, 3)),
        "dropout": rng.random() < 0.5,
        "optimizer": rng.choice(("adam", "sgd")),
        "schedule": rng.random() < 0.5,
        "typed key": rng.random() < 0.5,
        "donate": rng.random() < 0.5,
    }


def _shapes(rng: random.Random) -> dict[str, Any]:
    return {
        "shape": rng.choice(("nanoGPT", "PPO", "YOLO", "language model", "diffusion", "prefetcher")),
        "captured": rng.random() < 0.5,
        "dropout": rng.choice((0.0, 0.3)),
        "optimizer": rng.choice(("AdamW", "SGD")),
        "every": rng.choice((1, 3)),
    }


def _kinds() -> Iterator[dict[str, Any]]:
    names = {
        "torch": "buffer frozen modes dropout mosaic transform smoothing loss patience rate mean printed log structure "
        "stream",
        "lightning": "dropout finetuning average split",
        "trainer": "dropout unfreezes",
        "keras": "dropout freezes",
        "jax": "step key rate",
    }
    for facade, kinds in names.items():
        for kind in kinds.split():
            yield from ({"facade": facade, "kind": kind, "captured": captured} for captured in (False, True))


FRAMEWORKS = (
    Framework(
        name="PyTorch",
        modules=("torch", "torchdata", "accelerate"),
        program=lambda options: "torch_loop",
        draw=_torch,
        packages=("torch", "torchdata", "accelerate"),
        peers=(
            Peer("torch.save"),
            Peer(
                "accelerate",
                is_own_reference=True,
                fits=lambda options: options["amp"] != "bfloat16 with GradScaler" and options["loader"] != "none",
            ),
        ),
        weight=4,
    ),
    Framework(
        name="Shapes",
        modules=("torch",),
        program=lambda options: "shapes",
        draw=_shapes,
        packages=("torch",),
        peers=(),
        weight=2,
    ),
    Framework(
        name="Kinds",
        modules=("torch", "torchdata", "datasets", "transformers", "lightning", "keras", "jax", "optax"),
        program=lambda options: f"kinds_{options['facade']}",
        draw=lambda rng: {},
        packages=("torch", "torchdata", "datasets"),
        peers=(),
        weight=0,
        fixed=tuple(_kinds()),
    ),
    Framework(
        name="Transformers",
        modules=("torch", "transformers", "accelerate"),
        program=lambda options: "trainer",
        draw=_transformers,
        packages=("transformers",),
        peers=(Peer("resume_from_checkpoint=True"),),
        weight=2,
    ),
    Framework(
        name="Lightning",
        modules=("torch", "torchdata", "accelerate", "lightning", "supervisor_core.lightning"),
        program=lambda options: "lightning_fit",
        draw=_lightning,
        packages=("lightning",),
        peers=(Peer('ModelCheckpoint, ckpt_path="last"'),),
        weight=2,
    ),
    Framework(
        name="Keras",
        modules=("keras", "tensorflow", "torch", "jax"),
        program=lambda options: f"keras_{options['backend']}",
        draw=_keras,
        packages=("keras", "tensorflow"),
        peers=(Peer("BackupAndRestore"),),
        weight=2,
    ),
    Framework(
        name="JAX",
        modules=("jax", "grain", "optax", "orbax"),
        program=lambda options: "jax_loop",
        draw=_jax,
        packages=("jax", "grain", "orbax-checkpoint"),
        peers=(Peer("Orbax with Grain", fits=lambda options: not options["typed key"]),),
        weight=2,
    ),
)

"""What is tried: for each framework its systems, and how a training is drawn at random."""

from __future__ import annotations

import random
from collections.abc import Callable
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
    loader = rng.choices(("map", "generator", "stream", "stateful"), (5, 1, 2, 2))[0]
    workers = rng.choice((0, 2))
    draws = rng.choices(("nothing", "torch", "numpy", "python", "some"), (6, 1, 1, 1, 1))[0]
    if loader == "stream":
        draws = rng.choice(("nothing", "python"))
    return {
        "loader": loader, "workers": workers, "draws": draws,
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
                "accelerate", is_own_reference=True, fits=lambda options: options["amp"] != "bfloat16 with GradScaler"
            ),
        ),
        weight=4,
    ),
)

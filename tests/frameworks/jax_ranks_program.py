"""A training of JAX in several processes, each forked off the launcher's, which has imported JAX and not used it.

Each process says what it does into a file of its own. The plan says what to do at which step, on which rank.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ports import free_port

from supervisor_core import Options
from supervisor_core.engine import worker_registry
from supervisor_core.jax import supervised

STEPS, BATCH = 14, 4
PAUSE = threading.Event()  # never set
worker_registry.LAST_READ_SECS = 60.0  # rank 0 reads that the others have ended, however busy the machine is


class Samples:
    """Each process's own batches.

    Args:
        rank: the process.
    """

    def __init__(self, rank: int) -> None:
        self.rng = np.random.default_rng(rank)

    def __next__(self) -> Any:
        return self.rng.standard_normal((BATCH, 4)).astype(np.float32)

    def get_state(self) -> Any:
        """Return the position."""
        return self.rng.bit_generator.state

    def set_state(self, state: Any) -> None:
        """Set it."""
        self.rng.bit_generator.state = state


def launch(directory: Path, plan: dict[str, Any] | None = None, *, ranks: int = 2, program: Any = None) -> None:
    """Run all ranks; as soon as one fails, end the others, as ``srun --kill-on-bad-exit`` does. Exit as it did."""
    address = f"127.0.0.1:{free_port()}"
    pids = [
        _fork(lambda rank=rank: (program or train)(directory, plan or {}, address, rank, ranks))
        for rank in range(ranks)
    ]
    status = 0
    left = set(pids)
    while left:
        pid, ended = os.wait()
        left.discard(pid)
        code = os.waitstatus_to_exitcode(ended)
        if code and status in (0, -signal.SIGTERM):  # where a signal ends all, none may lose the others before that
            status = code
            if code != -signal.SIGTERM:
                for other in left:
                    # One that was killed may be seen later than one that has lost it.
                    found = os.waitid(os.P_PID, other, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                    if found is not None and (found.si_code, found.si_status) == (os.CLD_KILLED, signal.SIGKILL):
                        status = -signal.SIGKILL
                    os.kill(other, signal.SIGKILL)
    if status:
        raise SystemExit(128 - status if status < 0 else status)


def _fork(body: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        body()
        status = 0
    except BaseException as error:
        sys.last_value = error
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def connect(address: str, rank: int, ranks: int, devices: int = 1) -> None:
    """Be one of the processes."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_num_cpu_devices", devices)
    jax.distributed.initialize(address, ranks, rank, heartbeat_timeout_seconds=30)


def act(plan: dict[str, Any], run: Any, rank: int) -> None:
    """Do what the plan has for this rank at this step."""
    if run.global_step != plan.get("step") or rank != plan.get("rank", 0):
        return
    if plan["act"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if plan["act"] == "sigterm":
        os.kill(os.getpid(), signal.SIGTERM)
        while not run.run._coord.should_stop():  # the next agreement has it
            PAUSE.wait(0.01)


def loss_of(params: Any, features: Any, key: Any) -> Any:
    """A loss with dropout."""
    kept = jax.random.bernoulli(key, 0.7, features.shape)
    hidden = jnp.tanh(jnp.where(kept, features, 0) @ params["kernel"].T + params["bias"])
    return jnp.mean((hidden.sum(1) - features.sum(1)) ** 2)


def train(directory: Path, plan: dict[str, Any], address: str, rank: int, ranks: int) -> None:
    """Train a kernel that is split over the processes, and a bias that each of them has."""
    connect(address, rank, ranks, plan.get("devices", 1))
    random.seed(rank)
    said = open(directory / f"rank-{rank}", "a", buffering=1)  # noqa: SIM115
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    optimizer = optax.adam(optax.cosine_decay_schedule(0.1, 100))

    def begin() -> Any:
        params = {"kernel": jnp.linspace(0, 1, 32, dtype=jnp.bfloat16).reshape(8, 4), "bias": jnp.zeros(8)}
        return {"params": params, "opt_state": optimizer.init(params), "key": jax.random.key(3)}

    places = jax.tree.map(lambda leaf: split if leaf.shape == (8, 4) else everywhere, jax.eval_shape(begin))
    shared = jax.jit(begin, out_shardings=places)()
    keys = jax.jit(lambda: jax.random.split(jax.random.key(5), 8), out_shardings=split)()

    def step_of(shared: Any, keys: Any, features: Any) -> Any:
        key, drop = jax.random.split(shared["key"])
        loss, grads = jax.value_and_grad(loss_of)(shared["params"], features, drop)
        updates, opt_state = optimizer.update(grads, shared["opt_state"])
        params = optax.apply_updates(shared["params"], updates)
        keys = jax.vmap(lambda key: jax.random.split(key)[0])(keys)
        return {"params": params, "opt_state": opt_state, "key": key}, keys, loss

    train_step = jax.jit(
        step_of, out_shardings=(places, split, everywhere), donate_argnums=(0,) if plan.get("donate") else ()
    )
    data = Samples(rank)
    state = {"shared": shared, "keys": keys, "noise": jax.random.key(rank), "seen": 0}
    with supervised(
        directory / "run",
        state=state,
        data=data,
        save_secs=None,
        save_steps=plan.get("save_steps", 4),
        options=Options(stop_timeout_secs=3600.0),
    ) as run:
        if run.exactness is not None:
            print(" ".join(("exact", *run.exactness.reasons)), file=said)
        for step in run.steps(plan.get("steps", STEPS)):
            run.run.wait_until_saved()
            act(plan, run, rank)
            features = next(data) + random.random() / 8
            noise, draw = jax.random.split(run.state["noise"])
            features += 0.1 * np.asarray(jax.random.normal(draw, features.shape))
            features = jax.make_array_from_process_local_data(split, features)
            shared, keys, loss = train_step(run.state["shared"], run.state["keys"], features)
            run.state = {"shared": shared, "keys": keys, "noise": noise, "seen": run.state["seen"] + BATCH}
            run.log("loss", loss)
            print(f"{step} {float(loss).hex()} {jax.random.key_data(noise)[1]}", file=said)
    whole = jax.jit(
        lambda shared, keys: (shared["params"]["kernel"].sum(), jax.random.key_data(keys).sum()),
        out_shardings=everywhere,
    )
    kernel, drawn = whole(run.state["shared"], run.state["keys"])
    print(f"end {float(kernel).hex()} {int(drawn)} {run.state['seen']}", file=said)
    jax.distributed.shutdown()


def train_flax(directory: Path, plan: dict[str, Any], address: str, rank: int, ranks: int) -> None:
    """Train a model of Flax NNX that each process has, on the batches of all of them; the kernel is split."""
    import grain
    from flax import nnx

    connect(address, rank, ranks)
    said = open(directory / f"rank-{rank}", "a", buffering=1)  # noqa: SIM115
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    @nnx.jit
    def begin() -> Any:
        model = nnx.Sequential(
            nnx.Linear(4, 8, rngs=nnx.Rngs(3)), nnx.Dropout(0.3, rngs=nnx.Rngs(4)), nnx.Linear(8, 1, rngs=nnx.Rngs(5))
        )
        optimizer = nnx.Optimizer(model, optax.adamw(0.05), wrt=nnx.Param)
        for part in (model, optimizer):
            state = nnx.state(part)
            places = jax.tree.map(lambda leaf: split if leaf.shape == (8, 1) else everywhere, state)
            nnx.update(part, jax.lax.with_sharding_constraint(state, places))
        return model, optimizer

    model, optimizer = begin()
    rng = np.random.default_rng(1)
    source = grain.MapDataset.source(rng.standard_normal((40, 4)).astype(np.float32))[rank::ranks]
    data = iter(source.seed(7).shuffle().repeat().batch(BATCH).to_iter_dataset())

    @nnx.jit
    def train_step(model: Any, optimizer: Any, features: Any) -> Any:
        loss, grads = nnx.value_and_grad(lambda model: jnp.mean((model(features)[:, 0] - features.sum(1)) ** 2))(model)
        optimizer.update(model, grads)
        return loss

    with supervised(
        directory / "run", state={"model": model, "optimizer": optimizer}, data=data, save_secs=None, save_steps=3,
        options=Options(stop_timeout_secs=3600.0),
    ) as run:  # fmt: skip
        if run.exactness is not None:
            print(" ".join(("exact", *run.exactness.reasons)), file=said)
        for step in run.steps(plan.get("steps", STEPS)):
            run.run.wait_until_saved()
            act(plan, run, rank)
            features = jax.make_array_from_process_local_data(split, next(data))
            loss = train_step(model, optimizer, features)
            run.log("loss", loss)
            print(f"{step} {float(loss).hex()}", file=said)
    jax.distributed.shutdown()


def talk(directory: Path, plan: dict[str, Any], address: str, rank: int, ranks: int) -> None:
    """Say something to the others, and end in two ways."""
    from supervisor_core.base.errors import RanksError
    from supervisor_core.jax import ranks as jax_ranks

    connect(address, rank, ranks)
    said = open(directory / f"rank-{rank}", "a", buffering=1)  # noqa: SIM115
    jax_ranks.LEAVE_SECS = 0.2
    present = jax_ranks.present_ranks()
    assert present is not None
    present.open()
    print(
        present.compare([1, rank]),
        present.announce(f"announced by {rank}"),
        present.collect("ab"[rank]),
        sep="\n",
        file=said,
    )
    try:
        if rank:
            present.meet()
        else:
            present.compare([1])
    except RanksError as error:
        print(f"RanksError: {error}", file=said)
    jax.distributed.shutdown()

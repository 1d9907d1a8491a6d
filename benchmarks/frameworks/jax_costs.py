"""JAX: `supervised` beside the same loop without it, and Orbax's `CheckpointManager`."""

from __future__ import annotations

from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from benchmarks.frameworks import OURS
from benchmarks.frameworks.measuring import NEVER, OPTIONS, SIDE, Measuring
from supervisor_core.jax import supervised


def main() -> None:
    measuring = Measuring.of_arguments()
    state: dict[str, Any] = {"weights": jnp.zeros((SIDE, SIDE), jnp.float32)}
    update = jax.jit(lambda state: {"weights": state["weights"] + 1})
    numbers, plain = count(1), count()

    def manager(name: str, every: int) -> Any:
        options = ocp.CheckpointManagerOptions(save_interval_steps=every, max_to_keep=1)
        return ocp.CheckpointManager(measuring.directory / name, options=options)

    with (
        manager("seldom", NEVER) as seldom,
        manager("orbax", 1) as orbax,
        supervised(measuring.directory / "run", state=state, save_secs=None, max_to_keep=1, options=OPTIONS) as run,
    ):
        steps = iter(run.steps(NEVER))

        def ours() -> None:
            next(steps)
            run.state = state

        def nothing() -> None:
            next(plain)

        def with_orbax() -> None:
            seldom.save(next(numbers), args=ocp.args.StandardSave(state))

        def saved() -> None:
            run.save()
            next(steps)

        def saved_by_orbax() -> None:
            orbax.save(next(numbers), args=ocp.args.StandardSave(state))

        def saved_by_orbax_and_durable() -> None:
            saved_by_orbax()
            orbax.wait_until_finished()

        def between() -> None:
            nonlocal state
            run.run.wait_until_saved()
            orbax.wait_until_finished()
            state = jax.block_until_ready(update(state))
            run.state = state

        for _ in range(3):
            between()
            next(steps)
        measuring.per_step({OURS: ours, "Orbax CheckpointManager.save, nothing due": with_orbax}, bare=nothing)
        savers = {
            OURS: saved,
            "Orbax CheckpointManager.save, async": saved_by_orbax,
            "the same until it is written": saved_by_orbax_and_durable,
        }
        measuring.per_save(savers, between=between)
        run.request_stop()
        list(steps)
    measuring.write("jax", "orbax-checkpoint")


if __name__ == "__main__":
    main()

"""Orbax: `CheckpointManager`, every few steps, three kept, each save awaited; resumed at `latest_step`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from benchmarks.faults.programs import WEIGHTS, Asked, Steps, initial, say


def main(values: dict[str, Any]) -> None:
    """Train."""
    asked = Asked(**values)
    options = ocp.CheckpointManagerOptions(max_to_keep=3, create=True)
    steps, step = Steps(asked), 0
    state = {f"weight_{number}": jnp.asarray(initial(number, asked.floats)) for number in range(WEIGHTS)}
    with ocp.CheckpointManager(asked.directory, options=options) as manager:
        latest = manager.latest_step()
        if latest is not None:
            state = manager.restore(latest, args=ocp.args.StandardRestore(state))
            step = latest
        steps.begin(step, [np.asarray(value) for value in state.values()])
        rise = jax.jit(lambda state: jax.tree.map(lambda value: value + 1, state))
        while not steps.is_over(step):
            state = rise(state)
            step += 1
            if step % asked.save_every == 0:
                manager.save(step, args=ocp.args.StandardSave(state))
                manager.wait_until_finished()
                say("saved", step)
            steps.did(step)
    say("end")

"""JAX: an interrupted training goes on bit by bit, or says by name why not; nothing waits for the device."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from trial import Event, Say, at, run_of, trial

from supervisor_core.base.errors import RanksError, SaveFailedError

jax = pytest.importorskip("jax", reason="jax is not installed: make test-frameworks has it")
pytest.importorskip("orbax.checkpoint", reason="orbax-checkpoint is not installed")
grain = pytest.importorskip("grain", reason="grain is not installed")
optax = pytest.importorskip("optax", reason="optax is not installed")
nnx = pytest.importorskip("flax.nnx", reason="flax is not installed")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from supervisor_core import Options  # noqa: E402
from supervisor_core.checkpoint.sealed_files import SealedFiles  # noqa: E402
from supervisor_core.jax import supervised  # noqa: E402
from supervisor_core.jax.arrays import (  # noqa: E402
    JaxArrays,
    from_tree,
    to_tree,
)
from supervisor_core.jax.loop import LEFT, MOST_AHEAD, NOT_SET  # noqa: E402
from supervisor_core.training.tree import NumpyArrays, copy_tree, read_tree, write_tree  # noqa: E402

SAMPLES, BATCH, STEPS = 45, 8, 14
OPTIONS: dict[str, Any] = {"save_secs": None, "save_steps": 4, "options": Options(stop_timeout_secs=3600.0)}
"""Of the trainings: a step that is compiled takes its time on a busy machine."""


def batches() -> Any:
    """Endless epochs of shuffled samples: number, features."""
    rng = np.random.default_rng(1)
    samples = [(number, rng.standard_normal(4).astype(np.float32)) for number in range(SAMPLES)]
    dataset = grain.MapDataset.source(samples).seed(7).shuffle().repeat().batch(BATCH)
    return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)))


def loss_of(weights: Any, features: Any, key: Any) -> Any:
    """A loss with dropout."""
    kept = jax.random.bernoulli(key, 0.7, features.shape)
    return jnp.mean((jnp.where(kept, features, 0) @ weights["kernel"] + weights["bias"] - features.sum(1)) ** 2)


def train(logdir: Path, say: Say, *, donate: bool = False, event: Event = lambda run, step: None) -> None:
    """Train with dropout and Adam; say each step's samples and the bits of its loss."""
    optimizer = optax.adam(optax.cosine_decay_schedule(0.1, 100))
    params = {"kernel": jnp.ones(4), "bias": jnp.zeros((), jnp.bfloat16)}
    state = {"params": params, "opt_state": optimizer.init(params), "key": jax.random.key(3), "seen": 0}

    def step_of(state: Any, features: Any) -> Any:
        key, drop = jax.random.split(state["key"])
        loss, grads = jax.value_and_grad(loss_of)(state["params"], features, drop)
        updates, opt_state = optimizer.update(grads, state["opt_state"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "opt_state": opt_state, "key": key, "seen": state["seen"] + BATCH}, loss

    train_step = jax.jit(step_of, donate_argnums=(0,) if donate else ())
    data = batches()
    with supervised(logdir, state=state, data=data, **OPTIONS) as run:
        if run.exactness is not None:
            say(" ".join(("exact", *run.exactness.reasons)))
        for step in run.steps(STEPS):
            run.run.wait_until_saved()  # so that it is known which checkpoints there are
            event(run, step)
            ids, features = next(data)
            run.state, loss = train_step(run.state, features)
            run.log("loss", loss)
            say(f"{step} {ids.tolist()} {float(loss).hex()}")
    end = jax.tree_util.tree_leaves(run.state["params"])
    say("end " + " ".join(float(leaf.sum()).hex() for leaf in end) + f" {run.state['seen']}")


def train_nnx(logdir: Path, say: Say, *, donate: bool = False, event: Event = lambda run, step: None) -> None:
    """The same with the objects of Flax NNX, which change in place; a `Rngs` has an attribute of any name."""
    rngs, noise = nnx.Rngs(3), nnx.Rngs(5)
    model = nnx.Sequential(nnx.Linear(4, 4, rngs=rngs), nnx.Dropout(0.3, rngs=rngs), nnx.BatchNorm(4, rngs=rngs))
    optimizer = nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)

    @nnx.jit
    def train_step(model: Any, optimizer: Any, noise: Any, features: Any) -> Any:
        features = features + 0.1 * jax.random.normal(noise(), features.shape)
        loss, grads = nnx.value_and_grad(lambda model: jnp.mean((model(features) - features) ** 2))(model)
        optimizer.update(model, grads)
        return loss

    data = batches()
    state = {"model": model, "optimizer": optimizer, "noise": noise}
    with supervised(logdir, state=state, data=data, **OPTIONS) as run:
        if run.exactness is not None:
            say(" ".join(("exact", *run.exactness.reasons)))
        for step in run.steps(STEPS):
            run.run.wait_until_saved()
            event(run, step)
            ids, features = next(data)
            loss = train_step(model, optimizer, noise, features)
            run.log("loss", loss)
            say(f"{step} {ids.tolist()} {float(loss).hex()}")
    say(f"end {float(model.layers[0].kernel[...].sum()).hex()}")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("program", "donate"), [(train, False), (train, True), (train_nnx, False)])
def test_an_interrupted_training_goes_on_bit_by_bit(tmp_path: Path, program: Any, donate: bool) -> None:
    """In the middle of an epoch: the same samples, the same bits of each loss and of the weights at the end, after a
    kill, and after a SIGTERM in the first step, while it is compiled, which loses no step."""
    _, truth = trial(tmp_path, lambda say: program(tmp_path / "truth", say, donate=donate))
    assert len(truth) == STEPS + 1
    logdir = tmp_path / "run"
    status, first = trial(tmp_path, lambda say: program(logdir, say, donate=donate, event=at(6, signal.SIGKILL)))
    assert status == -signal.SIGKILL and first == truth[:6]
    status, (verdict, *second) = trial(
        tmp_path, lambda say: program(logdir, say, donate=donate, event=at(4, signal.SIGTERM))
    )
    assert (status, verdict, second) == (-signal.SIGTERM, "exact", truth[4:5])
    status, (verdict, *third) = trial(tmp_path, lambda say: program(logdir, say, donate=donate))
    assert (status, verdict, third) == (0, "exact", truth[5:])
    run = run_of(logdir)
    one, two, three = run.sessions
    assert (one.outcome, two.outcome, two.last_step, three.restored_step) == ("lost", "signal", 5, 5)
    assert (three.outcome, three.last_step, three.resume_exact, run.state) == ("completed", 14, True, "completed")
    assert all(save.ok for save in run.checkpoints)


def passed(trial: tuple[int, list[str]]) -> bool:
    """Whether a trial's assertions held; its traceback is in the test's output."""
    return trial == (0, ["passed"])


class Moments(NamedTuple):
    """A pytree of a class of its own."""

    mean: Any
    count: Any


def test_leaves_of_every_kind(tmp_path: Path) -> None:
    """Come back with their numbers, types, shapes, and places on devices; others than the program's are refused by
    path. Orbax itself reads the files."""

    def body(say: Say) -> None:
        jax.config.update("jax_num_cpu_devices", 4)
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
        split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
        tree = {
            "half": jnp.arange(3, dtype=jnp.bfloat16) / 3,
            "quarter": jnp.ones(3, jnp.float8_e4m3fn),
            "sharded": jax.device_put(jnp.arange(8.0), split),
            "keys": jax.random.split(jax.random.key(1, impl="rbg"), 2),
            "weak": jnp.asarray(2.5),
            "empty": jnp.zeros((0, 3)),
            "a/b": [Moments(jnp.ones(2), 3), None, np.float32(0.1), np.arange(2), 1e-3, "text", True],
        }
        for by_reference in (False, True):
            kind = JaxArrays()
            kind.by_reference = by_reference
            kinds = (kind, NumpyArrays())
            directory = tmp_path / str(by_reference)
            directory.mkdir()
            write_tree(str(directory), copy_tree(to_tree(tree), kinds), kinds)
            fresh = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) if isinstance(leaf, jax.Array) else leaf, tree)
            fresh["sharded"] = jax.device_put(fresh["sharded"], split)
            back = from_tree(read_tree(SealedFiles.of(str(directory)), kinds), fresh)
            assert jax.tree.structure(back) == jax.tree.structure(tree)
            for one, other in zip(jax.tree.leaves(back), jax.tree.leaves(tree), strict=True):
                assert type(one) is type(other)
                if isinstance(one, jax.Array):
                    assert (one.aval, one.sharding) == (other.aval, other.sharding)
                    numbers = jax.random.key_data if one.dtype == tree["keys"].dtype else np.asarray
                    np.testing.assert_array_equal(numbers(one), numbers(other))
                else:
                    np.testing.assert_array_equal(one, other)
        saved = read_tree(SealedFiles.of(str(tmp_path / "True")), kinds)
        with pytest.raises(ValueError, match="only in the program: more; only in the checkpoint: weak"):
            from_tree(saved, {**{name: leaf for name, leaf in tree.items() if name != "weak"}, "more": 1})
        with pytest.raises(ValueError, match=r"half has the shape \(3,\) in the checkpoint, and \(4,\) in"):
            from_tree(saved, {**tree, "half": jnp.ones(4, jnp.bfloat16)})
        with pytest.raises(ValueError, match="half has the dtype bfloat16 in the checkpoint, and float32 in this"):
            from_tree(saved, {**tree, "half": jnp.ones(3)})
        import orbax.checkpoint as ocp

        read = ocp.PyTreeCheckpointer().restore(tmp_path / "True" / "orbax")
        np.testing.assert_array_equal(read["sharded"], np.arange(8.0))
        say("passed")

    assert passed(trial(tmp_path, body))


class Late:
    """A loss that the device has not computed yet."""

    def __init__(self, run: Any, waited_at: list[tuple[int, int]]) -> None:
        self.run, self.step, self.waited_at = run, run.global_step, waited_at

    def is_ready(self) -> bool:
        return False

    def copy_to_host_async(self) -> None:
        pass

    def __float__(self) -> float:
        self.waited_at.append((self.step, self.run.global_step))
        return float(self.step)


def test_the_device_is_waited_for_some_steps_later(tmp_path: Path) -> None:
    """So a device that hangs stops the count of steps; each loss is written with its own step, the last at the end."""

    def body(say: Say) -> None:
        waited_at: list[tuple[int, int]] = []
        with supervised(tmp_path / "run", state={}, save_secs=None) as run:
            for step in run.steps(12):
                run.log({"loss": Late(run, waited_at), "other": step})
            assert waited_at == [(step, step + MOST_AHEAD) for step in range(12 - MOST_AHEAD)]
        assert [step for step, _ in waited_at] == list(range(12))
        say("passed")

    assert passed(trial(tmp_path, body))
    (file,) = (tmp_path / "run").glob("events.out.*")
    events = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader").EventFileLoader(str(file))
    scalars = [
        (event.step, value.tag, value.tensor.float_val[0])
        for event in events.Load()
        for value in event.summary.value
        if value.tag in ("loss", "other")
    ]
    assert sorted(scalars) == sorted((step, tag, step) for step in range(12) for tag in ("loss", "other"))


def test_what_a_left_loop_saves(tmp_path: Path) -> None:
    """A step that has set the state counts. After one that has not, and where none ever did, the next session says so.
    An error saves nothing, and a loss that is not finite refuses the checkpoint."""

    def body(say: Say) -> None:
        def session(
            name: str, leave: Callable[[Any, int], bool], until: int = 9, **options: Any
        ) -> tuple[int, tuple[str, ...]]:
            with supervised(
                tmp_path / name, state=(jnp.zeros(()), {}), data=batches(), save_secs=None, options=Options(**options)
            ) as run:
                reasons = () if run.exactness is None else run.exactness.reasons
                for step in run.steps(until):
                    if leave(run, step):
                        break
            return int(run.state[0]), reasons

        def counting(last: int, sets: bool = True) -> Callable[[Any, int], bool]:
            def leave(run: Any, step: int) -> bool:
                if sets or step < last:
                    run.state = (run.state[0] + 1, {})
                return step == last

            return leave

        assert session("set", counting(2)) == (3, ())
        assert session("set", counting(3)) == (4, ())
        assert session("not set", counting(2, sets=False)) == (2, ())
        assert session("not set", counting(2, sets=False)) == (2, (LEFT,))
        assert session("never", lambda run, step: False) == (0, ())
        assert session("never", lambda run, step: False, until=10) == (0, (NOT_SET,))

        def fail(run: Any, step: int) -> bool:
            run.state = (run.state[0] + 1, {})
            raise ArithmeticError("the loss exploded")

        with suppress(ArithmeticError):
            session("error", fail)
        assert not (tmp_path / "error" / "checkpoints").exists()

        def explode(run: Any, step: int) -> bool:
            run.state = (run.state[0] + 1, {})
            run.log("loss", jnp.asarray(float("nan") if step >= 4 else 1.0))
            if step == 5:
                run.save()
                with run.phase("evaluating"):  # what cannot be saved ends no evaluation
                    say("evaluated")
            return step == 6

        session("nan", explode, watched_loss="loss")
        assert not (tmp_path / "nan" / "checkpoints").exists()
        say("passed")

    assert trial(tmp_path, body) == (0, ["evaluated", "passed"])
    assert run_of(tmp_path / "error").sessions[0].error.startswith("ArithmeticError at test_jax.py:")


def test_memory_that_is_taken_over(tmp_path: Path) -> None:
    """By a function that has it donated, after steps that had not: the save fails, and says so; the next ones copy
    first."""

    def body(say: Say) -> None:
        kind = JaxArrays()
        kind.by_reference = True
        array = jnp.arange(3.0)
        copied = copy_tree({"a": array}, (kind,))
        jax.jit(lambda value: value + 1, donate_argnums=0)(array)
        with pytest.raises(SaveFailedError, match="The memory of a was taken over"):
            write_tree(str(tmp_path), copied, (kind,))
        assert not kind.by_reference
        say("passed")

    assert passed(trial(tmp_path, body))


def test_wrong_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Are refused before anything is written, and so are processes that do not know each other."""
    monkeypatch.setattr(jax, "process_count", lambda: 1)
    with pytest.raises(TypeError, match=r"state\['data'\] is a builtins.list"):
        supervised(tmp_path, state={}, data=[1, 2])
    with pytest.raises(ValueError, match='state has "data", which is the name'):
        supervised(tmp_path, state={"data": 1})
    with pytest.raises(ValueError, match="save_steps is 0"):
        supervised(tmp_path, state={}, save_steps=0)
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    monkeypatch.setattr(jax, "process_index", lambda: 2)
    with pytest.raises(RanksError, match=r"process 2 of 4, and they have no coordination service: call jax\.distrib"):
        supervised(tmp_path, state={})
    assert not list(tmp_path.iterdir())

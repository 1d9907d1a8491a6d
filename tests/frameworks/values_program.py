"""Trainings that keep something where no checkpoint has it, for each facade: stopped after a step, and resumed.

python values_program.py [FACADE ...]    prints the truth and the verdict of each
"""

from __future__ import annotations

import copy
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from supervisor_core.training.position import _FITS

STEPS, STOP, PER_EPOCH = 14, 8, 5


class Outcome(NamedTuple):
    """What a training ended with."""

    bits: str
    exactness: Any


Learn = Callable[[float], float]


def double(value: Any) -> Any:
    """A function of the program's."""
    return 2 * value


def same(value: Any) -> Any:
    """Another one."""
    return value


class Noise:
    """An object of the program's own."""

    def __init__(self, level: float = 1.0) -> None:
        self.level = level

    def look(self) -> None:
        self.level *= 0.9


class Meter:
    """A running mean that is printed."""

    def __init__(self) -> None:
        self.sum, self.count, self.avg = 0.0, 0, 0.0

    def add(self, value: float) -> None:
        self.sum, self.count = self.sum + value, self.count + 1
        self.avg = self.sum / self.count


# Variables of the loop: for each facade with a loop of the program's own. Each returns what it has besides the weights.


def decays(steps: Iterable[int], learn: Learn) -> Any:
    """A number decays with each step."""
    gain = 1.0
    for _ in steps:
        learn(gain)
        gain *= 0.95
    return gain


def affine(steps: Iterable[int], learn: Learn) -> Any:
    """A number tends to another."""
    gain = 1.0
    for _ in steps:
        learn(gain)
        gain = 0.9 * gain + 0.05
    return gain


def rarely(steps: Iterable[int], learn: Learn) -> Any:
    """A number decays in some steps."""
    gain = 1.0
    for step in steps:
        learn(gain)
        if step % 3 == 2:
            gain *= 0.9
    return gain


def average(steps: Iterable[int], learn: Learn) -> Any:
    """A mean in an array."""
    mean = np.zeros(2)
    for _ in steps:
        mean = 0.9 * mean + 0.1 * learn(1.0)
    return mean.tolist()


def criterion(steps: Iterable[int], learn: Learn) -> Any:
    """A function is replaced by another."""
    change = same
    for step in steps:
        if step == 4:
            change = double
        learn(change(1.0))


def replaced(steps: Iterable[int], learn: Learn) -> Any:
    """An object is replaced by another of its kind."""
    noise = Noise()
    for step in steps:
        if step == 4:
            noise = Noise(0.5)
        learn(noise.level)


def changed(steps: Iterable[int], learn: Learn) -> Any:
    """An object changes."""
    noise = Noise()
    for step in steps:
        if step % 2:
            noise.look()
        learn(noise.level)


def transforms(steps: Iterable[int], learn: Learn) -> Any:
    """An object in a list is replaced."""
    chain = [Noise(), same]
    for step in steps:
        if step == 4:
            chain[1] = double
        learn(chain[1](chain[0].level))


def position(steps: Iterable[int], learn: Learn) -> Any:
    """A position moves on."""
    at = 0
    for _ in steps:
        at += 3
        learn(1.0 + at % 7)


def by_step(steps: Iterable[int], learn: Learn) -> Any:
    """All is set by the number of the step."""
    gain, flag, noise = 1.0, True, Noise()
    for step in steps:
        gain, flag, noise.level = 1.0 - 0.05 * step, step < 4, 0.9**step
        learn(gain + flag + noise.level)


def log(steps: Iterable[int], learn: Learn) -> Any:
    """Sums and means are printed."""
    total, smooth, seen, line, meter = 0.0, 0.0, 0.0, "", Meter()
    for step in steps:
        loss = learn(1.0)
        total, smooth, seen = total + loss, 0.9 * smooth + 0.1 * loss, seen + loss / 8
        meter.add(loss)
        if step % 5 == 4:
            line, meter = f"step {step}: {total} {smooth} {seen}", Meter()
    assert line


def best(steps: Iterable[int], learn: Learn) -> Any:
    """The best loss is printed."""
    lowest = 1e9
    for _ in steps:
        lowest = min(lowest, learn(1.0))
    print(lowest)


def history(steps: Iterable[int], learn: Learn) -> Any:
    """All losses are printed."""
    losses = []
    for _ in steps:
        losses.append(learn(1.0))
    print(losses)


def count(steps: Iterable[int], learn: Learn) -> Any:
    """A count is printed."""
    n = 0
    for _ in steps:
        learn(1.0)
        n += 1
    print(n)


VARIABLES: dict[str, Callable[[Iterable[int], Learn], Any]] = {
    each.__name__: each
    for each in (
        decays, affine, rarely, average, criterion, replaced, changed, transforms, position, by_step, log, best,
        history, count,
    )
}  # fmt: skip
UNKNOWN = frozenset(("best", "history", "count"))
"""For the log alone: no value shows that."""


# Objects that a callback of the program's, or the loop's body, changes: for each facade that trains a module.


def _scale(parts: Any, step: int) -> None:
    if step % 3 == 2:
        parts.net.scale *= 0.9


def _each(parts: Any, step: int) -> None:
    parts.net.scale *= 0.95


def _set(parts: Any, step: int) -> None:
    parts.net.scale = 1.0 - 0.05 * step


def _act(parts: Any, step: int) -> None:
    if step == 4:
        parts.net.act = double


def _transform(parts: Any, step: int) -> None:
    if step == 4:
        parts.data.transform = double


def _gain(parts: Any, step: int) -> None:
    if step == 4:
        parts.data.gain = 0.5


def _own(parts: Any, step: int) -> None:
    if step % 3 == 2:
        parts.own.level *= 0.9
    parts.net.scale = parts.own.level


def _ema(parts: Any, step: int) -> None:
    parts.own.mean = 0.9 * parts.own.mean + 0.1 * parts.weights()


def _count(parts: Any, step: int) -> None:
    parts.net.calls += 1
    parts.own.calls = getattr(parts.own, "calls", 0) + 1


OBJECTS: dict[str, Callable[[Any, int], None]] = {
    "model decays": _scale, "model each step": _each, "set by step": _set, "activation": _act,
    "transform": _transform, "gain of data": _gain, "own number": _own, "own average": _ema, "counts": _count,
}  # fmt: skip


class Own:
    """What a callback keeps."""

    def __init__(self) -> None:
        self.level, self.mean = 1.0, np.zeros(4)


class Parts:
    """What a training is made of."""

    def __init__(self, net: Any, data: Any, weights: Callable[[], Any]) -> None:
        self.net, self.data, self.weights, self.own = net, data, weights, Own()

    def outcome(self, exactness: Any) -> Outcome:
        """Return the bits of the weights and of the average."""
        return Outcome(f"{self.weights().tolist()} {self.own.mean.tolist()}", exactness)


def _torch_parts() -> Parts:
    import torch

    class Data(torch.utils.data.Dataset):  # type: ignore[misc]
        def __init__(self) -> None:
            self.gain, self.transform = 1.0, same

        def __len__(self) -> int:
            return 4 * PER_EPOCH

        def __getitem__(self, index: int) -> Any:
            x = torch.tensor([index % 3, index % 5, index % 7, 1.0])
            return {"x": self.transform(x * self.gain), "labels": torch.tensor(float(index % 2))}

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.scale, self.act, self.calls = torch.nn.Linear(4, 1), 1.0, same, 0

        def forward(self, x: Any = None, labels: Any = None) -> Any:
            output = self.act(self.layer(x)[:, 0]) * self.scale
            return {"loss": (output - labels).square().mean() * 0.1, "logits": output}

    torch.manual_seed(0)
    net = Net()
    return Parts(net, Data(), lambda: net.layer.weight.detach().numpy()[0].astype(float))


def _torch_learn() -> tuple[Any, Any, Callable[[float, int], float]]:
    import torch

    torch.manual_seed(0)
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)

    def learn(gain: float, step: int) -> float:
        optimizer.zero_grad()
        loss = (net(torch.tensor([1.0, 2.0 + step % 3])) * gain - step % 5).square().sum() * 0.1
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return net, optimizer, learn


def by_supervised_range(kind: str, logdir: Path, stop: int) -> Outcome:
    """`supervised` with a range."""
    from supervisor_core.torch import supervised

    net, optimizer, learn = _torch_learn()
    loop = supervised(range(STEPS), logdir, model=net, optimizer=optimizer, save_secs=None)
    return _by_loop(kind, loop, loop, learn, stop, lambda: net.weight.tolist())


def by_supervise(kind: str, logdir: Path, stop: int) -> Outcome:
    """`supervise` with PyTorch."""
    from supervisor_core import supervise

    net, optimizer, learn = _torch_learn()
    run = supervise(logdir, state={"model": net, "optimizer": optimizer, "data": "step"}, save_secs=None)
    return _by_loop(kind, run, run.steps(STEPS), learn, stop, lambda: net.weight.tolist())


def by_numpy(kind: str, logdir: Path, stop: int) -> Outcome:
    """`supervise` with numpy."""
    from supervisor_core import supervise

    state = {"w": np.ones(2)}

    def learn(gain: float, step: int) -> float:
        x = np.array([1.0, 2.0 + step % 3])
        rest = float(state["w"] @ x) * gain - step % 5
        state["w"] = state["w"] - 0.01 * rest * gain * x
        return rest * rest

    run = supervise(logdir, state={"state": state, "data": "step"}, save_secs=None)
    return _by_loop(kind, run, run.steps(STEPS), learn, stop, lambda: state["w"].tolist())


def by_jax(kind: str, logdir: Path, stop: int) -> Outcome:
    """`supervised` of JAX."""
    import jax
    import jax.numpy as jnp

    from supervisor_core.jax import supervised

    def loss_of(w: Any, gain: float, step: int) -> Any:
        return (w @ jnp.array([1.0, 2.0 + step % 3]) * gain - step % 5) ** 2

    def learn(gain: float, step: int) -> float:
        loss, gradient = jax.value_and_grad(loss_of)(run.state["w"], gain, step)
        run.state = {"w": run.state["w"] - 0.01 * gradient}
        return float(loss)

    with supervised(logdir, state={"w": jnp.ones(2)}, data="step", save_secs=None) as run:
        return _by_loop(kind, run, run.steps(STEPS), learn, stop, lambda: run.state["w"].tolist())


def _by_loop(
    kind: str, run: Any, steps: Any, learn: Callable[[float, int], float], stop: int, weights: Callable[[], Any]
) -> Outcome:
    def made(gain: float) -> float:
        if stop and run.global_step + 1 == stop:
            run.request_stop()
        return learn(gain, run.global_step)

    result = VARIABLES[kind](steps, made)
    return Outcome(f"{weights()} {result}", run.exactness)


def by_supervised_epochs(kind: str, logdir: Path, stop: int) -> Outcome:
    """`supervised` with a loader."""
    import torch

    from supervisor_core.torch import supervised

    parts = _torch_parts()
    optimizer = torch.optim.SGD(parts.net.parameters(), lr=0.05)
    loader = torch.utils.data.DataLoader(parts.data, 4)
    own, change = parts.own, OBJECTS[kind]
    loop = supervised(loader, logdir, epochs=9, steps=STEPS, model=parts.net, optimizer=optimizer, save_secs=None)
    for batch in loop:
        change(parts, loop.global_step)
        optimizer.zero_grad()
        parts.net(**batch)["loss"].backward()
        optimizer.step()
        if stop and loop.global_step + 1 == stop:
            loop.request_stop()
    assert own is parts.own
    return parts.outcome(loop.exactness)


def by_lightning(kind: str, logdir: Path, stop: int) -> Outcome:
    """Lightning's callback."""
    import lightning
    import torch

    from supervisor_core.lightning import SupervisorCallback

    parts = _torch_parts()

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = parts.net

        def training_step(self, batch: Any, index: int) -> Any:
            return self.net(**batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.05)

    class Changes(lightning.Callback):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.own = parts.own

        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
            OBJECTS[kind](parts, trainer.global_step)
            if stop and trainer.global_step + 1 == stop:
                supervisor.run.request_stop()  # type: ignore[union-attr]

    supervisor = SupervisorCallback(logdir, save_secs=None)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_steps=STEPS, logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, callbacks=[supervisor, Changes()],
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(parts.data, 4))
    return parts.outcome(supervisor.exactness)


def by_trainer(kind: str, logdir: Path, stop: int) -> Outcome:
    """Transformers' callback."""
    import transformers

    from supervisor_core.transformers import SupervisorCallback

    parts = _torch_parts()

    class Changes(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.own = parts.own

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            OBJECTS[kind](parts, state.global_step)
            if stop and state.global_step + 1 == stop:
                supervisor.run.request_stop()  # type: ignore[union-attr]

    supervisor = SupervisorCallback(save_secs=None)
    args = transformers.TrainingArguments(
        output_dir=str(logdir), max_steps=STEPS, per_device_train_batch_size=4, optim="sgd", use_cpu=True,
        report_to=[], disable_tqdm=True, learning_rate=0.05, save_strategy="no", lr_scheduler_type="constant",
    )  # fmt: skip
    trainer = transformers.Trainer(parts.net, args, train_dataset=parts.data, callbacks=[supervisor, Changes()])
    with supervisor:
        trainer.train(resume_from_checkpoint=supervisor.resume_from())
    return parts.outcome(supervisor.exactness)


def by_keras(kind: str, logdir: Path, stop: int) -> Outcome:
    """Keras' callback."""
    import keras

    from supervisor_core.keras import SupervisorCallback

    class Scaled(keras.layers.Layer):  # type: ignore[misc, name-defined]
        scale, calls, act = 1.0, 0, staticmethod(same)

        def __init__(self) -> None:
            super().__init__()
            self.scale, self.calls, self.act = 1.0, 0, same

        def call(self, x: Any) -> Any:
            return self.act(x) * self.scale

    class Data(keras.utils.PyDataset):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.gain, self.transform = 1.0, same

        def __len__(self) -> int:
            return PER_EPOCH

        def __getitem__(self, index: int) -> Any:
            x = np.array([[n % 3, n % 5, n % 7, 1.0] for n in range(4 * index, 4 * index + 4)], "float32")
            return self.transform(x * self.gain), x[:, :1] > 1

    class Changes(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.level, self.mean = 1.0, np.zeros(4)  # which Keras' facade saves

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if supervisor.is_training:
                OBJECTS[kind](parts, supervisor.run.global_step)  # type: ignore[union-attr]
                if stop and supervisor.run.global_step + 1 == stop:  # type: ignore[union-attr]
                    supervisor.run.request_stop()  # type: ignore[union-attr]

    keras.utils.set_random_seed(1)
    scaled, dense = Scaled(), keras.layers.Dense(1)
    model = keras.Sequential([keras.layers.Input((4,)), dense, scaled])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    parts = Parts(scaled, Data(), lambda: np.asarray(keras.ops.convert_to_numpy(dense.kernel))[:, 0].astype(float))
    supervisor, parts.own = SupervisorCallback(logdir, save_secs=None), Changes()
    model.fit(parts.data, epochs=3, verbose=0, shuffle=False, callbacks=[supervisor, parts.own])
    return parts.outcome(supervisor.exactness)


FACADES: dict[str, tuple[Callable[[str, Path, int], Outcome], Iterable[str]]] = {
    "supervised, a range": (by_supervised_range, VARIABLES),
    "supervise": (by_supervise, VARIABLES),
    "supervise without PyTorch": (by_numpy, VARIABLES),
    "JAX": (by_jax, VARIABLES),
    "supervised": (by_supervised_epochs, OBJECTS),
    "Lightning": (by_lightning, OBJECTS),
    "Transformers": (by_trainer, OBJECTS),
    "Keras": (by_keras, OBJECTS),
}


def trial(facade: str, kind: str, directory: Path) -> tuple[bool, str]:
    """Return whether a resume of a training was exact, and the verdict on it."""
    train = FACADES[facade][0]
    whole = train(kind, directory / "whole", 0)
    half = train(kind, directory / "run", STOP)
    _FITS.clear()  # as in another process
    resumed = train(kind, directory / "run", 0)
    assert half.exactness is None
    return resumed.bits == whole.bits, resumed.exactness.verdict


def main(facades: Iterable[str]) -> None:
    """Print each trial, and the counts."""
    warnings.simplefilter("ignore")
    counts: dict[str, int] = {}
    for facade in facades:
        for kind in FACADES[facade][1]:
            with tempfile.TemporaryDirectory() as directory:
                try:
                    is_exact, verdict = trial(facade, kind, Path(directory))
                    named = verdict.startswith("not exact")
                    what = ("WRONG", "named")[named] if not is_exact else ("exact", "OVERCAUTIOUS")[named]
                except Exception as error:
                    what, verdict = "ERROR", f"{type(error).__name__}: {error}"
            counts[what] = counts.get(what, 0) + 1
            sys.stderr.write(f"{what:13} {facade:26} {kind:18} {verdict[:150]}\n")
    sys.stderr.write(f"{copy.copy(counts)}\n")


if __name__ == "__main__":
    main(sys.argv[1:] or FACADES)

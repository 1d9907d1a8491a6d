"""A process that trains with `supervise` or an adapter, and ends in one of many ways: see `test_what_ends_how.py`.

Usage: loops.py FACADE EVENT LOGDIR OPTIONS: two functions below, and the `Options` as a JSON object, with
``reserve_secs``, the part of the stop timeout that is kept for the last records. Each of the six steps raises the state
by one; the event happens in the body of the fourth, after the step's own work if the facade lets a program run code
there.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import supervisor_core
from supervisor_core import Options, Run, supervise
from supervisor_core.engine import deadline, ending, signal_watch

STEPS, AT = 6, 3
PAUSE = threading.Event()  # never set
HELD_SECS = 3600


def say(*words: object) -> None:
    """Print a line at once, whatever the process is doing."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


# What happens in a step; called with the session, a `Run` or what has its methods.

Event = Callable[[Any], object]


def nothing(run: Any) -> None:
    """The loop ends by itself."""


def requested(run: Any) -> None:
    """The program asks for the end."""
    run.request_stop()


def left(run: Any) -> bool:
    """The program leaves its loop by ``break``."""
    return True


def exception(run: Any) -> None:
    """An error in the body."""
    raise ArithmeticError("the loss exploded")


def poisoned(run: Any) -> None:
    """The state is not finite, and the program's own check raises."""
    run.wait_until_saved() if hasattr(run, "wait_until_saved") else run.run.wait_until_saved()
    raise FloatingPointError("the loss is nan")


class UnprintableError(Exception):
    """One whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def exception_without_text(run: Any) -> None:
    """An error in the body whose text cannot be had."""
    raise UnprintableError


def exit_0(run: Any) -> None:
    """The program exits in the body."""
    sys.exit(0)


def exit_3(run: Any) -> None:
    """The program exits in the body, with a status."""
    sys.exit(3)


def told_to_stop(run: Any, signum: int) -> None:
    """A signal comes, and its thread has asked for the stop."""
    os.kill(os.getpid(), signum)
    while not run.should_stop():
        PAUSE.wait(0.01)


def sigterm(run: Any) -> None:
    """A scheduler stops it."""
    told_to_stop(run, signal.SIGTERM)


def sighup(run: Any) -> None:
    """Its terminal is closed."""
    told_to_stop(run, signal.SIGHUP)


def sigquit(run: Any) -> None:
    """Somebody presses Ctrl-\\."""
    told_to_stop(run, signal.SIGQUIT)


def sigint(run: Any) -> None:
    """Somebody presses Ctrl-C."""
    told_to_stop(run, signal.SIGINT)


def interrupt(run: Any) -> None:
    """Ctrl-C where signals are not handled."""
    signal.raise_signal(signal.SIGINT)


def hang(run: Any) -> None:
    """A step does not end."""
    say("stuck")
    while True:
        PAUSE.wait(1)


def hang_for_long(run: Any) -> None:
    """A step does not end, for longer than it may."""
    while getattr(run, "run", run).run_status().stall is None:
        PAUSE.wait(0.01)
    hang(run)


def hang_after_a_signal(run: Any) -> None:
    """A step does not end; says when a first signal was handled. Any later one is a second."""
    signal_watch.ONE_PRESS_SECS = 0.0
    say("stuck")
    while not run.should_stop():
        PAUSE.wait(0.01)
    say("handled")
    while True:
        PAUSE.wait(1)


def hold(run: Any) -> None:
    """Native code holds the interpreter's lock."""
    say("stuck")
    sleep = ctypes.PyDLL(None).sleep
    sleep(1)  # the signal comes here, or a moment later
    while not run.should_stop():  # and who waits for the lock gets it once
        PAUSE.wait(0.01)
    while True:
        sleep(HELD_SECS)


def evaluate(run: Any) -> None:
    """An evaluation within a step takes long."""
    with run.phase("evaluating"):
        hang(run)


def full_disk(run: Any) -> None:
    """No file can grow any more, but those of the supervisor's records, which are small."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, resource.RLIM_INFINITY))
    hang_until_stopped(run)


def hang_until_stopped(run: Any) -> None:
    """Wait for the stop request."""
    say("ready")
    while not run.should_stop():
        PAUSE.wait(0.01)


def handled(run: Any) -> None:
    """The program's own handler exits."""
    os.kill(os.getpid(), signal.SIGTERM)
    PAUSE.wait(60)


def kill(run: Any) -> None:
    """The kernel ends it."""
    os.kill(os.getpid(), signal.SIGKILL)


def fork(run: Any) -> None:
    """A child that exits, one that raises."""
    for code in (0, 1):
        child = os.fork()
        if not child:
            if code:
                raise ArithmeticError("in the child")
            sys.exit(0)
        say("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def saved_on_signal(run: Any) -> None:
    """A checkpoint is asked for from outside; the signal's thread has noted that."""
    os.kill(os.getpid(), signal.SIGUSR1)
    while getattr(run, "run", run)._due.asked_by is None:
        PAUSE.wait(0.01)


class Loop:
    """What the events of one training happen in.

    Args:
        event: what happens.
        save_steps: steps between checkpoints; None saves none but the last.
    """

    def __init__(self, event: Event, save_steps: int | None = None) -> None:
        self.event = event
        self.save_steps = save_steps
        self.poison: Callable[[], object] = bool
        """Makes the state not finite, where the program has a hand on it."""

    def body(self, run: Any, step: int) -> object:
        """The end of a step's body; return whether the loop is left there."""
        if step != AT:
            return False
        if self.event is poisoned:
            self.poison()
        return self.event(run)

    def trained(self, step: int) -> None:
        """A step has ended."""
        say("trained", step)


class Counter:
    """A state that is the number of steps, with 1 MB beside it."""

    def __init__(self) -> None:
        import numpy as np

        self.value = np.zeros(1 << 17)

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


# The facades. Each saves nothing by itself.


def counted(logdir: str, options: Options, loop: Loop) -> tuple[Counter, Run]:
    """Return a counter, and a session that saves it."""
    counter = Counter()
    state = {"counter": counter}
    return counter, supervise(logdir, state=state, save_secs=None, save_steps=loop.save_steps, options=options)


def plain(logdir: str, options: Options, loop: Loop) -> None:
    """`supervise` with `Run.steps`."""
    counter, run = counted(logdir, options, loop)
    loop.poison = lambda: counter.value.fill(float("nan"))
    with run:
        for step in run.steps(STEPS):
            counter.value += 1
            if loop.body(run, step):
                break
            loop.trained(step + 1)


def never_asks(logdir: str, options: Options, loop: Loop) -> None:
    """`supervise` with a loop of the program's own, which never asks whether to stop."""
    counter, run = counted(logdir, options, loop)
    with run:
        for step in range(10**9):
            counter.value += 1
            if step == AT:
                loop.event(run)
            run.step()
            if step == AT:
                say("ready")
            if step >= AT:
                PAUSE.wait(0.01)


def prints(logdir: str, options: Options, loop: Loop) -> None:
    """`supervise` with a loop that prints, as with a progress bar, until it is stopped."""
    counter, run = counted(logdir, options, loop)
    with run:
        for step in run.steps(10**9):
            counter.value += 1
            print("trained", step + 1, flush=True)
            PAUSE.wait(0.01)


def left_open(logdir: str, options: Options, loop: Loop) -> None:
    """`supervise`, entered by hand and never left."""
    counter, run = counted(logdir, options, loop)
    run.__enter__()
    for step in run.steps(STEPS):
        counter.value += 1
        loop.body(run, step)
        loop.trained(step + 1)


def in_thread(logdir: str, options: Options, loop: Loop) -> None:
    """`supervise` in a thread."""
    thread = threading.Thread(target=plain, args=(logdir, options, loop), name="trainer")
    thread.start()
    thread.join()


def in_asyncio(logdir: str, options: Options, loop: Loop) -> None:
    """`supervise` in a coroutine."""
    counter, run = counted(logdir, options, loop)

    async def train() -> None:
        with run:
            for step in run.steps(STEPS):
                await asyncio.sleep(0)
                counter.value += 1
                loop.body(run, step)
                await asyncio.sleep(0)
                loop.trained(step + 1)

    asyncio.run(train())


def torch_loop(logdir: str, options: Options, loop: Loop, *, within: bool) -> None:
    """PyTorch's `supervised`, with and without its ``with`` statement."""
    import torch

    from supervisor_core.torch import supervised

    model = torch.nn.Linear(256, 512, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    batches = supervised(
        [0] * STEPS, logdir, model=model, optimizer=optimizer, save_secs=None, save_steps=loop.save_steps,
        options=options,
    )  # fmt: skip
    loop.poison = lambda: torch.nn.init.constant_(model.weight, float("nan"))

    def train(batch: Any) -> object:
        step = batches.global_step
        optimizer.zero_grad()
        model.weight.grad = torch.full_like(model.weight, -1.0)
        optimizer.step()
        if loop.body(batches, step):
            return True
        loop.trained(step + 1)
        return False

    if not within:
        for batch in batches:
            if train(batch):
                break
        return
    with batches:
        for batch in batches:
            if train(batch):
                break


def torch_with(logdir: str, options: Options, loop: Loop) -> None:
    """PyTorch's loop in its ``with`` statement."""
    torch_loop(logdir, options, loop, within=True)


def torch_for(logdir: str, options: Options, loop: Loop) -> None:
    """PyTorch's loop alone."""
    torch_loop(logdir, options, loop, within=False)


def jax(logdir: str, options: Options, loop: Loop) -> None:
    """JAX's `supervised`."""
    import jax.numpy as jnp
    import numpy as np

    from supervisor_core.jax import supervised

    value = jnp.asarray(np.random.default_rng(0).random(1 << 17))  # Orbax would make little of zeros
    with supervised(logdir, state={"value": value}, save_secs=None, save_steps=loop.save_steps, options=options) as run:
        for step in run.steps(STEPS):
            run.state = {"value": run.state["value"] + 1}
            if loop.body(run, step):
                break
            loop.trained(step + 1)


def keras(logdir: str, options: Options, loop: Loop) -> None:
    """Keras' callback; the event happens in the middle of a batch."""
    os.environ.setdefault("KERAS_BACKEND", next(name for name in ("tensorflow", "torch", "jax") if find_spec(name)))
    import keras
    import numpy as np

    from supervisor_core.keras import SupervisorCallback

    supervisor = SupervisorCallback(logdir, save_secs=None, save_steps=loop.save_steps, options=options)

    class Happens(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            loop.body(supervisor.run, batch)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            loop.trained(batch + 1)

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(512)])
    model.compile("sgd", "mse", run_eagerly=True)
    data = np.ones((STEPS, 256), np.float32), np.ones((STEPS, 512), np.float32)
    model.fit(*data, batch_size=1, shuffle=False, verbose=0, callbacks=[Happens(), supervisor])


def lightning(logdir: str, options: Options, loop: Loop) -> None:
    """Lightning's callback; the event happens in the middle of a batch."""
    import torch
    from lightning.pytorch import LightningModule, Trainer

    from supervisor_core.lightning import SupervisorCallback

    supervisor = SupervisorCallback(logdir, save_secs=None, save_steps=loop.save_steps, options=options)

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(256, 512)

        def training_step(self, batch: Any, number: int) -> Any:
            loop.body(supervisor.run, number)
            return self.layer(batch).sum()

        def on_train_batch_end(self, outputs: Any, batch: Any, number: int) -> None:
            loop.trained(number + 1)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    quiet: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False
    )
    trainer = Trainer(max_epochs=1, accelerator="cpu", callbacks=[supervisor], **quiet)
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(STEPS, 256), batch_size=1))


def transformers(logdir: str, options: Options, loop: Loop) -> None:
    """The callback of Hugging Face's Trainer; the event happens in the middle of a step."""
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from supervisor_core.transformers import SupervisorCallback

    supervisor = SupervisorCallback(save_secs=None, save_steps=loop.save_steps, options=options)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(256, 512)

        def forward(self, features: Any, labels: Any = None) -> dict[str, Any]:
            return {"loss": self.layer(features).sum()}

    class Happens(TrainerCallback):  # type: ignore[misc]
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            loop.body(supervisor.run, state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            loop.trained(state.global_step)

    arguments = TrainingArguments(
        logdir, max_steps=STEPS, per_device_train_batch_size=1, save_strategy="no", report_to=[], use_cpu=True,
        disable_tqdm=True,
    )  # fmt: skip
    samples = [{"features": torch.ones(256), "labels": 0} for _ in range(STEPS)]
    trainer = Trainer(Model(), arguments, train_dataset=samples, callbacks=[Happens(), supervisor])
    trainer.train(resume_from_checkpoint=supervisor.resume_from())


def main() -> None:
    """Train, and say how the program went on."""
    facade, event, logdir = sys.argv[1:4]
    options = json.loads(sys.argv[4])
    ending.AGAIN_SECS = 10.0  # a slow disk may take longer than a second for the last record
    ending.HANG_UP_SECS = 60.0  # a shell that has not ended yet passes no SIGHUP on
    if "reserve_secs" in options:  # and so it may at the end of the stop timeout
        deadline.RESERVE_SHARE, deadline.RESERVE_SECS = 1.0, options.pop("reserve_secs")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if event == "handled":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    atexit.register(say, "atexit ran")
    try:
        loop = Loop(globals()[event], options.pop("save_steps", None))
        globals()[facade](logdir, Options(**options), loop)
    except KeyboardInterrupt:
        say("except KeyboardInterrupt ran")
        raise
    finally:
        say("finally ran")


if __name__ == "__main__":
    assert supervisor_core
    main()

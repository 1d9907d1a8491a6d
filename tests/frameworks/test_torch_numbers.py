# ruff: noqa: SIM113
"""A number that begins again with each session is named, unless the loop's source shows that it is only for the log."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")

from supervisor_core.torch import supervised  # noqa: E402
from supervisor_core.torch.loop_frame import ENUMERATED, NUMBER  # noqa: E402


class Net(torch.nn.Module):  # type: ignore[misc]
    """A model with a method that changes nothing, and one that does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.rate = 0.1

    def weights(self) -> int:
        return sum(part.numel() for part in self.parameters())

    def estimate(self, count: int) -> float:
        flops = 6 * self.weights()
        return flops / (count + 1)

    def schedule(self, count: int) -> float:
        self.rate = 0.1 / (count + 1)
        return self.rate


def logged(loop: Any, net: Any) -> None:
    """A count that is printed, through other variables and on conditions."""
    n, running, said = 0, -1.0, ""
    for step in loop:
        if n >= 5:
            mfu = net.estimate(n * 2)
            running = mfu if running == -1.0 else 0.9 * running + 0.1 * mfu
        n += 1
        if step % 2 == 0:
            said = f"{n} {running:.2f}"
            print(step, said, "of", float(n))


def index(loop: Any, net: Any) -> None:
    """The number chooses."""
    n, data = 0, list(range(9))
    for _ in loop:
        net.rate = data[n]
        n += 1


def argument(loop: Any, net: Any) -> None:
    """The number is handed on."""
    n = 0
    for _ in loop:
        net.schedule(n)
        n += 1


def argument_on_a_condition(loop: Any, net: Any) -> None:
    """What is done on a condition changes something."""
    n = 0
    for _ in loop:
        if n > 1:
            rate = net.schedule(3)
            print(rate)
        n += 1


def logarithm(loop: Any, net: Any) -> None:
    """A function that is named as one that logs."""
    n = 1
    for _ in loop:
        net.rate = 1.0 / math.log(n + 1)
        n += 1


def by_way_of_another(loop: Any, net: Any) -> None:
    """What is computed of it is used."""
    n = 0
    for _ in loop:
        share = n / 9
        n += 1
        net.rate = share


def leaves(loop: Any, net: Any) -> None:
    """The loop ends by it."""
    n = 0
    for _ in loop:
        if n > 100:
            break
        n += 1


def closure(loop: Any, net: Any) -> None:
    """A function reads it."""
    n = 0

    def rate() -> float:
        return 0.1 * n

    for _ in loop:
        net.rate = rate()
        n += 1


def keyword(loop: Any, net: Any) -> None:
    """The number is handed on by name."""
    n = 0
    for _ in loop:
        net.layer.weight.data.mul_(other=n)
        n += 1


def looked_up(loop: Any, net: Any) -> None:
    """It is read by its name."""
    n = 0
    for _ in loop:
        net.rate = locals()["n"]
        n += 1


def in_a_loop(loop: Any, net: Any) -> None:
    """It is how often something is done."""
    n = 0
    for _ in loop:
        for _ in range(n):
            net.rate /= 2
        n += 1


LOOPS: dict[Callable[[Any, Any], None], bool] = {
    logged: False, index: True, argument: True, argument_on_a_condition: True, logarithm: True,
    by_way_of_another: True, leaves: True, closure: True, keyword: True, looked_up: True, in_a_loop: True,
}  # fmt: skip


@pytest.mark.parametrize("body", LOOPS, ids=lambda body: body.__name__)
def test_a_number_is_named_where_training_may_depend_on_it(tmp_path: Path, body: Callable[[Any, Any], None]) -> None:
    """Through an index, an argument, a condition, another variable, a function; not where it ends in the log."""
    net = Net()
    loop = supervised(range(3), tmp_path, model=net, save_secs=None)
    body(loop, net)
    assert any("the number in n" in limit for limit in loop.limits) is LOOPS[body]


def test_a_script(tmp_path: Path) -> None:
    """The variables of a module are the loop's, and any function's of it."""
    source = (
        "def rate():\n    return 0.1 * position\n"
        "class Reader:\n    at = 0\n"
        "count, position, reader = 0, 0, Reader()\n"
        "for step in loop:\n    net.rate = rate()\n    position += 1\n    count += 1\n    reader.at += 1\n"
        "    print('steps', count)\n"
    )
    script = tmp_path / "train.py"
    script.write_text(source)
    loop = supervised(range(3), tmp_path / "run", model=(net := Net()), save_secs=None)
    exec(compile(source, str(script), "exec"), {"loop": loop, "net": net, "__name__": "__main__"})
    assert loop.limits == (NUMBER.format("position, reader.at"),)


def chooses(loop: Any, batches: Any, net: Any, options: Any) -> None:
    """What is done on a condition with the number changes the model."""
    for i, _ in enumerate(batches, 0):
        net.rate += 1
        if i % 100 == 0:
            net.schedule(3)
        if loop.global_step == options.until:
            break


def only_prints(loop: Any, batches: Any, net: Any, options: Any) -> None:
    """The number is for the log, but for an option that is not set."""
    total = 0.0
    for i, (_, value) in enumerate(batches):
        net.rate += 1
        total += value
        if i % 2 == 0 and i > 0:
            print(f"{i} {100.0 * i / len(loop):.0f}%", math.exp(total / i))
            total = 0
            if options.dry_run:
                break
        if loop.global_step == options.until:
            break


def by_way_of_a_bar(loop: Any, batches: Any, net: Any, options: Any) -> None:
    """The number is handed on, by way of a progress bar."""
    for i, _ in enumerate(bar(batches)):
        net.schedule(i)
        if loop.global_step == options.until:
            break


def bar(batches: Any) -> Any:
    """A progress bar."""
    yield from batches


@pytest.mark.parametrize("own_epochs", [False, True])
@pytest.mark.parametrize("body", [chooses, only_prints, by_way_of_a_bar])
def test_the_number_of_enumerate(tmp_path: Path, body: Callable[..., None], own_epochs: bool) -> None:
    """It begins again in an epoch that goes on: named there where more than the log depends on it, not at its end."""
    loader, net, options = [(number, 1.0) for number in range(4)], Net(), argparse.Namespace(dry_run=False, until=2)
    for session in range(2):
        loop = supervised(loader, tmp_path, epochs=2, model=net, save_secs=None)
        for _ in loop.epochs() if own_epochs else range(1):
            body(loop, loop, net, options)
            if not session:
                break
        options.until = 99
    reasons = (ENUMERATED.format("i"),) if body is not only_prints else ()
    assert loop.exactness is not None
    assert [reason for reason in loop.exactness.reasons if "enumerate" in reason] == list(reasons)
    assert any("enumerate" in limit for limit in loop.limits) is (bool(reasons) and not own_epochs)

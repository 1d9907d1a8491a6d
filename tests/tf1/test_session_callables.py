"""What a supervised session's make_callable returns, beside what the original's returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.engine.step_lock import StepLock
from supervisor_core.tf1.session import SupervisedSession

v1 = tf.compat.v1


@pytest.fixture
def model(graph: Any, build_model: Callable[..., Any]) -> Any:
    """The smallest model, in the test's own graph."""
    return build_model()


CALLABLES: dict[str, tuple[Callable[[Any], tuple[Any, ...]], tuple[Any, ...]]] = {
    "operation": (lambda m: (m.train_op,), ()),
    "tensor": (lambda m: (m.weight.value(),), ()),
    "structure": (lambda m: ({"a": [m.weight], "b": m.train_op},), ()),
    "options": (lambda m: (m.weight, None, True), ()),
    "feeds": (lambda m: ([m.weight], ["weight/Read/ReadVariableOp:0"]), (2.0,)),
    "no feeds": (lambda m: ([m.weight], []), ()),
    "too many arguments": (lambda m: (m.train_op,), (1,)),
    "feeds that are no list": (lambda m: (m.weight, 3), ()),
    "None": (lambda m: (None,), ()),
    "failing": (lambda m: ("unset/Read/ReadVariableOp:0",), ()),
}


@pytest.mark.parametrize("name", CALLABLES)
def test_callables_are_as_the_originals(model: Any, name: str) -> None:
    """make_callable returns what the original's returns, and raises what that raises, made or called."""
    v1.get_variable("unset", [])
    init = tf.group(model.global_step.initializer, model.weight.initializer)
    arguments, values = CALLABLES[name]
    made = arguments(model)

    def outcomes(session: Any) -> list[Any]:
        found: list[Any] = []
        with session:
            session.run(init)
            try:
                call = session.make_callable(*made)
                for _ in range(3):
                    found.append(repr(call(*values)))
            except Exception as error:
                found.append((type(error), str(error).replace("watched", "").replace("_single_operation_run", "")))
        return found

    assert outcomes(SupervisedSession(step_lock=StepLock(), global_step=model.global_step)) == outcomes(v1.Session())

"""`reached`: from operation to operation through a graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

VARIABLES = frozenset({"VarHandleOp", "Variable", "VariableV2"})
"""What a variable is in a graph."""


def needs(op: Any, fed: Collection[int] = frozenset()) -> list[Any]:
    """Return the operations that one waits for.

    Args:
        fed: the ids of tensors that are fed: what would compute them is not run.
    """
    return [*(tensor.op for tensor in op.inputs if id(tensor) not in fed), *op.control_inputs]


def reached(ops: Iterable[Any], following: Callable[[Any], Iterable[Any]] = needs) -> Iterator[Any]:
    """Yield operations, and all that they lead to, each once.

    Args:
        ops: where to begin.
        following: returns where one leads to; called after it was yielded.
    """
    pending, seen = list(ops), set()
    while pending:
        op = pending.pop()
        if op.name not in seen:
            seen.add(op.name)
            yield op
            pending.extend(following(op))

"""`unfinalized`: a finalized graph that may grow for a moment, by what the supervisor itself adds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from supervisor_core.tf1 import private_symbols as private


@contextmanager
def unfinalized(graph: Any) -> Iterator[bool]:
    """Let a graph grow for the length of a block; it is finalized again afterwards, if it was before.

    The block gets whether it may: in a TensorFlow without `private_symbols.UNFINALIZE` a finalized graph stays so.

    Scaffolds finalize the graph, those of TensorFlow's own and of programs too, before anybody knows which saver is to
    be used.
    """
    if not graph.finalized or not unfinalize(graph):
        yield not graph.finalized
        return
    try:
        yield True
    finally:
        graph.finalize()


def unfinalize(graph: Any) -> bool:
    """Let a finalized graph grow again; return whether this TensorFlow can do that."""
    undo = private.UNFINALIZE.get(graph)
    if undo is not None:
        undo()
    return undo is not None

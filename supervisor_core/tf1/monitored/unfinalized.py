"""`unfinalized`: a finalized graph that may grow for a moment, by what the supervisor itself adds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def unfinalized(graph: Any) -> Iterator[None]:
    """Let a graph grow for the length of a block; it is finalized again afterwards, if it was before.

    Scaffolds finalize the graph, those of TensorFlow's own and of programs too, before anybody knows which saver is to
    be used.
    """
    if not graph.finalized:
        yield
        return
    graph._unsafe_unfinalize()
    try:
        yield
    finally:
        graph.finalize()

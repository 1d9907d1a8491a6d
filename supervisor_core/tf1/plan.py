"""`Plan`: everything that ``Session.run`` works out about a run before it runs, worked out once.

A plan calls the very function that ``Session.run`` calls in the end, with the same arguments, so its results are the
same by construction; an error passes through TensorFlow's own wording of errors. A plan that is run often and is quick
moves on to a `NativeCallable` as soon as the callable, had there been one from the start, would have paid for itself:
so it never costs more than it may save.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import tensorflow as tf

from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.feeds import DeclinedError, Feed
from supervisor_core.tf1.fetches import leaves, rebuild
from supervisor_core.tf1.native import Native
from supervisor_core.tf1.native_callable import NativeCallable, is_safe
from supervisor_core.tf1.run_traits import RunAnalysis

_LOG = logging.getLogger("supervisor_core")

SAVED_SECS = 10e-6
"""What a callable saves of each run, in seconds."""
MIN_RUNS = 100
"""No callable before so many runs."""
QUICK_SECS = 1e-3
"""A run that takes longer gains less than one part in a hundred, and gets no callable."""

_TO_ARRAY = Feed.array


class UnplannableError(Exception):
    """This run is for ``Session.run``; the text says why."""


class Plan:
    """How to run one structure of fetches with one sequence of feed keys.

    Args:
        native: the functions of TensorFlow.
        session: the plain session to run in; kept alive by this object.
        analysis: what finds the traits of a run.
        fetches: the structure, in a form that `fetches.structure_key` knows.
        feed_keys: what is fed, in the order of the dictionary.
        first_secs: seconds that the first run took, about what making a callable takes.

    Raises:
        UnplannableError: if only ``Session.run`` can run this.
    """

    def __init__(
        self,
        native: Native,
        session: Any,
        analysis: RunAnalysis,
        fetches: Any,
        feed_keys: Sequence[Any],
        first_secs: float = 0.0,
    ) -> None:
        self._native = native
        self._session = session
        self._c_session = private.C_SESSION.of(session)
        self._graph = session.graph
        self.leaves = (*leaves(fetches), *feed_keys)
        """Kept, for the key that finds this plan is made of their identities."""
        fed = [self._element(key) for key in feed_keys]
        fetched = [self._element(leaf) for leaf in leaves(fetches)]
        self._check(fed, fetched)
        distinct = list({id(element): element for element in fetched}.values())
        self.targets = [element for element in distinct if isinstance(element, tf.Operation)]
        self.tensors = [element for element in distinct if not isinstance(element, tf.Operation)]
        if not distinct:
            raise UnplannableError("nothing is fetched")
        self.traits = analysis.of_elements(distinct, fed)
        self.feeds = tuple(Feed(tensor, native) for tensor in fed)
        position = {id(tensor): index for index, tensor in enumerate(self.tensors)}
        # For an operation the last value is picked, which is None.
        self.results = _builder(fetches, [position.get(id(element), -1) for element in fetched])
        """``(fetches, values)`` -> the values of `run` in the form of these fetches."""
        self._fed_outputs = [private.TF_OUTPUT.of(tensor)() for tensor in fed]
        self._outputs = [private.TF_OUTPUT.of(tensor)() for tensor in self.tensors]
        self._operations = [private.C_OPERATION.of(op) for op in self.targets]
        self._do_call = private.DO_CALL.of(session)
        self._callable: NativeCallable | None = None
        self._runs_left: float = max(MIN_RUNS, first_secs / SAVED_SECS)
        self.last_used = 0.0

    @property
    def elements(self) -> list[Any]:
        """The tensors and operations that are run."""
        return [*self.tensors, *self.targets]

    @property
    def has_callable(self) -> bool:
        """Whether this plan has moved on to a callable."""
        return self._callable is not None

    def arrays(self, feed_dict: Mapping[Any, Any] | None) -> Sequence[Any] | None:
        """Return the arrays to feed; None if a value is for ``Session.run`` to judge."""
        if not self.feeds:
            return ()
        try:
            return [*map(_TO_ARRAY, self.feeds, feed_dict.values())]  # type: ignore[union-attr]
        except DeclinedError:
            return None

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Run, and return the values of the distinct tensors; raises what ``Session.run`` would raise."""
        prepared = self._callable
        try:
            if prepared is not None:
                return prepared.run(arrays, None)
            fed = dict(zip(self._fed_outputs, arrays, strict=True))
            return self._native.run(self._c_session, None, fed, self._outputs, self._operations, None)
        except tf.errors.OpError as error:
            return self._do_call(_raise, error)  # type: ignore[no-any-return]

    def ran(self, started: float, ended: float) -> None:
        """Record a run that went well; this may make the callable."""
        self.last_used = ended
        self._runs_left -= 1
        if self._runs_left <= 0:
            self._runs_left = math.inf
            if ended - started < QUICK_SECS:
                self.make_callable()

    def make_callable(self) -> None:
        """Move on to a callable, if it gives the same results, and TensorFlow can make one."""
        fed = [feed.tensor for feed in self.feeds]
        try:
            # A callable is only known to be equal where it runs in this process.
            functions = None if self._session.sess_str else self._native.callables
            if functions is not None and is_safe(self._graph, fed, self.tensors, self.targets):
                self._callable = NativeCallable(functions, self._session, fed, self.tensors, self.targets)
        except Exception:  # a run that went well does not fail for want of a faster one
            _LOG.debug("No callable could be made for %s", self.elements, exc_info=True)

    def is_allowed(self) -> bool:
        """Return whether everything may be fetched and fed: a graph may forbid it later."""
        feedable = all(self._graph.is_feedable(feed.tensor) for feed in self.feeds)
        return feedable and all(map(self._graph.is_fetchable, self.elements))

    def _element(self, leaf: Any) -> Any:
        """The tensor or operation that a leaf stands for, always the same."""
        if next(kind for kind, *_ in self._native.expansions if isinstance(leaf, kind)) is not object:
            raise UnplannableError(f"{leaf} stands for several tensors")
        try:
            element, again = self._graph.as_graph_element(leaf), self._graph.as_graph_element(leaf)
        except (KeyError, TypeError, ValueError) as error:
            raise UnplannableError(f"{leaf} is not in the graph") from error
        if element is not again:
            raise UnplannableError(f"{leaf} stands for another tensor each time")
        return element

    def _check(self, fed: Sequence[Any], fetched: Sequence[Any]) -> None:
        graph, handle_feeders = self._graph, private.HANDLE_FEEDERS.of(self._graph)
        fed_ids = {id(tensor) for tensor in fed}
        for tensor in fed:
            if isinstance(tensor, tf.Operation) or not graph.is_feedable(tensor):
                raise UnplannableError(f"{tensor} cannot be fed")
            if tensor.dtype in (tf.resource, tf.variant) or tensor.op.name in handle_feeders:
                raise UnplannableError(f"{tensor} is fed a handle")
        for element in fetched:
            if id(element) in fed_ids:
                raise UnplannableError(f"{element} is fed and fetched")
            if not graph.is_fetchable(element):
                raise UnplannableError(f"{element} cannot be fetched")
            if getattr(element, "op", element).type in ("GetSessionHandle", "GetSessionHandleV2"):
                raise UnplannableError(f"{element} is fetched as a handle")


def _raise(error: Exception) -> list[Any]:
    raise error


def _builder(fetches: Any, positions: list[int]) -> Callable[[Any, list[Any]], Any]:
    """Return what picks the values at these positions, and puts them into the form of ``fetches``."""
    kind = type(fetches)
    flat = kind in (list, tuple, dict, OrderedDict)
    if not flat and not isinstance(fetches, tuple):
        return (lambda form, values: None) if positions == [-1] else (lambda form, values: values[0])
    children = fetches.values() if isinstance(fetches, Mapping) else fetches
    flat = flat and not any(isinstance(child, (list, tuple, Mapping)) for child in children)
    pick: Callable[[list[Any]], Sequence[Any]] = itemgetter(*positions)
    if len(positions) == 1:
        pick = itemgetter(slice(positions[0], positions[0] + 1 or None))

    def sequence(form: Any, values: list[Any]) -> Any:
        values.append(None)
        return kind(pick(values))

    def mapping(form: Any, values: list[Any]) -> Any:
        values.append(None)
        return kind(zip(form, pick(values), strict=True))

    def nested(form: Any, values: list[Any]) -> Any:
        values.append(None)
        return rebuild(form, iter(pick(values)))

    if not flat:
        return nested
    return sequence if kind is list or kind is tuple else mapping

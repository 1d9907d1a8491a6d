"""`CallableCache`: what ``Session.run`` resolves for a run, resolved once per structure of fetches and feeds.

    find        the plan of this run: a dictionary lookup by form and identity of what is fetched and fed
    arrays      the values to feed, converted as ``Session.run`` converts them
    run         the function that ``Session.run`` calls in the end, with the same arguments
    results     the values in the form of the fetches

A `RunPlan` calls the very function that ``Session.run`` calls, so its results are the same by construction; an error
passes through TensorFlow's own wording of errors. A plan that is run often and is quick moves on to a `NativeCallable`
as soon as the callable, had there been one from the start, would have paid for itself: so it never costs more than it
may save. Whatever has no plan goes through ``Session.run``.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import tensorflow as tf

from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.native_runs import Native, NativeCallable, installed, is_safe
from supervisor_core.tf1.run_values import DeclinedError, Feed, leaves, rebuild, structure_key
from supervisor_core.tf1.step_detection import RunAnalysis

_LOG = logging.getLogger("supervisor_core")

MAX_PLANS = 64
"""The plan that was not used for longest makes room for the next."""
MAX_SEEN = 256
"""How many structures are remembered that were run once, and how many that get no plan."""

SAVED_SECS = 10e-6
"""What a callable saves of each run, in seconds."""
MIN_RUNS = 100
"""How many runs a plan has before it may get a callable."""
QUICK_SECS = 1e-3
"""A run that takes longer gains less than one part in a hundred, and gets no callable."""

_TO_ARRAY = Feed.array
_NEEDED_OF_SESSIONS = (private.CLOSED, private.C_SESSION, private.DO_CALL)


class CallableCache:
    """Finds or makes the plan of a run. Thread-safe; a hit takes no lock.

    A structure gets a plan when it is run for the second time, so that what is run once costs nothing more. A program
    that fetches something else each time leaves nothing behind but a bounded number of keys.

    Args:
        native: the functions of TensorFlow.
        session: the plain session to run in; kept alive by the cache.
        analysis: what finds the traits of a run.

    Raises:
        AttributeError: if this TensorFlow's sessions or graphs lack a symbol that plans need.
    """

    def __init__(self, native: Native, session: Any, analysis: RunAnalysis) -> None:
        self._native = native
        self._session = session
        self._graph = session.graph
        self._analysis = analysis
        for needed in _NEEDED_OF_SESSIONS:
            needed.of(session)
        private.HANDLE_FEEDERS.of(self._graph)
        self._is_closed = private.CLOSED.reader()
        # Sets that only grow.
        self._unfetchable, self._unfeedable = private.UNFETCHABLE.of(self._graph), private.UNFEEDABLE.of(self._graph)
        self._unfetchable_count, self._unfeedable_count = len(self._unfetchable), len(self._unfeedable)
        self._lock = threading.Lock()
        self._table: dict[Hashable, RunPlan] = {}
        self._seen: dict[Hashable, float] = {}
        # Their leaves are kept: an identity must not pass on to another object.
        self._refused: dict[Hashable, tuple[Any, ...]] = {}
        self._base, self._original_run = native.base, native.original_run
        self._expansions, self._expansion_count = native.expansions, len(native.expansions)

    def __len__(self) -> int:
        return len(self._table)

    def find(self, fetches: Any, feed_dict: Any) -> RunPlan | None:
        """Return the plan of this run, or None: run it by ``Session.run``, and `remember` it if that went well."""
        kind = type(fetches)
        feeds: Any = ()
        if feed_dict is not None:
            if type(feed_dict) is not dict:
                return None
            feeds = feed_dict
        # Of a flat structure of anything but strings, this is its _run_key, without the calls.
        key: Any
        if kind is list or kind is tuple or kind is dict:
            children = fetches.values() if kind is dict else fetches
            key = (kind, *map(id, children), None, *map(id, feeds)) if feeds else (kind, *map(id, children))
        else:
            key = (id(fetches), None, *map(id, feeds)) if feeds else id(fetches)
        plan = self._table.get(key)
        if plan is None:
            plan = self._find_or_make(fetches, feed_dict)
            if plan is None:
                return None
        if len(self._unfetchable) != self._unfetchable_count or len(self._unfeedable) != self._unfeedable_count:
            self._drop_forbidden()
            plan = self._table.get(_run_key(fetches, feed_dict))
        # A profiler may want to see the runs; the program may have taught Session.run new fetches.
        if self._base.run is not self._original_run or len(self._expansions) != self._expansion_count:
            return None
        # A graph that was dismantled is empty again.
        return None if self._is_closed(self._session) or not self._graph.version else plan

    def is_new(self, fetches: Any, feed_dict: Any) -> bool:
        """Return whether this was not run before, as far as is remembered."""
        key = _run_key(fetches, feed_dict)
        return key is not None and key not in self._seen and key not in self._refused and key not in self._table

    def remember(self, fetches: Any, feed_dict: Any, secs: float) -> None:
        """Record a run that went well through ``Session.run``, and how many seconds it took."""
        key = _run_key(fetches, feed_dict)
        if key is not None and key not in self._refused:
            with self._lock:
                if len(self._seen) >= MAX_SEEN:
                    self._seen.clear()
                self._seen.setdefault(key, secs)

    def _find_or_make(self, fetches: Any, feed_dict: Any) -> RunPlan | None:
        key = _run_key(fetches, feed_dict)
        plan = self._table.get(key)
        if plan is not None or key is None or key in self._refused:
            return plan
        first_secs = self._seen.pop(key, None)
        if first_secs is None:
            return None
        feed_keys = list(feed_dict or ())
        try:
            plan = RunPlan(self._native, self._session, self._analysis, fetches, feed_keys, first_secs)
        except Exception as error:  # whatever is wrong here, Session.run is always right
            if not isinstance(error, NotCacheableError):
                _LOG.debug("No plan could be made for %s", fetches, exc_info=True)
            with self._lock:
                if len(self._refused) >= MAX_SEEN:
                    self._refused.clear()
                self._refused[key] = (*leaves(fetches), *feed_keys)
            return None
        with self._lock:
            if len(self._table) >= MAX_PLANS:
                del self._table[min(self._table, key=lambda each: self._table[each].last_used)]
            self._table[key] = plan
        return plan

    def _drop_forbidden(self) -> None:
        """Drop the plans of what may no longer be fetched or fed: Session.run refuses it in its own words."""
        with self._lock:
            counts = len(self._unfetchable), len(self._unfeedable)
            for key, plan in list(self._table.items()):
                if not plan.is_allowed():
                    del self._table[key]
            self._unfetchable_count, self._unfeedable_count = counts


def run_cache_for(session: Any, analysis: RunAnalysis) -> CallableCache | None:
    """Return the cache of a session's runs; None with a TensorFlow without the symbols that plans need."""
    native = installed()
    try:
        return None if native is None else CallableCache(native, session, analysis)
    except AttributeError:
        return None


def _run_key(fetches: Any, feed_dict: Any) -> Hashable | None:
    if feed_dict is not None and type(feed_dict) is not dict:
        return None
    key: Any = structure_key(fetches)
    if key is None or not feed_dict:
        return key  # type: ignore[no-any-return]
    feed_keys = tuple(structure_key(name) for name in feed_dict)
    # A key that is itself a structure feeds several tensors at once.
    if any(isinstance(name, tuple) for name in feed_keys):
        return None
    return (*key, None, *feed_keys) if isinstance(key, tuple) else (key, None, *feed_keys)


class NotCacheableError(Exception):
    """This run is for ``Session.run``; the text says why."""


class RunPlan:
    """How to run one structure of fetches with one sequence of feed keys.

    Args:
        native: the functions of TensorFlow.
        session: the plain session to run in; kept alive by this object.
        analysis: what finds the traits of a run.
        fetches: the structure, in a form that `fetches.structure_key` knows.
        feed_keys: what is fed, in the order of the dictionary.
        first_secs: seconds that the first run took, about what making a callable takes.

    Raises:
        NotCacheableError: if only ``Session.run`` can run this.
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
            raise NotCacheableError("nothing is fetched")
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
        self.prepared: NativeCallable | None = None
        """The callable that this plan has moved on to."""
        self._runs_left: float = max(MIN_RUNS, first_secs / SAVED_SECS)
        self.last_used = 0.0

    @property
    def elements(self) -> list[Any]:
        """The tensors and operations that are run."""
        return [*self.tensors, *self.targets]

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
        prepared = self.prepared
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
            is_quick = ended - started < QUICK_SECS
            # One run may take long because it waits for a processor: a later one decides again.
            self._runs_left = math.inf if is_quick else MIN_RUNS
            if is_quick:
                self.make_callable()

    def make_callable(self) -> None:
        """Move on to a callable, if it gives the same results, and TensorFlow can make one."""
        fed = [feed.tensor for feed in self.feeds]
        try:
            # A callable is only known to be equal where it runs in this process.
            if not self._session.sess_str and is_safe(self._graph, fed, self.tensors, self.targets):
                self.prepared = NativeCallable(self._session, fed, self.tensors, self.targets)
        except Exception:  # a run that went well does not fail for want of a faster one
            _LOG.debug("No callable could be made for %s", ", ".join(map(str, self.elements)), exc_info=True)

    def is_allowed(self) -> bool:
        """Return whether everything may be fetched and fed: a graph may forbid it later."""
        feedable = all(self._graph.is_feedable(feed.tensor) for feed in self.feeds)
        return feedable and all(map(self._graph.is_fetchable, self.elements))

    def _element(self, leaf: Any) -> Any:
        """The tensor or operation that a leaf stands for, always the same."""
        if next(kind for kind, *_ in self._native.expansions if isinstance(leaf, kind)) is not object:
            raise NotCacheableError(f"{leaf} stands for several tensors")
        try:
            element, again = self._graph.as_graph_element(leaf), self._graph.as_graph_element(leaf)
        except (KeyError, TypeError, ValueError) as error:
            raise NotCacheableError(f"{leaf} is not in the graph") from error
        if element is not again:
            raise NotCacheableError(f"{leaf} stands for another tensor each time")
        return element

    def _check(self, fed: Sequence[Any], fetched: Sequence[Any]) -> None:
        graph, handle_feeders = self._graph, private.HANDLE_FEEDERS.of(self._graph)
        fed_ids = {id(tensor) for tensor in fed}
        for tensor in fed:
            if isinstance(tensor, tf.Operation) or not graph.is_feedable(tensor):
                raise NotCacheableError(f"{tensor} cannot be fed")
            if tensor.dtype in (tf.resource, tf.variant) or tensor.op.name in handle_feeders:
                raise NotCacheableError(f"{tensor} is fed a handle")
        for element in fetched:
            if id(element) in fed_ids:
                raise NotCacheableError(f"{element} is fed and fetched")
            if not graph.is_fetchable(element):
                raise NotCacheableError(f"{element} cannot be fetched")
            if getattr(element, "op", element).type in ("GetSessionHandle", "GetSessionHandleV2"):
                raise NotCacheableError(f"{element} is fetched as a handle")


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

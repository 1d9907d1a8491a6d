"""`Plans`: the plans of one session, found by what is fetched and what is fed, bounded in number."""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable
from typing import Any

from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.fetches import leaves, structure_key
from supervisor_core.tf1.native import Native, installed
from supervisor_core.tf1.plan import Plan, UnplannableError
from supervisor_core.tf1.run_traits import RunAnalysis

_LOG = logging.getLogger("supervisor_core")

MAX_PLANS = 64
"""The plan that was not used for longest makes room for the next."""
MAX_SEEN = 256
"""So many structures are remembered that have been run once, and so many that cannot be planned."""

_NEEDED_OF_SESSIONS = (private.CLOSED, private.C_SESSION, private.DO_CALL)


class Plans:
    """Finds or makes the plan of a run. Thread-safe; a hit takes no lock.

    A structure gets a plan when it is run for the second time, so that what is run once costs nothing more. A program
    that fetches something else each time leaves nothing behind but a bounded number of keys.

    Args:
        native: the functions of TensorFlow.
        session: the plain session to run in; kept alive by the plans.
        analysis: what finds the traits of a run.

    Raises:
        AttributeError: if this TensorFlow's sessions or graphs lack what plans are made from.
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
        self._table: dict[Hashable, Plan] = {}
        self._seen: dict[Hashable, float] = {}
        # Their leaves are kept: an identity must not pass on to another object.
        self._refused: dict[Hashable, tuple[Any, ...]] = {}
        self._base, self._original_run = native.base, native.original_run
        self._expansions, self._expansion_count = native.expansions, len(native.expansions)

    def __len__(self) -> int:
        return len(self._table)

    def find(self, fetches: Any, feed_dict: Any) -> Plan | None:
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
            plan = self._look_closer(fetches, feed_dict)
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

    def remember(self, fetches: Any, feed_dict: Any, secs: float) -> None:
        """Record a run that ``Session.run`` did well, in so many seconds."""
        key = _run_key(fetches, feed_dict)
        if key is not None and key not in self._refused:
            with self._lock:
                if len(self._seen) >= MAX_SEEN:
                    self._seen.clear()
                self._seen.setdefault(key, secs)

    def _look_closer(self, fetches: Any, feed_dict: Any) -> Plan | None:
        key = _run_key(fetches, feed_dict)
        plan = self._table.get(key)
        if plan is not None or key is None or key in self._refused:
            return plan
        first_secs = self._seen.pop(key, None)
        if first_secs is None:
            return None
        feed_keys = list(feed_dict or ())
        try:
            plan = Plan(self._native, self._session, self._analysis, fetches, feed_keys, first_secs)
        except Exception as error:  # whatever is wrong here, Session.run is always right
            if not isinstance(error, UnplannableError):
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


class NoPlans(Plans):
    """For a TensorFlow that lacks what plans are made from: every run is for ``Session.run``."""

    def __init__(self) -> None:
        self._table = {}

    def find(self, fetches: Any, feed_dict: Any) -> None:
        """Return None."""

    def remember(self, fetches: Any, feed_dict: Any, secs: float) -> None:
        """Do nothing."""


def plans_for(session: Any, analysis: RunAnalysis) -> Plans:
    """Return the plans of a session."""
    native = installed()
    if native is None:
        return NoPlans()
    try:
        return Plans(native, session, analysis)
    except AttributeError:
        return NoPlans()


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

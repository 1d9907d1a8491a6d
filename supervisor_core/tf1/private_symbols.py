"""Every name of TensorFlow that is not public and is used here: what for, and what happens where it is missing.

TensorFlow may rename or remove these in any release. So this is the only module that knows them: others read them
through a `PrivateSymbol`, and do without one that is missing. Then training goes on, with what
`PrivateSymbol.without` says; a warning says it, too, once per process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from typing import Any

_LOG = logging.getLogger("supervisor_core")

_SESSION = "tensorflow:compat.v1.Session"
_GRAPH = "tensorflow:Graph"
_OPERATION = "tensorflow:Operation"
_SAVER = "tensorflow:compat.v1.train.Saver"
_WRAPPERS = "tensorflow.python.client.pywrap_tf_session"
_CLIENT = "tensorflow.python.client.session"

_UNCACHED = "every run of a session goes through TensorFlow's own Session.run: same results, more time per step"
_UNPREPARED = "repeated runs are cached, but not prepared down to their executors: some microseconds more per step"
_MISSING = object()


class PrivateSymbol:
    """One name that is not public.

    Args:
        owner: a module's full name; or that of the class whose instances (or which itself) has it, as
            ``"module:Class"``. TensorFlow is imported when something is missing, or loaded, and not before.
        without: what happens where it is missing.
        since: the first version of TensorFlow that has it; that it is missing before is nothing to warn of.
    """

    def __init__(self, owner: str, name: str, without: str, since: tuple[int, int] = (0, 0)) -> None:
        self.owner = owner
        self.name = name
        self.without = without
        self.since = since
        self._warned = False
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        module, _, qualified = self.owner.partition(":")
        return f"{qualified.rpartition('.')[2] or module}.{self.name}"

    def of(self, holder: Any) -> Any:
        """Return it.

        Args:
            holder: an instance of the owner, or the owner.

        Raises:
            AttributeError: if it is missing.
        """
        found = self.get(holder, _MISSING)
        if found is _MISSING:
            raise AttributeError(f"{type(holder).__name__} has no {self.name}")
        return found

    def get(self, holder: Any, default: Any = None) -> Any:
        """Return it, or the default if it is missing."""
        found = getattr(holder, self.name, _MISSING)
        if found is not _MISSING:
            return found
        owner = self.owner_class()
        if owner is None or isinstance(holder, owner) or holder is owner:
            self._warn()
        return default

    def reader(self) -> Callable[[Any], Any]:
        """Return a function that reads it off a holder, for where every nanosecond counts."""
        return attrgetter(self.name)

    def load(self) -> Any:
        """Return it from its module.

        Raises:
            AttributeError: if it, or the module, is missing.
        """
        try:
            module = import_module(self.owner)
        except ImportError as error:
            self._warn()
            raise AttributeError(f"this TensorFlow has no {self.owner}") from error
        return self.of(module)

    def owner_class(self) -> type | None:
        """Return the class that has it; None where a module has it. A class that is missing has no instances."""
        module, _, qualified = self.owner.partition(":")
        if not qualified:
            return None
        try:
            found: type = attrgetter(qualified)(import_module(module))
        except (AttributeError, ImportError):
            return _NoClass
        return found

    def _warn(self) -> None:
        with self._lock:
            warned, self._warned = self._warned, True
        if not warned and self.since <= tensorflow_version():
            import tensorflow as tf

            _LOG.warning("TensorFlow %s has no %r: %s.", tf.__version__, self, self.without)


class _NoClass:
    """Stands for a class of TensorFlow that is not there."""


def tensorflow_version() -> tuple[int, ...]:
    """Return the major and minor version of the TensorFlow that is installed."""
    import tensorflow as tf

    return tuple(int(part) for part in tf.__version__.split(".")[:2])


# What `Session.run` calls in the end, and how it takes fetches and feeds apart.
RUN = PrivateSymbol(_WRAPPERS, "TF_SessionRun_wrapper", _UNCACHED)
BASE_SESSION = PrivateSymbol(_CLIENT, "BaseSession", _UNCACHED)
EXPANSIONS = PrivateSymbol(_CLIENT, "_REGISTERED_EXPANSIONS", _UNCACHED)
AS_SCALAR = PrivateSymbol(_CLIENT, "_convert_to_numpy_obj", _UNCACHED)
AS_ARRAY = PrivateSymbol(
    "tensorflow.python.util.numpy_compat",
    "np_asarray",
    "values to feed are converted by numpy.asarray; what that refuses goes through TensorFlow's own Session.run",
    since=(2, 18),  # before, Session.run itself calls numpy.asarray
)
C_SESSION = PrivateSymbol(_SESSION, "_session", _UNCACHED)
DO_CALL = PrivateSymbol(_SESSION, "_do_call", _UNCACHED)
TF_OUTPUT = PrivateSymbol("tensorflow:Tensor", "_as_tf_output", _UNCACHED)
C_OPERATION = PrivateSymbol(_OPERATION, "_c_op", _UNCACHED)
HANDLE_FEEDERS = PrivateSymbol(_GRAPH, "_handle_feeders", _UNCACHED)
UNFEEDABLE = PrivateSymbol(_GRAPH, "_unfeedable_tensors", _UNCACHED)
UNFETCHABLE = PrivateSymbol(_GRAPH, "_unfetchable_ops", _UNCACHED)
CLOSED = PrivateSymbol(
    _SESSION,
    "_closed",
    f"{_UNCACHED}; a service that finds its session closed by the program fails, rather than end",
)

# Runs that are prepared down to their executors.
RUN_CALLABLE = PrivateSymbol(_WRAPPERS, "TF_SessionRunCallable", _UNPREPARED)
HANDLE = PrivateSymbol(f"{_CLIENT}:BaseSession._Callable", "_handle", _UNPREPARED)
_COPIES = f"{_UNPREPARED}; a snapshot copies every value while training waits, 0.3 s per GB"
CALLABLE_OPTIONS = PrivateSymbol("tensorflow.core.protobuf.config_pb2", "CallableOptions", _COPIES)
MAKE_FROM_OPTIONS = PrivateSymbol(_SESSION, "_make_callable_from_options", _COPIES)
EXTEND_GRAPH = PrivateSymbol(
    _SESSION, "_extend_graph", "in a cluster the first run connects, and may wait longer than was asked for"
)

# What a graph is made of.
FUNCTION = PrivateSymbol(
    _GRAPH,
    "_get_function",
    f"{_UNPREPARED}; a run that calls a function with the global step counts as a step, whether or not it moves it",
)
CONTROL_OUTPUTS = PrivateSymbol(
    _OPERATION, "_control_outputs", "finding the operations that are steps takes longer, once for each graph"
)
GRAPH_ELEMENT = PrivateSymbol(
    "tensorflow:Variable", "_as_graph_element", "a run that fetches a variable itself may not be counted as what it is"
)
UNFINALIZE = PrivateSymbol(
    _GRAPH,
    "_unsafe_unfinalize",
    "a graph that a scaffold has finalized stays so: in a cluster a monitored session's workers may start before its "
    "init_fn has run and a chief that was killed restores its model; after the session the graph cannot be added to",
)

# Savers and writers.
PAD_STEP = PrivateSymbol(_SAVER, "_pad_step_number", "pad_step_number=True of a Saver has no effect")
IS_EMPTY = PrivateSymbol(
    _SAVER, "_is_empty", "a Saver that is not built yet when a session starts is taken for one without variables"
)
LAST_CHECKPOINTS = PrivateSymbol(
    _SAVER,
    "_last_checkpoints",
    "a saver does not say when its checkpoints were saved: the times of their files are used",
)
WRITER_CACHE = PrivateSymbol(
    "tensorflow:compat.v1.summary.FileWriterCache",
    "_cache",
    "hooks of TensorFlow's own that write to the logdir of a monitored session do so in an events file of their own",
)
LOG_FIRST_N = PrivateSymbol(
    "tensorflow.python.platform.tf_logging",
    "log_first_n",
    "StepCounterHook warns of a global step that does not rise through tf.compat.v1.logging",
)

# Distribution strategies.
WORKER_CONTEXT = PrivateSymbol(
    "tensorflow.python.distribute.distribute_coordinator_context",
    "get_current_worker_context",
    "a MonitoredTrainingSession in a worker of a distribution strategy goes by its arguments alone: each worker saves",
)
STRATEGY = PrivateSymbol(
    "tensorflow.python.distribute.distribute_coordinator:_WorkerContext",
    "_strategy",
    "a worker of a collective strategy that is not to save does not, and those that do may wait for it forever",
)

SYMBOLS = tuple(value for value in list(globals().values()) if isinstance(value, PrivateSymbol))
"""All of them."""

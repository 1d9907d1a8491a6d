"""Step detection: which runs move the global step, which change the model, and which a snapshot need not wait for.

A run is a step of the training when something it executes writes the global step variable. That can be read off the
graph, once for each version of it: from the variable along the operations that pass its reference on, to those that
write through it; and from these along data and control edges to everything that cannot run without them. Setting the
variable up is no step: its initializer, and assignments of what was restored from a checkpoint.

A run that only reads variables leaves a saved model as it is on the disk.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.graph import VARIABLES, needs, reached
from supervisor_core.tf1.run_values import elements

_LOG = logging.getLogger("supervisor_core")

_QUEUE_RUNS = ("QueueClose", "QueueEnqueue", "QueueEnqueueMany")
_STAGES = {"MapStage", "OrderedMapStage", "Stage"}
_QUEUE_OPS = frozenset({*_QUEUE_RUNS, *(f"{name}V2" for name in _QUEUE_RUNS), *_STAGES})
"""What a queue runner runs."""
_READ_VALUES = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "_ReadVariablesOp"}
_READ_FACTS = {"IsVariableInitialized", "Shape", "VarIsInitializedOp", "VariableShape"}
_READS = frozenset({"DestroyResourceOp", *_READ_VALUES, *_READ_FACTS})
_HANDED_ON = ("Enter", "Exit", "Identity", "Merge", "NextIteration", "Switch")
_PASS_ON = frozenset({"RefSelect", *_HANDED_ON, *(f"Ref{name}" for name in _HANDED_ON)})
"""What hands a variable's reference on."""
_WRITES_ELSEWHERE = {"Assert", "MergeV2Checkpoints", "Print", "PrintV2", "SaveV2", "ShardedFilename"}
_NEUTRAL = {"AutoReloadVariable", "Const", "DisableCopyOnRead", "NoOp", "PlaceholderWithDefault"}
_HARMLESS = _READS | _PASS_ON | VARIABLES | _WRITES_ELSEWHERE | _NEUTRAL
"""What takes or is a variable, or has another effect, and leaves every variable as it is."""
_COMPUTES = {"Add", "AddV2", "Cast", "Equal", "Fill", "Identity", "IdentityN", "Pack", "Reshape"}
_HARMLESS_IN_FUNCTIONS = _HARMLESS | _COMPUTES
_ASSIGNS = frozenset({"Assign", "AssignVariableOp"})
_RESTORES = frozenset({"Restore", "RestoreSlice", "RestoreV2"})
# Operation -> its attributes that name functions, and which of its inputs is their first argument.
_CALLS = {
    "Case": (("branches",), 1),
    "If": (("then_branch", "else_branch"), 1),
    "PartitionedCall": (("f",), 0),
    "StatefulPartitionedCall": (("f",), 0),
    "StatelessCase": (("branches",), 1),
    "StatelessIf": (("then_branch", "else_branch"), 1),
    "StatelessWhile": (("cond", "body"), 0),
    "While": (("cond", "body"), 0),
}


class RunTraits(NamedTuple):
    """What is known of a run before it runs."""

    supervised: bool
    """Passes the step lock and is reported to the observer."""
    is_step: bool
    """Moves the global step; where there is none to look at, every supervised run counts."""
    changes: bool = True
    """May change what a checkpoint holds; False where it surely only reads."""


class RunAnalysis:
    """Finds the traits of runs in one graph. Thread-safe.

    A run that only fills or closes queues is a queue runner's, wherever it comes from: it may block for as long as the
    queue is full, so nothing may wait for it, and it is no work of the training's own.

    Args:
        graph: the graph; it may still grow.
        global_step: its global step, or None.
    """

    def __init__(self, graph: Any, global_step: Any = None) -> None:
        self._graph = graph
        self._training_ops = None if global_step is None else TrainingOps(graph, global_step)
        self._changing_ops = ChangingOps(graph)
        self._warned = False

    def of(self, fetches: Any, feed_keys: Any = ()) -> RunTraits:
        """Return the traits of a run of these fetches, in any form that ``Session.run`` takes."""
        return self.of_elements(elements(self._graph, fetches), elements(self._graph, list(feed_keys or ())))

    def of_elements(self, fetched: Sequence[Any], fed: Collection[Any]) -> RunTraits:
        """Return the traits of a run of these tensors and operations."""
        if fetched and all(self._fills_queue(element) for element in fetched):
            return RunTraits(supervised=False, is_step=False)
        if self._training_ops is None:
            return RunTraits(supervised=True, is_step=True, changes=self._changes(fetched))
        tensors = [element for element in fed if isinstance(element, tf.Tensor)]
        try:
            is_step = self._training_ops.updates(fetched, tensors)
        except Exception:  # a run that cannot be classified still runs
            is_step = False
            if not self._warned:
                self._warned = True
                _LOG.warning("The graph does not show which runs are steps; some are not counted.", exc_info=True)
        return RunTraits(supervised=True, is_step=is_step, changes=is_step or self._changes(fetched))

    def _changes(self, fetched: Sequence[Any]) -> bool:
        try:
            return not fetched or self._changing_ops.reached_by(fetched)
        except Exception:  # whatever is not known to be harmless may not be
            _LOG.debug("The graph does not show whether a run changes anything.", exc_info=True)
            return True

    def _fills_queue(self, element: Any) -> bool:
        if not isinstance(element, tf.Operation):
            return False
        if element.type in _QUEUE_OPS:
            return True
        runners = self._graph.get_collection(tf.compat.v1.GraphKeys.QUEUE_RUNNERS)
        return any(element is each for runner in runners for each in getattr(runner, "enqueue_ops", ()))


class TrainingOps:
    """Finds the runs that move the global step. Thread-safe.

    Args:
        graph: the graph; it may still grow.
        global_step: its global step: a ref or resource variable, a tensor that reads one, or a name.

    Example:
        >>> TrainingOps(graph, global_step).updates([train_op])
        True
    """

    def __init__(self, graph: Any, global_step: Any) -> None:
        self._graph = graph
        self._variable = _variable_op(graph, global_step)
        self._lock = threading.Lock()
        self._known: tuple[int, frozenset[str], frozenset[str]] | None = None

    def updates(self, fetches: Iterable[Any], fed: Collection[Any] = ()) -> bool:
        """Return whether a run of these fetches writes the global step.

        Args:
            fetches: operations and tensors of the graph.
            fed: tensors that are fed: what would compute them is not run for their sake.
        """
        writers, dependents = self._analysed()
        fetches = list(fetches)
        if not any(_op(fetch).name in dependents for fetch in fetches):
            return False
        if not any(tensor.op.name in dependents for tensor in fed):
            return True
        fed_ids = {id(tensor) for tensor in fed}
        run = [_op(fetch) for fetch in fetches if id(fetch) not in fed_ids]
        before = reached(run, lambda op: needs(op, fed_ids) if op.name in dependents else ())
        return any(op.name in writers for op in before)

    def _analysed(self) -> tuple[frozenset[str], frozenset[str]]:
        """The names of the operations that write the step, and of all that depend on one of them."""
        version = self._graph.version
        known = self._known
        if known is None or known[0] != version:
            with self._lock:
                writers = list(self._writers())
                known = (version, frozenset(op.name for op in writers), frozenset(_dependents(self._graph, writers)))
                self._known = known
        return known[1], known[2]

    def _writers(self) -> Iterator[Any]:
        initializers = {
            variable.initializer.name
            for variable in self._graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
            if variable.op.name == self._variable.name and variable.initializer is not None
        }
        pending, seen = list(self._variable.outputs), set()
        while pending:
            tensor = pending.pop()
            if tensor.name in seen:
                continue
            seen.add(tensor.name)
            for op in tensor.consumers():
                if op.type in _PASS_ON:
                    pending.extend(output for output in op.outputs if _is_reference(output))
                elif op.name not in initializers and self._writes(op, tensor):
                    yield op

    def _writes(self, op: Any, tensor: Any) -> bool:
        if op.type in _READS or (op.type in _ASSIGNS and _is_restored(op.inputs[1])):
            return False
        positions = [index for index, item in enumerate(op.inputs) if item is tensor]
        if tensor.dtype != tf.resource:
            # Everything may read through a ref; only an argument that is declared as one can be written.
            return any(_takes_ref(op, index) for index in positions)
        calls = _calls(self._graph, op.node_def)
        if calls is None:
            return True
        names, first = calls
        return any(_function_writes(self._graph, name, index - first, set()) for name in names for index in positions)


class ChangingOps:
    """Finds the runs that may change what a checkpoint holds. Thread-safe.

    Whatever is not known to leave everything as it is counts as a change: queues, iterators, random numbers, tables.

    Args:
        graph: the graph; it may still grow.
    """

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._stateful: dict[str, bool] = {}  # by type of operation
        # By name of operation: what it depends on never changes any more.
        self._reading: set[str] = set()
        self._changing: set[str] = set()

    def reached_by(self, fetches: Iterable[Any]) -> bool:
        """Return whether a run of these fetches may change anything.

        Args:
            fetches: operations and tensors of the graph.
        """
        return any([self._is_reached_by(_op(fetch)) for fetch in fetches])

    def _is_reached_by(self, fetched: Any) -> bool:
        if fetched.name in self._changing:
            return True
        seen: set[str] = set()
        for op in reached([fetched], lambda op: () if op.name in self._reading else needs(op)):
            if op.name not in self._reading and self._changes(op):
                self._changing.add(fetched.name)
                return True
            seen.add(op.name)
        self._reading |= seen
        return False

    def _changes(self, op: Any) -> bool:
        if op.type in _HARMLESS:
            return False
        stateful = self._stateful.get(op.type)
        if stateful is None:
            definition = op.op_def
            stateful = definition.is_stateful or any(argument.is_ref for argument in definition.input_arg)
            self._stateful[op.type] = stateful
        if not stateful and not any(tensor.dtype in (tf.resource, tf.variant) for tensor in op.inputs):
            return False
        calls = _calls(self._graph, op.node_def)
        return calls is None or any([self._function_changes(name, set()) for name in calls[0]])

    def _function_changes(self, name: str, seen: set[str]) -> bool:
        if name in seen:
            return False
        seen.add(name)
        definition = _definition(self._graph, name)
        if definition is None:
            return True
        for node in definition.node_def:
            if node.op in _HARMLESS_IN_FUNCTIONS:
                continue
            calls = _calls(self._graph, node)
            if calls is None or any([self._function_changes(callee, seen) for callee in calls[0]]):
                return True
        return False


def _op(element: Any) -> Any:
    return element if isinstance(element, tf.Operation) else element.op


def _variable_op(graph: Any, global_step: Any) -> Any:
    """The operation that holds the variable: back from whatever reads it."""
    op = _op(graph.as_graph_element(global_step))
    while (op.type in _READS or op.type in _PASS_ON) and op.inputs:
        op = op.inputs[0].op
    return op


def _is_reference(tensor: Any) -> bool:
    return bool(tensor.dtype == tf.resource or tensor.dtype != tensor.dtype.base_dtype)


def _takes_ref(op: Any, index: int) -> bool:
    """Whether the input at ``index`` is declared as a reference."""
    for argument in op.op_def.input_arg:
        if argument.number_attr:
            index -= op.get_attr(argument.number_attr)
        elif argument.type_list_attr:
            index -= len(op.get_attr(argument.type_list_attr))
        else:
            index -= 1
        if index < 0:
            return bool(argument.is_ref)
    return False


def _is_restored(tensor: Any) -> bool:
    """Whether a value comes straight from a checkpoint, but for changes of form."""
    op = tensor.op
    while op.type in ("Cast", "Identity", "Reshape"):
        op = op.inputs[0].op
    return op.type in _RESTORES


def _dependents(graph: Any, writers: Iterable[Any]) -> set[str]:
    later = _control_outputs(graph)

    def after(op: Any) -> list[Any]:
        return [*(consumer for output in op.outputs for consumer in output.consumers()), *later(op)]

    return {op.name for op in reached(writers, after)}


def _control_outputs(graph: Any) -> Callable[[Any], Sequence[Any]]:
    """What returns the operations that wait for one to have run."""
    some = next(iter(graph.get_operations()), None)
    if some is None or private.CONTROL_OUTPUTS.get(some) is not None:
        return private.CONTROL_OUTPUTS.reader()
    waiting: dict[str, list[Any]] = {}
    for op in graph.get_operations():
        for earlier in op.control_inputs:
            waiting.setdefault(earlier.name, []).append(op)
    return lambda op: waiting.get(op.name, ())


def _calls(graph: Any, node: Any) -> tuple[list[str], int] | None:
    """The functions a node calls and the input that is their first argument; None for one that calls none."""
    if node.op in _CALLS:
        attributes, first = _CALLS[node.op]
        values = [node.attr[name] for name in attributes]
        names = [
            func.name for value in values for func in ([value.func] if value.HasField("func") else value.list.func)
        ]
        return names, first
    return ([node.op], 0) if _definition(graph, node.op) is not None else None


def _definition(graph: Any, name: str) -> Any:
    find = private.FUNCTION.get(graph)
    function = None if find is None else find(name)
    return None if function is None else getattr(function, "cached_definition", None) or function.definition


def _function_writes(graph: Any, name: str, argument: int, seen: set[tuple[str, int]]) -> bool:
    """Whether a function writes through the reference it takes as that argument."""
    if argument < 0 or (name, argument) in seen:
        return False
    seen.add((name, argument))
    definition = _definition(graph, name)
    if definition is None:
        return True
    references = {definition.signature.input_arg[argument].name}
    grown = True
    while grown:  # the nodes of a function are in no particular order
        grown = False
        for node in definition.node_def:
            positions = [index for index, item in enumerate(node.input) if item.split(":")[0] in references]
            if not positions or node.op in _READS:
                continue
            if node.op in _PASS_ON:
                grown = grown or node.name not in references
                references.add(node.name)
                continue
            calls = _calls(graph, node)
            if calls is None:
                return True
            names, first = calls
            if any(_function_writes(graph, callee, index - first, seen) for callee in names for index in positions):
                return True
    return False

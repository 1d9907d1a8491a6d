"""The values of a run: the structure it fetches, and what it is fed.

A program usually writes its fetches new for each run (``sess.run([train_op, loss])``), so a structure is recognised by
its form and the identity of its leaves. Identities are only meaningful while their objects live: whoever keeps a key
keeps the leaves, too. A fed value is converted as ``Session.run`` converts it, or declined.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy import ndarray

from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.native_runs import Native

# Whole numbers that every float type of numpy holds exactly.
_EXACT_IN_FLOATS = 2048


def structure_key(fetches: Any) -> Hashable | None:
    """Return what this structure has in common with those that fetch the same in the same form.

    A dictionary's keys are no part of it; `rebuild` takes them from the structure at hand. None for a form that is left
    to TensorFlow: lists and mappings of the user's own classes, attrs classes, None.
    """
    kind = type(fetches)
    if kind is str:
        return fetches  # type: ignore[no-any-return]
    if kind is list or kind is tuple or _is_namedtuple(fetches):
        children = fetches
    elif kind is dict or kind is OrderedDict:
        children = fetches.values()
    elif fetches is None or isinstance(fetches, (list, tuple, Mapping)) or _is_attrs(fetches):
        return None
    else:
        return id(fetches)
    keys = tuple(map(structure_key, children))
    return None if None in keys else (kind, *keys)


def leaves(fetches: Any) -> Iterator[Any]:
    """Yield what is at the ends of any structure that TensorFlow can fetch, in its order."""
    if isinstance(fetches, Mapping):
        children = list(fetches.values())
    elif isinstance(fetches, (list, tuple)):
        children = list(fetches)
    elif _is_attrs(fetches):
        children = [getattr(fetches, attribute.name) for attribute in type(fetches).__attrs_attrs__]
    else:
        yield fetches
        return
    for child in children:
        yield from leaves(child)


def rebuild(fetches: Any, values: Iterator[Any]) -> Any:
    """Return a structure of the same form with the values in place of the leaves; for forms that have a key."""
    kind = type(fetches)
    if kind is list:
        return [rebuild(child, values) for child in fetches]
    if kind is tuple:
        return tuple([rebuild(child, values) for child in fetches])
    if kind is dict or kind is OrderedDict:
        return kind([(name, rebuild(child, values)) for name, child in fetches.items()])
    if _is_namedtuple(fetches):
        return kind(*[rebuild(child, values) for child in fetches])
    return next(values)


def elements(graph: Any, fetches: Any) -> list[Any]:
    """Return the operations and tensors that a structure stands for; what stands for none is left out."""
    found = []
    for leaf in leaves(fetches):
        simple = isinstance(leaf, (str, bytes, tf.Tensor, tf.Operation)) or private.GRAPH_ELEMENT.get(leaf) is not None
        try:
            parts = [leaf] if simple else tf.nest.flatten(leaf, expand_composites=True)
            found.extend([graph.as_graph_element(part) for part in parts])
        except Exception:  # the run itself says what is wrong with it
            continue
    return found


def _is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(type(value), "_fields")


def _is_attrs(value: Any) -> bool:
    return getattr(type(value), "__attrs_attrs__", None) is not None


class DeclinedError(Exception):
    """This value is for ``Session.run`` to judge."""


class Feed:
    """Turns a fed value into the array that ``Session.run`` would make of it, or declines.

    It declines whatever ``Session.run`` would refuse, so that the refusal is TensorFlow's own.

    Args:
        native: how TensorFlow converts.
    """

    __slots__ = ("_as_array", "_as_scalar", "_dims", "_dtype", "_fitting", "_numpy_type", "_range", "_static", "tensor")

    def __init__(self, tensor: Any, native: Native) -> None:
        self.tensor = tensor
        self._as_array = native.as_array
        self._as_scalar = native.as_scalar
        self._numpy_type = tensor.dtype.as_numpy_dtype
        self._dtype = np.dtype(self._numpy_type)
        self._range = _exact_range(self._dtype)
        self._static = tensor.shape
        self._dims = None if self._static.rank is None else tuple(self._static.as_list())
        self._fitting: tuple[int, ...] | None = None

    def array(self, value: Any) -> Any:
        """Return the array to feed for ``value``; raises `DeclinedError`."""
        if type(value) is not ndarray or (value.dtype is not self._dtype and value.dtype != self._dtype):
            value = self._converted(value)
        # A static shape stays the same object until somebody refines it.
        if self.tensor.shape is not self._static:
            raise DeclinedError
        shape = value.shape
        if shape != self._fitting:
            if not self._fits(shape):
                raise DeclinedError
            self._fitting = shape
        return value

    def _converted(self, value: Any) -> Any:
        if not isinstance(value, (int, float, list, tuple, ndarray, np.generic, str, bytes)):
            raise DeclinedError
        try:
            if isinstance(value, int):
                low, high = self._range
                if not low <= value <= high and self._as_scalar(self._numpy_type, value) != value:
                    raise DeclinedError
            return self._as_array(value, self._numpy_type)
        except Exception as error:  # whatever it is, Session.run meets it again and raises it
            raise DeclinedError from error

    def _fits(self, shape: tuple[int, ...]) -> bool:
        dims = self._dims
        return dims is None or (
            len(dims) == len(shape) and all(dim is None or dim == size for dim, size in zip(dims, shape, strict=True))
        )


def _exact_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The whole numbers that surely fit the type; none where that is not plain."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return int(limits.min), int(limits.max)
    if dtype.kind in "fc":
        return -_EXACT_IN_FLOATS, _EXACT_IN_FLOATS
    return (0, 1) if dtype.kind == "b" else (1, 0)

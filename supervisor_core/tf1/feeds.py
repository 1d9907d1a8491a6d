"""`Feed`: one tensor that a plan feeds, and the values that it can take without ``Session.run``'s help."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from supervisor_core.tf1.native import Native

# Whole numbers that every float type of numpy holds exactly.
_EXACT_IN_FLOATS = 2048


class DeclinedError(Exception):
    """This value is for ``Session.run`` to judge."""


class Feed:
    """Turns a fed value into the array that ``Session.run`` would make of it, or declines.

    It declines whatever ``Session.run`` would refuse, so that the refusal is TensorFlow's own.

    Args:
        tensor: the tensor fed.
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

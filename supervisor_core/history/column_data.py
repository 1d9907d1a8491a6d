"""A column of many rows: values, an array, or places in a list of few values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A column of few values: for each row the place of its own; -1 where it has none."""

    codes: NDArray[np.int32]
    values: Sequence[str]

    def __len__(self) -> int:
        return len(self.codes)


ColumnData: TypeAlias = "Coded | NDArray[Any] | Sequence[Any]"
"""One value for each row, as a `Row` has it."""


def listed(data: ColumnData) -> Sequence[Any]:
    """Return a column as values of Python.

    Example:
        >>> listed(Coded(np.array([1, 0, -1], np.int32), ["loss", "acc"]))
        ['acc', 'loss', None]
    """
    if isinstance(data, Coded):
        values = [*data.values, None]  # -1 is the last
        return [values[code] for code in data.codes.tolist()]
    if isinstance(data, np.ndarray):
        found: list[Any] = data.tolist()
        return found
    return data


def arrow_array(arrow: Any, data: ColumnData, type: Any) -> Any:
    """Return a column as a ``pyarrow.Array``.

    Args:
        arrow: the module.
        data: the column.
        type: of the array; a dictionary for one that is `Coded`.
    """
    if isinstance(data, Coded):
        codes = arrow.array(data.codes, mask=data.codes < 0)
        return arrow.DictionaryArray.from_arrays(codes, arrow.array(list(data.values), arrow.string()))
    return arrow.array(data, type)

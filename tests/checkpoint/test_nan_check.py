"""NaN in any format of numbers."""

from __future__ import annotations

import numpy as np
import pytest

from supervisor_core.checkpoint.nan_check import has_nan

FORMATS = ["float16", "float32", "float64", "bfloat16", "float8_e5m2", "float8_e4m3fn", "complex64", "complex128"]


def numbers(name: str) -> np.ndarray:
    """Numbers of all sizes in a format, in memory as they would be in a model's."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = np.dtype(getattr(ml_dtypes, name, None) or name)
    return np.linspace(-5, 5, 1_500_001).astype(kind)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("negative", [False, True])
def test_one_nan_among_many_numbers_is_found(name: str, negative: bool) -> None:
    """Wherever it is, with either sign; infinity, which masks have, is none."""
    array = numbers(name)
    assert not has_nan(name, array.view(np.uint8))
    if name != "float8_e4m3fn":  # which has no infinity
        array[7], array[8] = array.dtype.type(np.inf), array.dtype.type(-np.inf)
        assert not has_nan(name, array.view(np.uint8))
    array[-2] = array.dtype.type(-np.nan if negative else np.nan)
    assert has_nan(name, array.view(np.uint8))


@pytest.mark.parametrize("name", ["int64", "uint16", "bool", "a format of later"])
def test_what_has_no_nan_has_none(name: str) -> None:
    """Whatever its bits would be as another number."""
    assert not has_nan(name, np.full(64, 0xFF, np.uint8))
    assert not has_nan("float32", np.zeros(0, np.uint8))

"""What puts a checkpoint in doubt: NaN in any format of numbers, and the words for it."""

from __future__ import annotations

import numpy as np
import pytest

from supervisor_core.checkpoint.doubt import Doubt, doubt_of, has_nan

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


def test_the_words() -> None:
    """One sentence for each reason; long texts and many losses are cut."""
    assert doubt_of(None, (), None) is None
    found = doubt_of(
        "ValueError: the\nloss  exploded" + "!" * 1000, ("a/loss", "b/loss", "c/loss", "d/loss"), "model/w"
    )
    assert isinstance(found, Doubt) and found.losses == ("a/loss", "b/loss", "c/loss", "d/loss")
    error, losses, nan = found.text.rpartition("! ")[0], *found.text.rpartition("! ")[2].split(". ")
    assert error.startswith("It was saved after an error: ValueError: the loss exploded!!!") and len(error) < 350
    assert losses == 'The newest value of "a/loss", "b/loss", "c/loss" (and of 1 more losses) is NaN or infinite'
    assert nan == 'There is NaN in "model/w".'

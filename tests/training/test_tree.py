"""State trees come back as they were; what cannot be saved is named by its place."""

from __future__ import annotations

import math
from collections import OrderedDict
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor_core.base.errors import CheckpointError, DamagedCheckpointError
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.training.state import digest
from supervisor_core.training.tree import STRUCTURE, Copied, NumpyArrays, copy_tree, read_tree, write_tree

KINDS = (NumpyArrays(),)
KEYS = st.one_of(st.text(max_size=5), st.integers(-5, 5), st.none(), st.tuples(st.integers(0, 3), st.text(max_size=2)))
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8), st.binary(max_size=8)
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner, inner), st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=12,
)


def there_and_back(directory: Path, tree: Any) -> Any:
    """Copy a tree, write it, read it."""
    directory.mkdir(exist_ok=True)
    for path in directory.iterdir():
        path.unlink()
    write_tree(str(directory), copy_tree(tree, KINDS), KINDS)
    return read_tree(SealedFiles.of(str(directory)), KINDS)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES)
def test_a_tree_comes_back(tmp_path: Path, tree: Any) -> None:
    """With the types of its containers, keys and leaves."""
    again = there_and_back(tmp_path / "tree", tree)
    assert again == tree and repr(again) == repr(tree)


def test_arrays_come_back_bit_by_bit(tmp_path: Path) -> None:
    """Of every width, of no and of many dimensions, in any memory order; later changes do not reach the copy."""
    arrays = [np.arange(6, dtype=kind).reshape(2, 3) for kind in ("int8", "uint16", "int64", "float16", "float64")]
    arrays += [np.array(2.5), np.zeros((0, 4)), np.asfortranarray(np.arange(4.0).reshape(2, 2)), np.array([True])]
    copied = copy_tree({"all": arrays}, KINDS)
    before = [array.copy() for array in arrays]
    arrays[0][0, 0] = 99
    write_tree(str(tmp_path), copied, KINDS)
    again = read_tree(SealedFiles.of(str(tmp_path)), KINDS)["all"]
    for old, new in zip(before, again, strict=True):
        assert new.dtype == old.dtype and new.shape == old.shape and new.tobytes() == old.tobytes()


def test_floats_that_json_has_not(tmp_path: Path) -> None:
    """NaN and the infinities; numpy's own float is a plain one afterwards."""
    nan, inf, scalar = there_and_back(tmp_path / "t", [float("nan"), -math.inf, np.float64(0.1)])
    assert math.isnan(nan) and inf == -math.inf and type(scalar) is float and scalar == 0.1


def test_what_cannot_be_saved_is_named() -> None:
    """By the path to it and its type."""
    for tree, text in [
        ({"opt": {"hook": lambda: None}}, r"state\['opt'\]\['hook'\] is a builtins.function"),
        ({"names": np.array(["a"])}, r"state\['names'\] is an array of <U1"),
        ({1.5: 0}, r"state has the key 1.5 \(float\)"),
    ]:
        with pytest.raises(CheckpointError, match=text):
            copy_tree(tree, KINDS)


def test_subclasses_become_what_they_are(tmp_path: Path) -> None:
    """An enum is a number, an ordered dict a dict."""
    color = IntEnum("color", "red green")
    assert there_and_back(tmp_path / "t", OrderedDict(a=color.green)) == {"a": 2}  # type: ignore[attr-defined]


def test_bytes_that_are_no_tree(tmp_path: Path) -> None:
    """A damaged structure is a damaged checkpoint."""
    for number, text in enumerate(
        ["", "{", '{"other": 1}', '{"array": ["jpeg", "0"]}', '{"tuple": 5}', '{"bytes": "?"}']
    ):
        (place := tmp_path / str(number)).mkdir()
        (place / STRUCTURE).write_text(text)
        with pytest.raises(DamagedCheckpointError):
            read_tree(SealedFiles.of(str(place)), KINDS)


def test_equal_trees_have_equal_digests() -> None:
    """And different ones others, arrays by their bytes."""
    one, same = (copy_tree({"a": [1, 2.0, np.arange(3)]}, KINDS) for _ in range(2))
    assert digest(one) == digest(same)
    others = [{"a": [1, 2.0, np.arange(3) + 1]}, {"a": [1, 2, np.arange(3)]}, {"a": [1, 2.0, np.arange(3, dtype="i2")]}]
    assert len({digest(copy_tree(tree, KINDS)) for tree in others} | {digest(one)}) == 4


def test_what_is_a_copy_is_not_copied_again() -> None:
    """A framework that has copied an array to host memory itself hands the copy over."""
    array = np.arange(4.0)
    (copied,) = copy_tree([Copied("numpy", array)], KINDS)
    assert copied == ("numpy", array) and copied.value is array

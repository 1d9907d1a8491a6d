"""Pytrees as state trees: dicts of leaves by their paths, and back into a pytree of the same structure.

A leaf that is more than its numbers is a tuple:

    ("key", implementation, numbers)    a typed random key
    ("weak", array)                     an array whose type gives way to another's
    ("empty", type, shape)              an array without numbers, which Orbax refuses
    ("scalar", array)                   a scalar of numpy

Of an array that each process of a training has whole, this process's copy stands for it; for one that is split over
them there is a `Sharded`.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from supervisor_core.jax.arrays import Numbers, leaves, nested
from supervisor_core.jax.shards import Sharded, Stored, is_key


def is_in_place(value: Any) -> bool:
    """Return whether a value is an object of Flax NNX, as a module or an optimizer: its state is set in place."""
    nnx = sys.modules.get("flax.nnx")
    if nnx is None:
        return False
    return isinstance(value, getattr(nnx, "Pytree", None) or nnx.Object)


def pytree_of(value: Any) -> Any:
    """Return a value's state as a pytree: that of an NNX object, otherwise itself."""
    if is_in_place(value):
        from flax import nnx

        return nnx.state(value)
    return value


def to_tree(pytree: Any) -> Any:
    """Return a pytree's leaves, by path, as a state tree; waits for nothing."""
    found = jax.tree_util.tree_flatten_with_path(pytree)[0]
    by_path = {tuple(map(_part, path)): _encoded(leaf) for path, leaf in found}
    return by_path[()] if () in by_path else nested(by_path)


def from_tree(saved: Any, like: Any) -> Any:
    """Return a pytree of the structure of ``like``, with saved leaves, on the devices of its leaves.

    Raises:
        ValueError: if its leaves are not those of ``like``, by path, shape and type.
    """
    with_paths, structure = jax.tree_util.tree_flatten_with_path(like)
    present = {tuple(map(_part, path)): leaf for path, leaf in with_paths}
    found = dict(leaves(saved))
    if present.keys() != found.keys():
        lacks, has = (
            ", ".join("/".join(path) for path in sorted(paths)[:3]) or "none"
            for paths in (present.keys() - found.keys(), found.keys() - present.keys())
        )
        raise ValueError(
            f"its arrays are others than this program's: only in the program: {lacks}; only in the checkpoint: {has}"
        )
    decoded = []
    for path, leaf in present.items():
        try:
            decoded.append(_decoded(found[path], leaf))
        except ValueError as error:
            raise ValueError(f"{'/'.join(path) or 'an array'} {error}") from error
    return jax.tree_util.tree_unflatten(structure, decoded)


def on_devices(saved: Any) -> Any:
    """Return a state tree with its arrays of JAX on the default device."""

    def placed(leaf: Any) -> Any:
        return jnp.asarray(np.asarray(leaf)) if isinstance(leaf, Numbers) else leaf

    return jax.tree_util.tree_map(placed, saved)


def arrays_of(pytree: Any) -> list[jax.Array]:
    """Return the arrays of JAX in a pytree."""
    return [leaf for leaf in jax.tree_util.tree_leaves(pytree) if isinstance(leaf, jax.Array)]


def local(pytree: Any) -> Any:
    """Return a pytree without the arrays that this process shares with others."""
    return jax.tree_util.tree_map(
        lambda leaf: leaf if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable else None, pytree
    )


def _part(key: Any) -> str:
    for name in ("key", "idx", "name"):
        if hasattr(key, name):
            return str(getattr(key, name))
    return str(key)


def _encoded(leaf: Any) -> Any:
    if isinstance(leaf, np.generic):
        return "scalar", np.asarray(leaf)
    if not isinstance(leaf, jax.Array):
        return leaf
    if not leaf.size and not is_key(leaf):
        return "empty", str(leaf.dtype), list(leaf.shape)
    is_whole = leaf.is_fully_addressable or leaf.is_fully_replicated
    here = leaf if leaf.is_fully_addressable or not is_whole else leaf.addressable_data(0)
    if is_key(leaf):
        return "key", str(jax.random.key_impl(leaf)), jax.random.key_data(here) if is_whole else Sharded(leaf)
    if not is_whole:
        return Sharded(leaf)
    return ("weak", here) if leaf.weak_type and not leaf.shape else here


def _decoded(saved: Any, like: Any) -> Any:
    """Return a leaf with the saved numbers, on the devices of ``like``."""
    kind, content = (saved[0], saved[1:]) if isinstance(saved, tuple) else ("", (saved,))
    if kind == "scalar":
        return content[0][()]
    if kind == "key":
        return _placed_keys(content[1], content[0], like)
    if kind == "empty":
        return _placed(np.zeros(content[1], content[0]), like)
    if kind == "weak":
        weak = jnp.asarray(content[0].item())
        if weak.dtype != content[0].dtype:
            return _placed(content[0], like)
        is_shared = isinstance(like, jax.Array) and not like.is_fully_addressable
        return jax.jit(lambda: content[0].item(), out_shardings=like.sharding)() if is_shared else weak
    return _placed(saved, like) if isinstance(saved, (Numbers, Stored)) else saved


def _placed_keys(numbers: Any, implementation: str, like: Any) -> Any:
    """Return random keys of saved numbers, on the devices of ``like``."""

    def keys(part: Any) -> Any:
        return wrap(jnp.asarray(np.asarray(part)))

    wrap = partial(jax.random.wrap_key_data, impl=implementation)
    if not isinstance(like, jax.Array) or like.is_fully_addressable:
        return _placed(keys(numbers.whole() if isinstance(numbers, Stored) else numbers), like)
    found = jax.eval_shape(wrap, jax.ShapeDtypeStruct(numbers.shape, numbers.dtype))
    _check_same(found, like)
    return jax.make_array_from_callback(like.shape, like.sharding, lambda index: keys(numbers[index]))


def _check_same(array: Any, like: Any) -> None:
    for name in ("shape", "dtype"):
        saved, now = getattr(array, name), getattr(like, name, None)
        if now is not None and isinstance(like, jax.Array) and saved != now:
            raise ValueError(f"has the {name} {saved} in the checkpoint, and {now} in this program")


def _placed(array: Any, like: Any) -> Any:
    _check_same(array, like)
    if isinstance(like, jax.Array) and not like.is_fully_addressable:  # device_put would ask the other processes
        return jax.make_array_from_callback(like.shape, like.sharding, lambda index: np.asarray(array[index]))
    if isinstance(array, Stored):
        array = array.whole()
    array = np.asarray(array) if isinstance(array, Numbers) else array
    if isinstance(like, jax.Array) and like.committed:
        return jax.device_put(array, like.sharding)
    return jnp.asarray(array)

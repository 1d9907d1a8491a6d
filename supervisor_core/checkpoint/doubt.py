"""What puts a checkpoint in doubt, and the sentence that says so.

It is in doubt if it was saved after an error, if the newest value of a loss was NaN or infinite, or if one of its
arrays has NaN. All others are good, and the newest good one is never deleted (`retention.decide`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

MAX_CHARS = 300
"""Of an error's text."""
MAX_LOSSES = 3
"""How many losses are named."""

_LARGEST = {"float16": 0x7C00, "bfloat16": 0x7F80, "float8_e5m2": 0x7C, "float8_e4m3fn": 0x7E}
"""The bits of the largest positive number that is not NaN, of the formats that numpy has no fast functions for."""
_CHUNK = 1 << 20


class Doubt(NamedTuple):
    """Why a checkpoint is in doubt."""

    text: str
    """One sentence, or several."""
    losses: tuple[str, ...] = ()
    """Tags of the losses whose newest values were NaN or infinite: after a resume they count as such until the session
    has logged a new one."""

    @classmethod
    def from_json(cls, value: Any) -> Doubt | None:
        """Return the doubt of a parsed file; None for none.

        Raises:
            ValueError: if it is no doubt.
        """
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], list):
            raise ValueError(f"{value!r:.80} is no doubt")
        return cls(str(value[0]), tuple(map(str, value[1])))


def doubt_of(error: str | None, losses: Sequence[str], array: str | None) -> Doubt | None:
    """Return what speaks against a checkpoint; None where nothing does.

    Args:
        error: the error that ended the training before it was saved.
        losses: tags of the losses whose newest values are NaN or infinite.
        array: the name of one of its arrays, or of its files, that has NaN.

    Example:
        >>> doubt_of(None, ["train/loss"], None).text
        'The newest value of "train/loss" is NaN or infinite.'
    """
    texts = []
    if error is not None:
        words = " ".join(error.split())
        texts.append(f"It was saved after an error: {words[:MAX_CHARS]}")
    if losses:
        named = ", ".join(f'"{tag}"' for tag in losses[:MAX_LOSSES])
        more = f" (and of {len(losses) - MAX_LOSSES} more losses)" if len(losses) > MAX_LOSSES else ""
        texts.append(f"The newest value of {named}{more} is NaN or infinite.")
    if array is not None:
        texts.append(f'There is NaN in "{array}".')
    return Doubt(" ".join(texts), tuple(losses)) if texts else None


def has_nan(dtype: str, memory: Any) -> bool:
    """Return whether there is NaN among numbers; infinity is none, as masks have it. Costs 0.06 s per GB of float32.

    Args:
        dtype: numpy's name of their type, also ``bfloat16``; of one that is not known the answer is False.
        memory: theirs, as a one-dimensional array of ``uint8``.
    """
    import numpy as np

    dtype = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
    if not len(memory) or dtype not in ("float32", "float64", *_LARGEST):
        return False
    if dtype in ("float32", "float64"):
        with np.errstate(invalid="ignore"):
            return bool(np.isnan(memory.view(dtype).min()))
    largest, width = _LARGEST[dtype], 2 if dtype in ("float16", "bfloat16") else 1
    bits, sign = memory.view(f"u{width}"), 1 << (8 * width - 1)
    for start in range(0, len(bits), _CHUNK):
        part = bits[start : start + _CHUNK]
        # As a signed number a positive one is the largest, as an unsigned one a negative one.
        if part.view(f"i{width}").max() > largest or part.max() > largest + sign:
            return True
    return False

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
MAX_TEXT = 4096
"""Characters of a text that is read."""
MAX_TAGS = 10_000
"""Of losses that are read."""


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
        is_doubt = isinstance(value, list) and len(value) == 2 and isinstance(value[1], list)
        if not is_doubt or not all(isinstance(item, str) for item in (value[0], *value[1])):
            raise ValueError(f"{value!r:.80} is no doubt")
        text, losses = value
        if max(map(len, (text, *losses))) > MAX_TEXT or len(losses) > MAX_TAGS:
            raise ValueError(f"a doubt has a text of more than {MAX_TEXT:,} characters, or too many losses")
        return cls(text, tuple(losses))


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
    known = tuple(tag for tag in losses if len(tag) <= MAX_TEXT)[:MAX_TAGS]
    return Doubt(" ".join(texts)[:MAX_TEXT], known) if texts else None

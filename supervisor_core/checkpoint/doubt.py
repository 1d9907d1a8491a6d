"""What puts a checkpoint in doubt, and the sentence that says so.

It is in doubt if it was saved after an error, if the newest value of a loss was NaN or infinite, or if one of its
arrays has NaN. All others are good, and the newest good one is never deleted (`retention.decide`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from msgspec import Meta

from supervisor_core.checkpoint.json_records import MAX_TEXT, Text

MAX_CHARS = 300
"""Of an error's text."""
MAX_LOSSES = 3
"""How many losses are named."""
MAX_TAGS = 10_000
"""Of losses that are read."""


class Doubt(NamedTuple):
    """Why a checkpoint is in doubt."""

    text: Text
    """One sentence, or several."""
    losses: Annotated[tuple[Text, ...], Meta(max_length=MAX_TAGS)] = ()
    """Tags of the losses whose newest values were NaN or infinite: after a resume they count as such until the session
    has logged a new one."""


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

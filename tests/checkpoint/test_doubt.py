"""The words for what puts a checkpoint in doubt."""

from __future__ import annotations

from supervisor_core.checkpoint.retention import Doubt, doubt_of


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

"""``tags?run=<name>`` and ``scalars?run=<name>&tag=<tag>``, whose other arguments http_api.md describes."""

from __future__ import annotations

from tb_plugin.answers import BINARY, Answer, Refused, json_answer
from tb_plugin.arguments import Arguments
from tb_plugin.data.columns import encode_columns
from tb_plugin.data.scalars import scalar_window
from tb_plugin.data.segments import Segments
from tb_plugin.data.tags import tag_list
from tb_plugin.known import Known

_PIXELS = 1_024
_MIN_PIXELS, _MAX_PIXELS = 16, 8_192


def tags_route(known: Known, arguments: Arguments) -> Answer:
    """Answer a run's scalar tags."""
    _, shown = known.run(arguments)
    return json_answer(tag_list(known.scalars(shown).tags()))


def scalars_route(known: Known, arguments: Arguments) -> Answer:
    """Answer a tag's values as columns."""
    tag = arguments.text("tag")
    by_step = arguments.choice("by", ("wall", "step")) == "step"
    low, high = arguments.window()
    smoothing = arguments.number("smoothing", 0.0, 0.9999)
    pixels = arguments.integer("pixels", _MIN_PIXELS, _MAX_PIXELS) or _PIXELS
    _, shown = known.run(arguments)
    files = known.scalars(shown).points(tag)
    if not files:
        named = tag if len(tag) <= 80 else tag[:80] + "..."
        raise Refused(404, f"The run {shown.name!r} has no scalars with the tag {named!r}; 'tags' lists what it has.")
    segments = Segments(shown.run)
    window = scalar_window(files, segments, by_step=by_step, low=low, high=high, pixels=pixels, smoothing=smoothing)
    return Answer(body=encode_columns(window.columns, window.header), content_type=BINARY)

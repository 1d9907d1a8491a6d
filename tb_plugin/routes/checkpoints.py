"""``checkpoints`` and ``checkpoint_marks``, whose arguments http_api.md describes."""

from __future__ import annotations

from tb_plugin.answers import BINARY, Answer, json_answer
from tb_plugin.arguments import Arguments
from tb_plugin.data.checkpoints import checkpoint_marks, checkpoint_page
from tb_plugin.data.columns import encode_columns
from tb_plugin.known import Known

_LIMIT = 1_000
_MAX_LIMIT = 10_000


def checkpoints_route(known: Known, arguments: Arguments) -> Answer:
    """Answer a page of saves."""
    offset = arguments.integer("offset", 0, None) or 0
    limit = arguments.integer("limit", 1, _MAX_LIMIT) or _LIMIT
    oldest_first = arguments.choice("order", ("newest", "oldest")) == "oldest"
    _, shown = known.run(arguments)
    return json_answer(checkpoint_page(shown.run, offset, limit, oldest_first=oldest_first))


def checkpoint_marks_route(known: Known, arguments: Arguments) -> Answer:
    """Answer the saves from one on as columns."""
    offset = arguments.integer("offset", 0, None) or 0
    _, shown = known.run(arguments)
    columns, header = checkpoint_marks(shown.run, offset)
    return Answer(body=encode_columns(columns, header), content_type=BINARY)

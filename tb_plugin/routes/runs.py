"""``runs?since=<generation>``"""

from __future__ import annotations

from tb_plugin.answers import Answer, json_answer
from tb_plugin.arguments import Arguments
from tb_plugin.data.overview import overview
from tb_plugin.known import Known


def runs_route(known: Known, arguments: Arguments) -> Answer:
    """Answer the overview."""
    since = arguments.integer("since", 0, None)
    return json_answer(overview(known.view(), since))

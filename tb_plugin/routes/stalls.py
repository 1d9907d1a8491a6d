"""``stalls?run=<name>``"""

from __future__ import annotations

from tb_plugin.answers import Answer, json_answer
from tb_plugin.arguments import Arguments
from tb_plugin.data.stalls import stall_list
from tb_plugin.known import Known


def stalls_route(known: Known, arguments: Arguments) -> Answer:
    """Answer a run's stalls."""
    _, shown = known.run(arguments)
    return json_answer(stall_list(shown.run))

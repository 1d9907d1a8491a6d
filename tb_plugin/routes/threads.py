"""``threads?run=<name>[&from=<at>&to=<at>]``"""

from __future__ import annotations

from tb_plugin.answers import Answer, json_answer
from tb_plugin.arguments import Arguments
from tb_plugin.data.threads import thread_lanes
from tb_plugin.known import Known


def threads_route(known: Known, arguments: Arguments) -> Answer:
    """Answer a run's service threads over time."""
    since, until = arguments.window()
    _, shown = known.run(arguments)
    return json_answer(thread_lanes(shown.run, since, until))

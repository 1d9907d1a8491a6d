"""``workers?run=<name>[&from=<at>&to=<at>]``"""

from __future__ import annotations

from tb_plugin.answers import Answer, json_answer
from tb_plugin.arguments import Arguments
from tb_plugin.data.workers import worker_lanes
from tb_plugin.known import Known


def workers_route(known: Known, arguments: Arguments) -> Answer:
    """Answer the other processes of a run's cluster over time."""
    since, until = arguments.window()
    _, shown = known.run(arguments)
    return json_answer(worker_lanes(shown.run, since, until))

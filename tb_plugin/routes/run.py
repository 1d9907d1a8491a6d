"""``run?run=<name>``"""

from __future__ import annotations

from tb_plugin.answers import Answer, json_answer
from tb_plugin.arguments import Arguments
from tb_plugin.data.details import details
from tb_plugin.known import Known


def run_route(known: Known, arguments: Arguments) -> Answer:
    """Answer one run."""
    return json_answer(details(*known.run(arguments)))

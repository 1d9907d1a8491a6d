"""Every route by name; http_api.md describes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from werkzeug.wrappers import Request

from tb_plugin.answers import Answer, Refused
from tb_plugin.arguments import Arguments
from tb_plugin.known import Known
from tb_plugin.routes.checkpoints import checkpoint_marks_route, checkpoints_route
from tb_plugin.routes.metrics import metrics_route
from tb_plugin.routes.run import run_route
from tb_plugin.routes.runs import runs_route
from tb_plugin.routes.scalars import scalars_route, tags_route
from tb_plugin.routes.stalls import stalls_route
from tb_plugin.routes.threads import threads_route
from tb_plugin.routes.workers import workers_route

ROUTES: Mapping[str, Callable[[Known, Arguments], Answer]] = {
    "runs": runs_route,
    "run": run_route,
    "threads": threads_route,
    "workers": workers_route,
    "checkpoints": checkpoints_route,
    "checkpoint_marks": checkpoint_marks_route,
    "stalls": stalls_route,
    "tags": tags_route,
    "scalars": scalars_route,
    "metrics": metrics_route,
}


def answer(known: Known, name: str, request: Request) -> Answer:
    """Answer a request for one of the routes.

    Raises:
        Refused: if there is none of that name, and whatever the route refuses.
    """
    route = ROUTES.get(name)
    if route is None:
        raise Refused(404, "There is no such route; http_api.md lists those there are.")
    return route(known, Arguments(request.args, request.headers))

"""Every route by name; http_api.md describes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from werkzeug.wrappers import Request

from tb_plugin.answers import Answer, Refused, endpoint
from tb_plugin.arguments import Arguments
from tb_plugin.known import Known
from tb_plugin.routes.checkpoints import checkpoint_marks_route, checkpoints_route
from tb_plugin.routes.metrics import metrics_route
from tb_plugin.routes.run import run_route
from tb_plugin.routes.runs import runs_route
from tb_plugin.routes.scalars import scalars_route, tags_route
from tb_plugin.routes.stalls import stalls_route
from tb_plugin.routes.threads import threads_route
from tb_plugin.static_files import StaticFiles

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

ROUTES: Mapping[str, Callable[[Known, Arguments], Answer]] = {
    "runs": runs_route,
    "run": run_route,
    "threads": threads_route,
    "checkpoints": checkpoints_route,
    "checkpoint_marks": checkpoint_marks_route,
    "stalls": stalls_route,
    "tags": tags_route,
    "scalars": scalars_route,
    "metrics": metrics_route,
}
"""What answers data."""


def applications(known: Known, files: StaticFiles) -> dict[str, WSGIApplication]:
    """Return what TensorBoard serves below the plugin's address; whatever it does not know is refused by us, too."""
    apps = {f"/{name}": endpoint(partial(_file, files, name)) for name in files.names}
    apps |= {f"/{name}": endpoint(partial(_data, known, route)) for name, route in ROUTES.items()}
    return {**apps, "/*": endpoint(_nothing)}


def _data(known: Known, route: Callable[[Known, Arguments], Answer], request: Request) -> Answer:
    return route(known, Arguments(request.args, request.headers))


def _file(files: StaticFiles, name: str, request: Request) -> Answer:
    return files.answer(name)


def _nothing(request: Request) -> NoReturn:
    raise Refused(404, "There is no such route; http_api.md lists those there are.")

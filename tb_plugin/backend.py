"""`Backend`: the routes, which http_api.md describes, and what they answer from.

It is loaded, and begins to read, a moment after TensorBoard's start.
"""

from __future__ import annotations

import json
import math
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from werkzeug.wrappers import Request

from supervisor_core.events.index import RunIndex
from supervisor_core.run.logdir_watch import LogdirWatch
from tb_plugin.http import BINARY, JSON, Answer, Arguments, Refused, json_answer, unavailable
from tb_plugin.index import Index
from tb_plugin.lanes import thread_lanes, worker_lanes
from tb_plugin.logdirs import Logdir
from tb_plugin.run_data import RunView, View, checkpoint_marks, checkpoint_page, details, overview, stall_list
from tb_plugin.scalar_store import NotRead, RunScalars, ScalarStore
from tb_plugin.scalars import scalar_window, segments_of, tag_list

if TYPE_CHECKING:
    from supervisor_core.exporter.exporter import Exporter
    from supervisor_core.metrics.render import Format


FIRST_VIEW_SECS = 0.5
"""How long a request waits for the first view: small logdirs are read by then, and the client need not ask twice."""
SCALARS_SECS = 5.0
"""How long a request waits for a run's scalars to be read."""

_LIMIT, _MAX_LIMIT = 1_000, 10_000
"""Saves of a page: unless more are asked for, and at most."""
_PIXELS, _MIN_PIXELS, _MAX_PIXELS = 1_024, 16, 8_192
"""Width of a chart, by which points are thinned."""


class Backend:
    """The index, the scalars and the routes. Reads from the time it is made until `close`, in daemon threads.

    Args:
        logdirs: what to read.
        refresh_secs: how long to wait between two looks.
        include: a regular expression that a run's name must match somewhere; empty for any.
        max_bytes: how much to hold scalars in.
    """

    def __init__(self, logdirs: Sequence[Logdir], *, refresh_secs: float, include: str, max_bytes: int) -> None:
        self._index = Index(logdirs, refresh_secs, partial(LogdirWatch, include=include or None))
        scalar_store = ScalarStore(_scalars_of, max_bytes, min(1.0, refresh_secs))
        self._context = PluginContext(self._index, scalar_store, MetricsPage())
        self._index.start()

    def has_runs(self) -> bool:
        """Return whether there are any runs, of whatever writer, as far as is known; reads nothing."""
        view = self._index.view()
        return bool(view.runs) or (view.reading is not None and view.reading[1] > 0)

    def answer(self, name: str, request: Request) -> Answer:
        """Answer a request for a route; see `answer`."""
        return answer(self._context, name, request)

    def close(self) -> None:
        """End the threads."""
        self._index.close()
        self._context.scalar_store.close()


@dataclass(frozen=True)
class PluginContext:
    """What the routes answer from: the index, the scalars, the metrics."""

    index: Index
    scalar_store: ScalarStore
    metrics_page: MetricsPage
    first_view_secs: float = FIRST_VIEW_SECS
    scalars_secs: float = SCALARS_SECS

    def view(self) -> View:
        """Return the present view."""
        return self.index.view(self.first_view_secs)

    def run(self, arguments: Arguments) -> tuple[View, RunView]:
        """Return the run that a request names, and the view that it is of."""
        name, view = arguments.text("run"), self.view()
        run = view.runs.get(name)
        if run is not None:
            return view, run
        if not view.is_whole:
            raise unavailable("starting", "The logdir is being read for the first time; ask again in a second.")
        shown = name if len(name) <= 80 else name[:80] + "..."
        raise Refused(404, f"There is no run {shown!r}; 'runs' lists those there are.")

    def scalars(self, run: RunView) -> RunScalars:
        """Return a run's scalars."""
        try:
            return self.scalar_store.run(run.directory, self.scalars_secs)
        except NotRead as error:
            if error.problem is not None:
                raise unavailable("failed", error.problem) from error
            raise unavailable("starting", f"The scalars of {run.name!r} are being read; ask again.") from error


class MetricsPage:
    """The exporter's page, of what the index has read. It is written on request, once for each look."""

    def __init__(self) -> None:
        self._writing = threading.Lock()
        self._exporter: Exporter | None = None
        self._written: View | None = None

    def scrape(self, view: View, format: Format, *, gzip: bool) -> bytes:
        """Return the metrics of a view in which every logdir has been looked at; any thread may ask."""
        assert view.secs is not None, "the page claims a look that is through"
        with self._writing:
            if self._exporter is None:
                from supervisor_core.exporter.exporter import Exporter

                self._exporter = Exporter([])
            if self._written is not view:
                self._exporter.show(view.snapshots, at=view.at, secs=view.secs)
                self._written = view
        return self._exporter.scrape(format, gzip=gzip)


def runs_route(context: PluginContext, arguments: Arguments) -> Answer:
    """Answer the overview."""
    since = arguments.integer("since", 0, None)
    return json_answer(overview(context.view(), since))


def run_route(context: PluginContext, arguments: Arguments) -> Answer:
    """Answer one run."""
    return Answer(body=details(*context.run(arguments)), content_type=JSON)


def threads_route(context: PluginContext, arguments: Arguments) -> Answer:
    """Answer a run's service threads over time."""
    since, until = arguments.window()
    _, shown = context.run(arguments)
    if (since, until) == (-math.inf, math.inf):
        return shown.once(_whole_thread_lanes)
    return json_answer(thread_lanes(shown.run, since, until))


def _whole_thread_lanes(shown: RunView) -> Answer:
    return json_answer(thread_lanes(shown.run, -math.inf, math.inf))


def workers_route(context: PluginContext, arguments: Arguments) -> Answer:
    """Answer the other processes of a run's cluster over time."""
    since, until = arguments.window()
    _, shown = context.run(arguments)
    return json_answer(worker_lanes(shown.run, since, until))


def checkpoints_route(context: PluginContext, arguments: Arguments) -> Answer:
    """Answer a page of saves."""
    offset = arguments.integer("offset", 0, None) or 0
    limit = arguments.integer("limit", 1, _MAX_LIMIT) or _LIMIT
    oldest_first = arguments.choice("order", ("newest", "oldest")) == "oldest"
    _, shown = context.run(arguments)
    return json_answer(checkpoint_page(shown.run, offset, limit, oldest_first=oldest_first))


def checkpoint_marks_route(context: PluginContext, arguments: Arguments) -> Answer:
    """Answer the saves from one on as columns."""
    offset = arguments.integer("offset", 0, None) or 0
    _, shown = context.run(arguments)
    columns, header = checkpoint_marks(shown.run, offset)
    return Answer(body=encode_columns(columns, header), content_type=BINARY)


def stalls_route(context: PluginContext, arguments: Arguments) -> Answer:
    """Answer a run's stalls."""
    _, shown = context.run(arguments)
    return json_answer(stall_list(shown.run))


def tags_route(context: PluginContext, arguments: Arguments) -> Answer:
    """Answer a run's scalar tags."""
    _, shown = context.run(arguments)
    return json_answer(tag_list(context.scalars(shown).tags()))


def scalars_route(context: PluginContext, arguments: Arguments) -> Answer:
    """Answer a tag's values as columns."""
    tag = arguments.text("tag")
    by_step = arguments.choice("by", ("wall", "step")) == "step"
    low, high = arguments.window()
    smoothing = arguments.number("smoothing", 0.0, 0.9999)
    pixels = arguments.integer("pixels", _MIN_PIXELS, _MAX_PIXELS) or _PIXELS
    _, shown = context.run(arguments)
    files = context.scalars(shown).points(tag)
    if not files:
        named = tag if len(tag) <= 80 else tag[:80] + "..."
        raise Refused(404, f"The run {shown.name!r} has no scalars with the tag {named!r}; 'tags' lists what it has.")
    segments = shown.once(segments_of)
    window = scalar_window(files, segments, by_step=by_step, low=low, high=high, pixels=pixels, smoothing=smoothing)
    return Answer(body=encode_columns(window.columns, window.header), content_type=BINARY)


def metrics_route(context: PluginContext, arguments: Arguments) -> Answer:
    """Answer what the exporter would serve for the same logdirs."""
    from supervisor_core.metrics.render import choose_format, gzip_accepted  # loads prometheus_client

    view = context.view()
    if view.secs is None:
        reason = " ".join(view.problems) or "The logdir is being read for the first time; scrape again in a second."
        raise unavailable("starting", reason)
    format = choose_format(arguments.header("Accept"))
    gzip = bool(gzip_accepted(arguments.header("Accept-Encoding")))
    body = context.metrics_page.scrape(view, format, gzip=gzip)
    return Answer(body=body, content_type=format.content_type, packed=gzip)


ROUTES: Mapping[str, Callable[[PluginContext, Arguments], Answer]] = {
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


def answer(context: PluginContext, name: str, request: Request) -> Answer:
    """Answer a request for one of the routes.

    Raises:
        Refused: if there is none of that name, and whatever the route refuses.
    """
    route = ROUTES.get(name)
    if route is None:
        raise Refused(404, "There is no such route; http_api.md lists those there are.")
    return route(context, Arguments(request.args, request.headers))


def encode_columns(columns: Mapping[str, NDArray[Any]], header: Mapping[str, Any] | None = None) -> bytes:
    """Return columns of one length as bytes, since JSON would take seconds.

        4 bytes                 length n of the header, little endian
        n bytes                 the header: JSON, padded with spaces so that 4 + n is a multiple of 8
        8 * length bytes each   the columns, in the header's order: little-endian float64

    Args:
        columns: name -> values.
        header: what else the header has.

    Example:
        >>> encoded = encode_columns({"step": np.array([1.0, 2.0])})
        >>> len(encoded) % 8, np.frombuffer(encoded, "<f8", offset=len(encoded) - 16).tolist()
        (0, [1.0, 2.0])
    """
    lengths = {len(column) for column in columns.values()}
    assert len(lengths) <= 1, f"columns of different lengths: {', '.join(map(str, lengths))}"
    described = {"v": 1, "length": max(lengths, default=0), "columns": list(columns), **(header or {})}
    text = json.dumps(described, allow_nan=False).encode()
    text += b" " * (-(4 + len(text)) % 8)
    packed = [np.ascontiguousarray(column, "<f8").tobytes() for column in columns.values()]
    return b"".join([struct.pack("<I", len(text)), text, *packed])


def _scalars_of(directory: str) -> RunIndex:
    return RunIndex(directory, directory, scalars_only=True)

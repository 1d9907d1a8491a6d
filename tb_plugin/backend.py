"""`Backend`: the routes, which http_api.md describes, and what they answer from.

It is loaded, and begins to read, a moment after TensorBoard's start.
"""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from supervisor_core.events.index import RunIndex
from supervisor_core.run.judge.run_json import plain
from supervisor_core.run.model.run import Run
from supervisor_core.run.model.snapshot import RunPlace, find_run, runs_near
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.run.watch.whole_run import WholeRuns
from tb_plugin.compare import MOST_RUNS, MOST_TAGS, comparison
from tb_plugin.fleet_timeline import happened, timeline_columns
from tb_plugin.http import BINARY, EVER, JSON, Answer, Arguments, Refused, json_answer, shortened, unavailable
from tb_plugin.index import Index
from tb_plugin.lanes import thread_lanes, worker_lanes
from tb_plugin.logdirs import Logdir
from tb_plugin.marks import checkpoint_marks
from tb_plugin.run_data import RunView, View, checkpoint_page, details, overview, stall_list
from tb_plugin.scalar_store import NotRead, RunScalars, ScalarStore
from tb_plugin.scalars import running_time_of, scalar_window, segments_of

if TYPE_CHECKING:
    from werkzeug.wrappers import Request

    from supervisor_core.metrics.exporter import Exporter
    from supervisor_core.metrics.render import Format
import math
from collections import Counter

from supervisor_core.events.hparams import HParam
from supervisor_core.run.judge.comparison import Compared, compared

MOST_COLUMNS = 50
"""That one request may name."""
MOST_FIELDS = 2_000
"""That are listed: of each kind those that most runs have."""

_WHOLE: Mapping[str, Callable[[Compared], HParam | None]] = {
    "duration": lambda each: each.duration_secs,
    "started": lambda each: each.started_at,
    "host": lambda each: each.host,
}
"""Columns without a name of their own."""
_NAMED: Mapping[str, Callable[[Compared], Mapping[str, HParam]]] = {
    "hparam": lambda each: each.hparams,
    "label": lambda each: each.labels,
    "version": lambda each: each.versions,
    "recorded": lambda each: each.recorded,
}
_TAG = "tag"


MOST_KEY_CHARS = 5_000
"""Of a key: no tag is longer."""
EXPECTED = f"one of {', '.join(_WHOLE)}, or a name after one of {', '.join(f'{kind}:' for kind in (_TAG, *_NAMED))}"
"""What a key must be, for an error."""


def is_column(key: str) -> bool:
    """Return whether there may be a column of this key."""
    kind, _, name = key.partition(":")
    is_named = bool(name) and (kind == _TAG or kind in _NAMED)
    return key in _WHOLE or (is_named and len(key) <= MOST_KEY_CHARS)


def list_fields(view: View) -> dict[str, Any]:
    """Return the columns that at least one run has, those that most runs have first; and how many are left out."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in ("", _TAG, *_NAMED)}
    for shown in view.runs.values():
        each = shown.once(_compared)
        counts[""].update(key for key, value in _WHOLE.items() if value(each) is not None)
        counts[_TAG].update(shown.run.tag_values.tags)
        for kind, values in _NAMED.items():
            counts[kind].update(values(each).keys())
    found, left_out = [], 0
    for kind, names in counts.items():
        known = [(name, runs) for name, runs in names.items() if not kind or is_column(f"{kind}:{name}")]
        ordered = sorted(known, key=lambda item: (-item[1], item[0]))
        left_out += max(0, len(ordered) - MOST_FIELDS)
        found += [{"key": f"{kind}:{name}" if kind else name, "runs": runs} for name, runs in ordered[:MOST_FIELDS]]
    return {"v": 1, "generation": view.generation, "fields": plain(found), "left_out": left_out}


def list_columns(view: View, keys: Sequence[str], since: int | None) -> dict[str, Any]:
    """Return the values of columns, by run: of all runs that have one; or, of those that changed after a generation, if
    the view goes back that far, all, None where they have none now."""
    full = since is None or since < view.oldest or since > view.generation
    base = 0 if full or since is None else since
    runs = [run for run in view.runs.values() if run.generation > base]
    columns: dict[str, dict[str, HParam | None]] = {key: {} for key in keys}
    getters = [(columns[key], _getter(key)) for key in keys]
    for run in runs:
        each = run.once(_compared)
        for column, value_of in getters:
            column[run.name] = value_of(run, each)
    if full:
        columns = {
            key: {run: value for run, value in column.items() if value is not None} for key, column in columns.items()
        }
    return {"v": 1, "at": view.at, "generation": view.generation, "full": full, "columns": columns}


def _getter(key: str) -> Callable[[RunView, Compared], HParam | None]:
    kind, _, name = key.partition(":")
    if key in _WHOLE:
        return lambda run, each: _WHOLE[key](each)
    if kind == _TAG:
        return lambda run, each: _newest(run, name)
    return lambda run, each: _NAMED[kind](each).get(name)


def _compared(shown: RunView) -> Compared:
    return compared(shown.run)


def _newest(run: RunView, tag: str) -> float | str | None:
    last = run.run.tag_values.of(tag)
    return None if last is None else _shown(last.value)


def _shown(value: float) -> float | str:
    """Return a value as JSON can hold it: one that is not finite as a text, since it is known."""
    return value if math.isfinite(value) else str(value)


FIRST_VIEW_SECS = 0.5
"""How long a request waits for the first view: small logdirs are read by then, and the client need not ask twice."""
SCALARS_SECS = 5.0
"""How long a request waits for a run's scalars to be read."""
COMPARE_SECS = 0.3
"""Seconds a comparison waits for its runs; slower ones are left out."""

_LIMIT, _MAX_LIMIT = 1_000, 10_000
"""Saves of a page: unless more are asked for, and at most."""
_PIXELS, _MIN_PIXELS, _MAX_PIXELS = 1_024, 16, 8_192
"""Width of a chart, by which points and marks are thinned."""


class Views(Protocol):
    """The runs: `Index`, which reads them again and again; a report has those of one moment."""

    def view(self, wait_secs: float = 0.0) -> View:
        """Return the newest view."""

    def close(self) -> None:
        """End what renews it."""


class Scalars(Protocol):
    """The scalars of the runs: `ScalarStore`; a report has those of one run."""

    def run(self, directory: str, wait_secs: float) -> RunScalars:
        """Return those of a run; `NotRead` where they are not there in that time."""

    def close(self) -> None:
        """End what reads them."""


class Backend:
    """The routes, and what they answer from: the index, the scalars, the metrics.

    Args:
        index: the runs.
        scalar_store: their scalars.
        whole_runs: reads saves, and the histories of threads and workers. None: the index has them.
        first_view_secs: how long a request waits for the first view.
    """

    def __init__(
        self,
        index: Views,
        scalar_store: Scalars,
        *,
        whole_runs: WholeRuns | None = None,
        first_view_secs: float = FIRST_VIEW_SECS,
    ) -> None:
        self.scalar_store = scalar_store
        self._whole_runs = whole_runs
        self._index = index
        self._first_view_secs = first_view_secs
        self._writing = threading.Lock()
        self._exporter: Exporter | None = None
        self._written: View | None = None

    def has_runs(self) -> bool:
        """Return whether there are any runs, of whatever writer, as far as is known; reads nothing."""
        view = self._index.view()
        return bool(view.runs) or (view.reading is not None and view.reading[1] > 0)

    def answer(self, name: str, request: Request) -> Answer:
        """Answer a request for one of the routes.

        Raises:
            Refused: if there is none of that name, and whatever the route refuses.
        """
        route = ROUTES.get(name)
        if route is None:
            raise Refused(404, "There is no such route; http_api.md lists those there are.")
        return route(self, Arguments(request.args, request.headers))

    def view(self) -> View:
        """Return the present view."""
        return self._index.view(self._first_view_secs)

    def run(self, arguments: Arguments, view: View | None = None) -> RunView:
        """Return the run that a request names, as it is in a view, or in the present one."""
        return self.named(arguments.text("run"), view or self.view())

    def whole_view(self) -> View:
        """Return the present view, once every logdir has been read."""
        view = self.view()
        if not view.is_whole:
            raise self._starting()
        return view

    @staticmethod
    def _starting() -> Refused:
        return unavailable("starting", "The logdir is being read for the first time; ask again in a second.")

    def named(self, name: str, view: View, *, guess: bool = True) -> RunView:
        """Return a run by its name, the label of its metrics, its directory, or the end of one of these.

        Args:
            name: as it was asked for.
            view: the runs.
            guess: where there is none, say which may have been meant: among thousands of names that takes seconds.
        """
        run = view.runs.get(name)
        if run is not None:
            return run
        places = {key: RunPlace(shown.directory, shown.watched.own_name) for key, shown in view.runs.items()}
        found = find_run(name, places) if view.is_whole else None
        if found is not None:
            return view.runs[found]
        if not view.is_whole:
            raise self._starting()
        near = " or ".join(shortened(each) for each in runs_near(name, view.runs)) if guess else ""
        raise Refused(404, f"There is no run {shortened(name)}{f'; did you mean {near}?' if near else '.'}")

    def whole(self, run: RunView) -> Run:
        """Return a run with all its saves, and the whole histories of its threads and workers, as they are now."""
        return run.run if self._whole_runs is None else self._whole_runs.of(run.watched).run

    def with_all_saves(self, run: RunView) -> RunView:
        """Return a run with all its saves; read once, and again after the run has changed."""
        return run if self._whole_runs is None else run.once(self._made_whole)

    def _made_whole(self, run: RunView) -> RunView:
        assert self._whole_runs is not None
        return run.of(self._whole_runs.of(run.watched))

    def thread_lanes(self, run: RunView) -> Answer:
        """Answer a run's service threads over all of its time."""
        return json_answer(thread_lanes(self.whole(run), *EVER))

    def scalars(self, run: RunView) -> RunScalars:
        """Return a run's scalars."""
        try:
            return self.scalar_store.run(run.directory, SCALARS_SECS)
        except NotRead as error:
            if error.problem is not None:
                raise unavailable("failed", error.problem) from error
            raise unavailable("starting", f"The scalars of {run.name!r} are being read; ask again.") from error

    def metrics(self, view: View, format: Format, *, gzip: bool) -> bytes:
        """Return the exporter's page of a view in which every logdir has been scanned; written once for each view."""
        assert view.secs is not None, "the page claims a scan that is complete"
        with self._writing:
            if self._exporter is None:
                from supervisor_core.metrics.exporter import Exporter

                self._exporter = Exporter([])
            if self._written is not view:
                self._exporter.show(view.snapshots, at=view.at, secs=view.secs)
                self._written = view
        return self._exporter.scrape(format, gzip=gzip)

    def close(self) -> None:
        """End the threads."""
        self._index.close()
        self.scalar_store.close()


def start_backend(
    logdirs: Sequence[Logdir], *, refresh_secs: float, include: str, max_bytes: int, cache: str | None = None
) -> Backend:
    """Return a backend that reads, in daemon threads, until it is closed.

    Args:
        logdirs: what to read.
        refresh_secs: how long to wait between two scans.
        include: a regular expression that a run's name must match somewhere; empty for any.
        max_bytes: how much to hold scalars in.
        cache: see `LogdirWatch`.
    """
    kept_ticks = None if cache is None else 1
    watch = partial(
        LogdirWatch,
        include=include or None,
        kept_ticks=kept_ticks,
        all_saves=cache is None,
        cache=cache,
    )
    index = Index(logdirs, refresh_secs, watch)
    scalar_store = ScalarStore(lambda directory: RunIndex(directory, directory), max_bytes, min(1.0, refresh_secs))
    index.start()
    return Backend(index, scalar_store, whole_runs=None if cache is None else WholeRuns())


def runs_route(backend: Backend, arguments: Arguments) -> Answer:
    """Answer the overview."""
    since = arguments.integer("since", 0, None)
    return Answer(body=overview(backend.view(), since), content_type=JSON)


def fields_route(backend: Backend, arguments: Arguments) -> Answer:
    """Answer which columns the list of runs may have."""
    return json_answer(list_fields(backend.whole_view()))


def columns_route(backend: Backend, arguments: Arguments) -> Answer:
    """Answer the values of some of these columns."""
    view = backend.whole_view()
    keys = arguments.texts("key", MOST_COLUMNS, needed=True)
    for key in keys:
        if not is_column(key):
            raise Refused(400, f"The argument 'key' is {shortened(key)}; expected {EXPECTED}.")
    return json_answer(list_columns(view, keys, arguments.integer("since", 0, None)))


def run_route(backend: Backend, arguments: Arguments) -> Answer:
    """Answer one run."""
    view = backend.view()
    return Answer(body=details(view, backend.with_all_saves(backend.run(arguments, view))), content_type=JSON)


def threads_route(backend: Backend, arguments: Arguments) -> Answer:
    """Answer a run's service threads over time."""
    since, until = arguments.window()
    shown = backend.run(arguments)
    if (since, until) == EVER:
        return shown.once(backend.thread_lanes)
    return json_answer(thread_lanes(backend.whole(shown), since, until))


def workers_route(backend: Backend, arguments: Arguments) -> Answer:
    """Answer the other processes of a run's cluster over time."""
    since, until = arguments.window()
    return json_answer(worker_lanes(backend.whole(backend.run(arguments)), since, until))


def checkpoints_route(backend: Backend, arguments: Arguments) -> Answer:
    """Answer a page of saves."""
    offset = arguments.integer("offset", 0, None) or 0
    limit = arguments.integer("limit", 1, _MAX_LIMIT) or _LIMIT
    oldest_first = arguments.choice("order", ("newest", "oldest")) == "oldest"
    shown = backend.with_all_saves(backend.run(arguments))
    return json_answer(checkpoint_page(shown.run, offset, limit, oldest_first=oldest_first))


def checkpoint_marks_route(backend: Backend, arguments: Arguments) -> Answer:
    """Answer a run's saves as columns."""
    by_step = arguments.choice("by", ("wall", "step")) == "step"
    window = _drawn(arguments)
    return columns_answer(*checkpoint_marks(backend.with_all_saves(backend.run(arguments)), by_step=by_step, **window))


def stalls_route(backend: Backend, arguments: Arguments) -> Answer:
    """Answer a run's stalls."""
    return json_answer(stall_list(backend.run(arguments).run))


def tags_route(backend: Backend, arguments: Arguments) -> Answer:
    """Answer a run's scalar tags."""
    return json_answer({"v": 1, "tags": plain(backend.scalars(backend.run(arguments)).tags())})


def scalars_route(backend: Backend, arguments: Arguments) -> Answer:
    """Answer a tag's values as columns."""
    tag, by = arguments.text("tag"), arguments.choice("by", ("wall", "step", "running"))
    window = _drawn(arguments)
    smoothing = arguments.number("smoothing", 0.0, 0.9999)
    shown = backend.run(arguments)
    files = backend.scalars(shown).points(tag)
    if not files:
        text = f"The run {shown.name!r} has no scalars with the tag {shortened(tag)}; 'tags' lists what it has."
        raise Refused(404, text)
    running = shown.once(running_time_of) if by == "running" else None
    segments = shown.once(segments_of)
    return columns_answer(
        *scalar_window(files, segments, by_step=by == "step", running=running, **window, smoothing=smoothing)
    )


def _drawn(arguments: Arguments) -> dict[str, Any]:
    """Return what part of an axis is drawn, and in how many columns."""
    low, high = arguments.window()
    return {"low": low, "high": high, "pixels": arguments.integer("pixels", _MIN_PIXELS, _MAX_PIXELS) or _PIXELS}


def compare_route(backend: Backend, arguments: Arguments) -> Answer:
    """Answer several runs side by side."""
    names, tags = arguments.texts("run", MOST_RUNS, needed=True), arguments.texts("tag", MOST_TAGS)
    view = backend.view()
    runs: dict[str, RunView | str] = {}
    for name in names:
        try:
            runs[name] = backend.named(name, view, guess=len(names) == 1)
        except Refused as refused:
            if refused.code != 404:
                raise
            runs[name] = str(refused)
    found = comparison(runs, tags, backend.scalar_store.run, COMPARE_SECS)
    return json_answer({"v": 1, "at": view.at, **found})


def timeline_route(backend: Backend, arguments: Arguments) -> Answer:
    """Answer what all runs did in a stretch of time, as columns."""
    since, until = arguments.window()
    return columns_answer(*timeline_columns(backend.whole_view(), since, until, arguments.grouping()))


def incidents_route(backend: Backend, arguments: Arguments) -> Answer:
    """Answer what happened to all runs in a stretch of time, as sentences."""
    since, until = arguments.window()
    return json_answer(happened(backend.whole_view(), since, until))


def metrics_route(backend: Backend, arguments: Arguments) -> Answer:
    """Answer what the exporter would serve for the same logdirs."""
    from supervisor_core.metrics.render import choose_format, gzip_accepted  # loads prometheus_client

    view = backend.view()
    if view.secs is None:
        reason = " ".join(view.problems) or "The logdir is being read for the first time; scrape again in a second."
        raise unavailable("starting", reason)
    format = choose_format(arguments.header("Accept"))
    gzip = bool(gzip_accepted(arguments.header("Accept-Encoding")))
    body = backend.metrics(view, format, gzip=gzip)
    return Answer(body=body, content_type=format.content_type, packed=gzip)


def alerts_route(backend: Backend, arguments: Arguments) -> Answer:
    """Answer the page of alerts: what each means, and what to do."""
    from supervisor_core.metrics.alerts_page import alerts_headers, alerts_page  # loads what the exporter serves

    headers = tuple(alerts_headers().items())
    return Answer(body=alerts_page().encode(), content_type="text/html", headers=headers)


ROUTES: Mapping[str, Callable[[Backend, Arguments], Answer]] = {
    "runs": runs_route,
    "fields": fields_route,
    "columns": columns_route,
    "run": run_route,
    "threads": threads_route,
    "workers": workers_route,
    "checkpoints": checkpoints_route,
    "checkpoint_marks": checkpoint_marks_route,
    "stalls": stalls_route,
    "tags": tags_route,
    "scalars": scalars_route,
    "compare": compare_route,
    "timeline": timeline_route,
    "incidents": incidents_route,
    "metrics": metrics_route,
    "alerts": alerts_route,
}


def columns_answer(columns: Mapping[str, NDArray[Any]], header: Mapping[str, Any]) -> Answer:
    """Return columns of one length as an answer in bytes, since JSON would take seconds.

        4 bytes                 length n of the header, little endian
        n bytes                 the header: JSON, padded with spaces so that 4 + n is a multiple of 8
        8 * length bytes each   the columns, in the header's order: little-endian float64

    Args:
        columns: name -> values.
        header: what else the header has.

    Example:
        >>> encoded = columns_answer({"step": np.array([1.0, 2.0])}, {}).body
        >>> len(encoded) % 8, np.frombuffer(encoded, "<f8", offset=len(encoded) - 16).tolist()
        (0, [1.0, 2.0])
    """
    lengths = {len(column) for column in columns.values()}
    assert len(lengths) <= 1, f"columns of different lengths: {', '.join(map(str, lengths))}"
    described = {"v": 1, "length": max(lengths, default=0), "columns": list(columns), **header}
    text = json.dumps(described, allow_nan=False).encode()
    text += b" " * (-(4 + len(text)) % 8)
    packed = [np.ascontiguousarray(column, "<f8").tobytes() for column in columns.values()]
    return Answer(body=b"".join([struct.pack("<I", len(text)), text, *packed]), content_type=BINARY)

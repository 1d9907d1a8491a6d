"""`MetricsServer`: a run's metrics over HTTP, from inside the training process.

    /metrics     the text format 0.0.4 or OpenMetrics, as the client asks; gzip if it accepts that
    /-/healthy   200 as long as the process can answer
    /-/ready     200 once the run is ready, else 503 and why
    /            a page that links to these

Training comes first: an address that cannot be had is logged, never raised, and no client can hold up another.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import logging
import ssl
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from weakref import WeakSet

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from supervisor_core.base.address import format_address, parse_address
from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.systems import after_fork_in_child
from supervisor_core.metrics.collector import RunCollector
from supervisor_core.metrics.listener import (
    Environ,
    Listener,
    Response,
    landing_page,
    page_of,
    path_of,
    text_response,
)
from supervisor_core.metrics.render import choose_encoding, gzip_accepted

_LOG = logging.getLogger("supervisor_core")

_NOT_READY = "the run is not training yet (its phase is in supervisor_phase at /metrics)"
_FRONT = landing_page(
    "Supervisor metrics",
    '<a href="metrics">metrics</a>: for Prometheus',
    '<a href="-/healthy">healthy</a>: does this process answer?',
    '<a href="-/ready">ready</a>: is the run under way?',
)


class MetricsServer:
    """Serves a collector's metrics from `start` to `close`.

    Args:
        collector: A `RunCollector`, or a whole ``prometheus_client.CollectorRegistry``.
        address: ``"host:port"``, ``":port"`` (127.0.0.1) or ``"[::1]:port"``; port 0 picks a free one.
        ready: Whether the run is under way, for ``/-/ready``; called from many threads. Default: always.
        ssl_context: Serve HTTPS with it. Default: plain HTTP.
        client_timeout_secs: How long a client may be silent before it is hung up on, but between two requests.
        process: Served besides: what is about this process (``prometheus_client.ProcessCollector``).
        clock: Dates scrapes.

    Raises:
        OptionsError: if the address cannot be read.

    Example:
        >>> with MetricsServer(RunCollector(lambda: []), ":0") as server:
        ...     print(server.url is not None)
        True
    """

    def __init__(
        self,
        collector: Collector,
        address: str,
        *,
        ready: Callable[[], bool] = lambda: True,
        ssl_context: ssl.SSLContext | None = None,
        client_timeout_secs: float = 10.0,
        process: Collector | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._collector = collector
        self._served = CollectorRegistry()
        for served in filter(None, (collector, process)):
            self._served.register(served)
        self._host, self._port = parse_address(address)
        self._ready = ready
        self._ssl_context = ssl_context
        self._client_timeout_secs = client_timeout_secs
        self._clock = clock
        self._failing = False
        self._start_clean()

    def _start_clean(self) -> None:
        self._listener: Listener | None = None
        self._scrapes = 0
        self._scraped = threading.Condition()
        self._scrapers: dict[_Scraper, float] = {}
        self._waits: list[Counter[_Scraper]] = []

    def start(self) -> bool:
        """Begin to serve, in daemon threads; return whether that was possible. If not, the log says why."""
        if self._listener is not None:
            return True
        try:
            listener = Listener(
                self._host,
                self._port,
                self._respond,
                ssl_context=lambda: self._ssl_context,
                client_timeout_secs=self._client_timeout_secs,
            )
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that no name can be
            _LOG.error("Metrics are not served (training continues): %s", self._why(error))
            return False
        try:
            listener.start()
        except RuntimeError as error:
            listener.server_close()
            _LOG.error("Metrics are not served (training continues): cannot start a thread: %s", error)
            return False
        self._listener = listener
        _SERVING.add(self)
        _LOG.info("Metrics are served at %s", self.url)
        return True

    def close(self) -> None:
        """Free the port and hang up on every client, at most a second after the call. Does nothing if not serving."""
        listener, self._listener = self._listener, None
        _SERVING.discard(self)
        if listener is not None:
            listener.close()
        with self._scraped:
            self._scraped.notify_all()

    @property
    def address(self) -> str | None:
        """``host:port`` with the port really bound; None while nothing is served."""
        listener = self._listener
        return None if listener is None else listener.address

    @property
    def url(self) -> str | None:
        """Where Prometheus finds the metrics; None while nothing is served."""
        address = self.address
        return None if address is None else f"http{'s' if self._ssl_context else ''}://{address}/metrics"

    @property
    def scrapes(self) -> int:
        """How many times ``/metrics`` was served in full."""
        return self._scrapes

    def wait_for_scrapes(self, n: int, timeout_secs: float) -> bool:
        """Wait until ``/metrics`` was served n more times to every scraper; return whether it was.

        Scrapers are distinguished by their addresses and their user agents (the two servers of a pair, one
        that scrapes more rarely); those count that have scraped within the last five minutes. Only scrapes that begin
        after this call count, so what was true at the call has been seen n times. Returns
        False after ``timeout_secs``, and at once when nothing is served (any more).
        """
        with self._scraped:
            since = self._clock.monotonic() - _SCRAPER_SECS
            # How many scrapes of each scraper have begun and ended since now.
            done = Counter({scraper: 0 for scraper, at in self._scrapers.items() if at >= since})

            def is_over() -> bool:
                return bool(done) and min(done.values()) >= n

            self._waits.append(done)
            try:
                self._scraped.wait_for(lambda: is_over() or self._listener is None, timeout_secs)
            finally:
                self._waits = [each for each in self._waits if each is not done]
            return is_over()

    def __enter__(self) -> MetricsServer:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _respond(self, environ: Environ) -> Response:
        path = path_of(environ)
        return self._metrics(environ) if path == "/metrics" else page_of(path, _FRONT, self._not_ready, "/metrics")

    def _metrics(self, environ: Environ) -> Response:
        with self._scraped:
            waits = tuple(self._waits)
        encode, content_type = choose_encoding(environ.get("HTTP_ACCEPT", ""))
        if isinstance(self._collector, RunCollector) and isinstance(encode, partial) and "escaping" in encode.keywords:
            # Our names need no escaping, and the library does that letter by letter: half the time of a scrape.
            encode = partial(encode, escaping="allow-utf-8")
        try:
            body = encode(self._served)
        except Exception as error:  # a user's own collector in the registry
            if not self._failing:
                _LOG.exception("Metrics: nothing can be exported")
            self._failing = True
            return text_response(500, f"nothing can be exported: {error!r}")
        self._failing = False
        headers = {}
        if gzip_accepted(environ.get("HTTP_ACCEPT_ENCODING", "")):
            headers, body = {"Content-Encoding": "gzip"}, gzip.compress(body, compresslevel=1)
        # Scrapers differ in address, name, and timeout, which differs between scrapers of different intervals.
        names = ("REMOTE_ADDR", "HTTP_USER_AGENT", "HTTP_X_PROMETHEUS_SCRAPE_TIMEOUT_SECONDS")
        scraper = hash(tuple(environ.get(name, "") for name in names))
        return Response(
            status=200,
            body=body,
            content_type=content_type,
            headers=headers,
            sent=lambda: self._count_scrape(scraper, waits),
        )

    def _count_scrape(self, scraper: _Scraper, waits: tuple[Counter[_Scraper], ...]) -> None:
        with self._scraped:
            self._scrapes += 1
            now = self._clock.monotonic()
            self._scrapers = {known: at for known, at in self._scrapers.items() if at >= now - _SCRAPER_SECS}
            self._scrapers.pop(scraper, None)  # the last one is the newest
            self._scrapers[scraper] = now
            if len(self._scrapers) > _MOST_SCRAPERS:
                del self._scrapers[next(iter(self._scrapers))]
            for done in waits:
                if scraper in done or len(done) < _MOST_SCRAPERS:
                    done[scraper] += 1
            self._scraped.notify_all()

    def _not_ready(self) -> str | None:
        try:
            return None if self._ready() else _NOT_READY
        except Exception as error:  # unknown is not ready
            return f"it could not be found out: {error!r}"

    def _why(self, error: Exception) -> str:
        address = format_address(self._host, self._port)
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            return (
                f"{address} is in use already (`ss -ltnp 'sport = :{self._port}'` says by whom). "
                f"Choose another port in the metrics address, or port 0 for any free one."
            )
        return f"cannot listen on {address}: {error}. Choose an address of this machine and a port you may use."


_Scraper = int
"""A hash of what tells it from others: any user of the machine may ask, by any name."""

_SCRAPER_SECS = 300.0
"""A scraper that has not come for so long comes no more."""
_MOST_SCRAPERS = 100
"""How many of the newest are known."""

_SERVING: WeakSet[MetricsServer] = WeakSet()


def _let_go_in_child() -> None:
    """Close what a forked child (a data loader's worker) has inherited.

    Else its copy keeps the port open when the trainer dies, and scrapes hang instead of failing.
    """
    for server in list(_SERVING):
        listener = server._listener
        server._start_clean()
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.abandon()
    _SERVING.clear()


after_fork_in_child(_let_go_in_child)

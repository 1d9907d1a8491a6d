"""`MetricsPusher`: pushes this process's metrics to an OTLP receiver, for a training whose port cannot be reached.

A push is a snapshot, taken and sent in a thread of its own: none is kept, none is repeated, and training waits for none
but the last, for a while. Values are dated by the receiver's clock: by these dates the alert rules know how old a push
is, and a receiver refuses what is too old, or from the future.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from supervisor_core.base.address import format_address
from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.errors import OptionsError
from supervisor_core.base.install import install_command
from supervisor_core.base.log import error_text
from supervisor_core.run.model.thresholds import PUSH_SECS

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family
    from prometheus_client.registry import Collector

    from supervisor_core.metrics.otlp import OtlpSender

_LOG = logging.getLogger("supervisor_core")

SEND_SECS = 10.0
"""How long a receiver may take to connect, and to answer."""

AGREE_SECS = 5.0
"""By how much two clocks may differ: a receiver's says whole seconds, and an answer takes its time."""

_METRICS_PATH = "/v1/metrics"


def metrics_url(endpoint: str, named: str = "The OTLP endpoint") -> str:
    """Return the URL to which metrics are pushed.

    Args:
        endpoint: of the receiver, as ``OTEL_EXPORTER_OTLP_ENDPOINT``, to which ``/v1/metrics`` is added; or with that.
        named: what the error calls it.

    Raises:
        OptionsError: if it is no HTTP URL; the text does not hold it, for it may have a token.

    Example:
        >>> metrics_url("http://prometheus:9090/api/v1/otlp")
        'http://prometheus:9090/api/v1/otlp/v1/metrics'
    """
    try:
        parts = urlsplit(endpoint.strip())
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or re.search(r"\s", endpoint.strip()):
        raise OptionsError(
            f"{named} is not the URL of an OTLP receiver over HTTP; expected "
            "'https://HOST' or, of Prometheus, 'http://HOST:9090/api/v1/otlp'. Its value is not shown here, since it "
            "may hold a token."
        )
    path = parts.path.rstrip("/")
    return parts._replace(path=path if path.endswith(_METRICS_PATH) else path + _METRICS_PATH, fragment="").geturl()


class MetricsPusher:
    """Pushes what collectors yield, from `start` to `finish`, and once more then.

    Args:
        collectors: called in the pusher's thread.
        endpoint, named: see `metrics_url`.
        instance: tells this training's series from all others': no two sessions have the same.
        interval_secs: seconds from one push to the next.
        clock: dates the pushes.

    Raises:
        OptionsError: if the endpoint is not usable.

    Failures are logged, once until it works again; they are never raised, and never hold anybody up.
    """

    def __init__(
        self,
        collectors: Iterable[Collector],
        endpoint: str,
        *,
        instance: str,
        named: str = "The OTLP endpoint",
        interval_secs: float = PUSH_SECS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._collectors = tuple(collectors)
        self._url = metrics_url(endpoint, named)
        self._instance = instance
        parts = urlsplit(self._url)
        self._receiver = format_address(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
        self._interval_secs = interval_secs
        self._clock = clock
        self._since = clock.wall()
        self._finishing = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._ahead_secs = 0.0
        """By how much the receiver's clock is ahead; 0 if they agree."""
        self._is_taken: bool | None = None
        self._is_over = False

    def start(self) -> bool:
        """Begin to push; return whether that was possible. If not, the log says why."""
        try:
            # Here, for a process that is forked in the middle of an import has a lock that nothing opens.
            from supervisor_core.metrics.otlp import OtlpSender

            thread = threading.Thread(target=self._run, args=(OtlpSender,), name="supervisor-push", daemon=True)
            thread.start()
        except (ImportError, RuntimeError) as error:
            why = install_command("otlp") if isinstance(error, ImportError) else error_text(error)
            _LOG.error("Metrics are not pushed (training continues): %s", why)
            return False
        self._thread = thread
        return True

    def finish(self) -> None:
        """Have the metrics pushed as they are now, and then no more. Does not wait."""
        if os.getpid() == self._pid:  # a forked child may have the event locked
            self._finishing.set()

    def wait(self, timeout_secs: float) -> bool:
        """Wait for the last push; return whether the receiver took it. Says in the log if it did not.

        In a process that was forked from the pusher's there is no push, and nothing to wait for.
        """
        if self._thread is None or os.getpid() != self._pid:
            return False
        self._thread.join(timeout_secs)
        if not self._is_over:
            _LOG.warning("The end of the training could not be pushed to %s: an alert may call it lost", self._receiver)
        return self._is_over

    def _run(self, new_sender: type[OtlpSender]) -> None:
        try:
            sender = new_sender(self._url, self._instance, timeout_secs=SEND_SECS)
        except Exception as error:  # by its type only: its text may hold the URL, or a header
            _LOG.error("Metrics are not pushed (training continues): %s", type(error).__name__)
            return
        self._send(sender, ())  # asks the time: what is dated in the future is in the way of all that follows
        while True:
            is_last = self._finishing.is_set()
            began = self._clock.monotonic()
            why_not = self._send(sender, self._families())
            self._log(why_not)
            if is_last:
                self._is_over = why_not is None
                return
            self._finishing.wait(max(0.0, self._interval_secs - (self._clock.monotonic() - began)))

    def _send(self, sender: OtlpSender, families: Iterable[Family]) -> str | None:
        """Send what is so now; return why the receiver did not take it, None if it did."""
        ahead_secs = self._ahead_secs
        why = sender.send(families, at=self._clock.wall() + ahead_secs, since=self._since + ahead_secs)
        if (time := sender.receiver_time) is not None:
            ahead_secs = time - self._clock.wall()
            self._ahead_secs = ahead_secs if abs(ahead_secs) > AGREE_SECS else 0.0
        return why

    def _families(self) -> Iterable[Family]:
        for collector in self._collectors:
            yield from collector.collect()

    def _log(self, why: str | None) -> None:
        was, self._is_taken = self._is_taken, why is None
        if why is not None and was is not False:
            _LOG.error("Metrics cannot be pushed to %s (training continues): %s", self._receiver, why)
        elif why is None and not was:
            again = "again " if was is False else ""
            _LOG.info("Metrics are pushed %sto %s, every %g s", again, self._receiver, self._interval_secs)

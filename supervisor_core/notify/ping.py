"""`Ping`: requests a URL while the watcher sees: its server gives the alarm when the requests cease."""

from __future__ import annotations

import logging
import math
import threading

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.notify.apprise_process import SendProblem, problem_of
from supervisor_core.notify.secret import Secret

PING_SECS = 60.0
"""How often, at most."""
ANSWER_SECS = 10.0
"""How long the server may be silent."""

_LOG = logging.getLogger("supervisor_core")


class Ping:
    """Requests a URL in a thread of its own, after looks that have seen everything.

    Args:
        url: of a dead man's switch.
        clock: replaced in tests.

    Raises:
        ValueError: if it is no address of a web server; the text holds nothing of it.
    """

    def __init__(self, url: Secret, clock: Clock = SYSTEM_CLOCK) -> None:
        check_ping_url(url)
        self._url, self._clock = url, clock
        self._last = -math.inf
        self._is_failing = False
        self._seen = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="supervisor-ping", daemon=True)
        self._thread.start()

    def seen(self) -> None:
        """Say that a look has seen everything. It never waits."""
        now = self._clock.monotonic()
        if now - self._last >= PING_SECS:
            self._last = now
            self._seen.set()

    def close(self) -> None:
        """End: no request is made from now on."""
        self._is_closed = True
        self._seen.set()

    def _serve(self) -> None:
        while True:
            self._seen.wait()
            if self._is_closed:
                return
            self._seen.clear()
            problem = _request(self._url)
            if problem is not None and not self._is_failing:
                _LOG.warning("the ping URL cannot be reached: %s; tried again every minute", problem)
            elif problem is None and self._is_failing:
                _LOG.info("the ping URL is reached again")
            self._is_failing = problem is not None


def check_ping_url(url: Secret) -> None:
    """Check that a URL is one of a web server.

    Raises:
        ValueError: if it is not; the text holds nothing of it.
    """
    scheme, _, rest = url.reveal().partition("://")
    if scheme.lower() not in ("http", "https") or not rest:
        raise ValueError("the ping URL is none of a web server, as https://HOST/ID")


def _request(url: Secret) -> SendProblem | None:
    """Request a URL; return why that was not possible. No body of an answer is read, which may be endless."""
    import urllib.error  # here, since they take as long as all of this package, and few watchers ping
    import urllib.request

    class Stays(urllib.request.HTTPRedirectHandler):
        """Follows no redirect: urllib reads its body, and goes to FTP."""

        def redirect_request(self, *_: object) -> None:
            return None

    opener = urllib.request.build_opener(Stays)
    request = urllib.request.Request(url.reveal(), headers={"User-Agent": "tb-supervisor"})
    try:
        with opener.open(request, timeout=ANSWER_SECS):
            return None
    except urllib.error.HTTPError as error:
        error.close()
        return SendProblem("status", error.code)
    except Exception as error:  # nothing that a server answers ends the thread; the texts may hold the URL
        return problem_of(error) or SendProblem("unusable" if isinstance(error, ValueError) else "connection")

"""`Web`: the exporter's pages over HTTP or HTTPS.

    <telemetry path>   the metrics, text 0.0.4 or OpenMetrics 1.0, as the client asks; gzip if it accepts that
    /-/healthy         200 as long as the process can answer
    /-/ready           200 once the runs have been looked at, else 503
    /alerts            which runs need somebody; what each alert means, and what to do: where an alert's runbook_url
                       leads by default
    /                  a page that links to these

Every one of them asks for a password where the web configuration names users. None is answered to a page of another
site that calls this server by a name of its own.
"""

from __future__ import annotations

import html
from collections.abc import Collection

from supervisor_core.base.address import parse_address
from supervisor_core.metrics.alerts_page import alerts_headers, alerts_page
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.listener import (
    Environ,
    Listener,
    Response,
    landing_page,
    page_of,
    path_of,
    text_response,
)
from supervisor_core.metrics.render import choose_format, gzip_accepted
from supervisor_core.metrics.web_config import RETRY_SECS, TooManyWaitError, WebAccess

_NO_PASSWORD = "a user and a password are needed"
_ABOUT = "<p>Metrics of the runs below some logdirs, from their events files.</p>\n"
_LINKS = (
    '<a href="/alerts">alerts</a>: which runs need somebody; the meaning of each alert, and what to do',
    '<a href="/-/healthy">healthy</a>: does this process answer?',
    '<a href="/-/ready">ready</a>: have all runs been read?',
)
_TOO_MANY = "too many passwords are being checked; try again later"
_CHALLENGE = 'Basic realm="supervisor exporter", charset="UTF-8"'


class Web(Listener):
    """Listens from construction, answers from `start` to `close`.

    Args:
        exporter: what is served.
        address: ``"host:port"``, ``":port"`` (127.0.0.1) or ``"[::1]:port"``; port 0 picks a free one.
        telemetry_path: where the metrics are; begins with a slash.
        access: who may ask, and over what.
        client_timeout_secs: how long a client may take to send a request before it is hung up on.
        hosts: the host names by which it may be asked, besides IP addresses and localhost. Default: none where it
            listens on a loopback address, any name elsewhere.

    Raises:
        OptionsError: if the address cannot be read.
        OSError: if it cannot be listened on.
    """

    def __init__(
        self,
        exporter: Exporter,
        address: str,
        *,
        telemetry_path: str = "/metrics",
        access: WebAccess | None = None,
        client_timeout_secs: float = 10.0,
        hosts: Collection[str] = (),
    ) -> None:
        self._exporter = exporter
        self._access = access or WebAccess(None)
        self._path = telemetry_path
        metrics = f'<a href="{html.escape(telemetry_path)}">metrics</a>: for Prometheus'
        self._front = landing_page("Supervisor exporter", metrics, *_LINKS, about=_ABOUT)
        host, port = parse_address(address)
        super().__init__(
            host,
            port,
            self._respond,
            ssl_context=lambda: self._access.rules().context,
            client_timeout_secs=client_timeout_secs,
            hosts=hosts,
            host_remedy="start the exporter with --web.allowed-host=NAME",
        )

    @property
    def url(self) -> str:
        """The URL to scrape."""
        return f"http{'s' if self._access.tls else ''}://{self.address}{self._path}"

    def __enter__(self) -> Web:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _respond(self, environ: Environ) -> Response:
        try:
            is_admitted = self._access.rules().auth.admits(environ.get("HTTP_AUTHORIZATION"))
        except TooManyWaitError:
            return text_response(503, _TOO_MANY, Retry_After=str(RETRY_SECS))
        return self._page(environ) if is_admitted else text_response(401, _NO_PASSWORD, WWW_Authenticate=_CHALLENGE)

    def _page(self, environ: Environ) -> Response:
        path, format = path_of(environ), choose_format(environ.get("HTTP_ACCEPT", ""))
        if path == self._path:
            gzip = bool(gzip_accepted(environ.get("HTTP_ACCEPT_ENCODING", "")))
            return Response(
                status=200,
                body=self._exporter.scrape(format, gzip=gzip),
                content_type=format.content_type,
                headers={"Content-Encoding": "gzip"} if gzip else {},
            )
        if path == "/alerts":
            return Response(
                status=200,
                body=alerts_page(self._exporter.findings()).encode(),
                content_type="text/html; charset=utf-8",
                headers=alerts_headers(),
            )
        return page_of(path, self._front, self._not_ready, self._path)

    def _not_ready(self) -> str | None:
        if self._exporter.ready:
            return None
        if self._exporter.unreachable:
            return f"not there, or cannot be listed: {', '.join(self._exporter.unreachable)}"
        return "the runs are being looked at for the first time"

"""`Web`: the exporter's pages over HTTP or HTTPS.

    <telemetry path>   the metrics, text 0.0.4 or OpenMetrics 1.0, as the client asks; gzip if it accepts that
    /-/healthy         200 as long as the process can answer
    /-/ready           200 once the runs have been looked at, else 503
    /alerts            what each alert means, and what to do: where an alert's runbook_url leads by default
    /                  a page that links to these

Every one of them asks for a password where the web configuration names users. None is answered to a page of another
site that calls this server by a name of its own.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Collection
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import pairwise

from supervisor_core.address import parse_address
from supervisor_core.metrics.access import RETRY_SECS, TooManyWaitError, WebAccess
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.listener import (
    SECURITY_HEADERS,
    Listener,
    Request,
    Response,
    landing_page,
    page_of,
    text_response,
)
from supervisor_core.metrics.render import choose_format, gzip_accepted

_NO_PASSWORD = "a user and a password are needed"
_ABOUT = "<p>Metrics of the runs below some logdirs, from their events files.</p>\n"
_LINKS = (
    '<a href="/alerts">alerts</a>: the meaning of each, and what to do',
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

    def _respond(self, request: Request) -> Response:
        rules, header = self._access.rules(), request.header("Authorization")
        try:
            admitted = rules.auth.admits(header, client=request.client, is_gone=request.is_gone)
        except TooManyWaitError:
            response = text_response(503, _TOO_MANY, Retry_After=str(RETRY_SECS))
        else:
            refused = text_response(401, _NO_PASSWORD, WWW_Authenticate=_CHALLENGE)
            response = self._page(request) if admitted else refused
        return replace(response, headers={**response.headers, **rules.headers})

    def _page(self, request: Request) -> Response:
        if request.path == self._path:
            return self._metrics(request)
        if request.path == "/alerts":
            return Response(
                status=200,
                body=runbook_page().encode(),
                content_type="text/html; charset=utf-8",
                headers=runbook_headers(),
            )
        return page_of(request, self._front, self._not_ready, self._path)

    def _not_ready(self) -> str | None:
        if self._exporter.ready:
            return None
        if self._exporter.unreachable:
            return f"not there, or cannot be listed: {', '.join(self._exporter.unreachable)}"
        return "the runs are being looked at for the first time"

    def _metrics(self, request: Request) -> Response:
        format = choose_format(request.header("Accept") or "")
        gzip = bool(gzip_accepted(request.header("Accept-Encoding") or ""))
        return Response(
            status=200,
            body=self._exporter.scrape(format, gzip=gzip),
            content_type=format.content_type,
            encoding="gzip" if gzip else None,
        )


_POLICY = "Content-Security-Policy"
_STYLE = """
:root { color-scheme: light dark }
body { max-width: 50em; margin: auto; padding: 1em; font: 1em/1.5 system-ui, sans-serif }
table { display: block; overflow-x: auto; border-collapse: collapse }
td, th { padding: .3em .6em; border: 1px solid; text-align: left; vertical-align: top }
pre { overflow-x: auto; padding: .6em; border: 1px solid }
h2 { margin-top: 2.5em }
:target { border-left: .4em solid; padding-left: .4em }
"""
_HEAD = f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Alerts</title>
<style>{_STYLE}</style></head>
<body>
"""
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)


@cache
def runbook_page() -> str:
    """Return docs/alerts.md, which is part of the distribution, as HTML with an anchor for each alert.

    Links to its own headings work; of another page of the documentation there is the file's name, since nothing serves
    it.
    """
    from markdown_it import MarkdownIt  # takes a while, and is for this page only

    text = files("supervisor_core.metrics").joinpath("alerts.md").read_text(encoding="utf-8")
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(_COMMENT.sub("", text))
    for opening, content in pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", _anchor(content.content))
        if content.type == "inline" and content.children:
            leads_away = False
            for token in content.children:
                if token.type == "link_open":
                    href = str(token.attrGet("href"))
                    leads_away = not href.startswith("#")
                    if leads_away:
                        token.hidden, token.type, token.tag = True, "text", ""
                        name = href.partition("#")[0]
                elif token.type == "link_close" and leads_away:
                    token.type, token.tag, token.content = "text", "", f" (docs/{name})"
    return f"{_HEAD}{parser.renderer.render(tokens, parser.options, {})}</body>\n</html>\n"


def runbook_headers() -> dict[str, str]:
    """Return the headers of `runbook_page`: a browser may use its style, and nothing else."""
    return {_POLICY: f"{SECURITY_HEADERS[_POLICY]}; style-src '{_digest(_STYLE)}'"}


def _digest(text: str) -> str:
    """Return a text's digest, as a policy names an element that is allowed."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _anchor(title: str) -> str:
    """Return a heading's anchor, as code hosts make it from the title."""
    return re.sub(r"[^\w-]", "", title.lower().replace(" ", "-"))

"""The HTTP server of trainings and of the exporter: the standard library's, with bounds for clients.

``wsgiref`` gives each connection a thread and one answer (HTTP/1.0). Added here: the TLS handshake takes place in that
thread, so an idle client delays nobody; a request and its answer have a deadline, however slowly bytes come; a request
has a largest size; of too many connections the oldest is cut; a forked child lets go of the sockets.
"""

from __future__ import annotations

import contextlib
import io
import ipaddress
import logging
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer

from supervisor_core.base.address import format_address
from supervisor_core.base.log import printable

_LOG = logging.getLogger("supervisor_core")

MAX_CONNECTIONS = 64
"""How many clients may be connected at a time; one more, and the oldest connection is cut."""

MAX_HEAD_BYTES = 32 << 10
"""How long a request may be, from its first line to its last header."""

ANSWER_SECS = 60.0
"""How long a client may take to receive an answer."""

SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""What a browser may do with an answer, unless the answer has such a header of its own: show it, and nothing else."""

Environ = dict[str, Any]
"""A request, as WSGI describes it."""

_HOST = re.compile(r"(?:\[(?P<ipv6>[^\[\]]*)\]|(?P<name>[^\[\]:]*))(?::[0-9]*)?")
_CLOSE_SECS = 1.0
_POLL_SECS = 0.25
_LANDING_PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title></head>
<body>
<h1>{title}</h1>
{about}<ul>
{items}</ul>
</body>
</html>
"""
_SHOWN = 100
"""Characters of a host name that an answer repeats."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """What to answer."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers."""
    sent: Callable[[], None] = lambda: None
    """Called when the whole answer to a GET has been handed to the network."""


def path_of(environ: Environ) -> str:
    """Return the path of a request, unquoted."""
    path: str = environ["PATH_INFO"]
    return path.encode("latin-1").decode("utf-8", "replace")


def text_response(status: int, line: str, **headers: str) -> Response:
    """Return an answer of one line; headers with underscores for dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status=status, body=f"{printable(line)}\n".encode(), headers=named)


def landing_page(title: str, *items: str, about: str = "") -> Response:
    """Return the page that links to the others; all arguments are HTML."""
    page = _LANDING_PAGE.format(title=title, about=about, items="".join(f"<li>{item}</li>\n" for item in items))
    return Response(status=200, body=page.encode(), content_type="text/html; charset=utf-8")


def page_of(path: str, front: Response, not_ready: Callable[[], str | None], metrics_path: str) -> Response:
    """Return the pages that every server of metrics has, besides the metrics.

    Args:
        path: of the request.
        front: the page that links to the others.
        not_ready: returns why the server is not ready, None if it is.
        metrics_path: where the metrics are.
    """
    if path == "/-/healthy":
        return text_response(200, "healthy")
    if path == "/-/ready":
        reason = not_ready()
        return text_response(200, "ready") if reason is None else text_response(503, f"not ready: {reason}")
    if path == "/":
        return front
    return text_response(404, f"nothing here; see {metrics_path}, /-/healthy and /-/ready")


class Listener(ThreadingMixIn, WSGIServer):
    """Listens from construction, answers from `start` to `close`.

    Args:
        host: A name or an address, IPv4 or IPv6; the first address that it resolves to is listened on.
        port: 0 picks a free one.
        respond: Answers a GET or HEAD request; called from many threads at once.
        ssl_context: Called for each connection; returns its TLS context, None for plain HTTP. If it raises, that
            connection is closed.
        client_timeout_secs: How long a client may take to send a request.
        hosts: Further host names by which it may be asked, besides IP addresses and localhost. Default: none if it
            listens on a loopback address, any name elsewhere.
        host_remedy: What to do to have another name accepted: half a sentence.

    Raises:
        OSError: if the address cannot be listened on.
    """

    allow_reuse_address = True
    allow_reuse_port = False  # Python 3.14's would share a port that is in use
    request_queue_size = 128
    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        host: str,
        port: int,
        respond: Callable[[Environ], Response],
        *,
        ssl_context: Callable[[], ssl.SSLContext | None],
        client_timeout_secs: float,
        hosts: Collection[str] = (),
        host_remedy: str = "listen on an address of the network",
    ) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, _, _, _, where = found[0]
        self._respond_to = respond
        self._ssl_context = ssl_context
        self._client_timeout_secs = client_timeout_secs
        self._deadlines: dict[socket.socket, float] = {}  # by connection, the oldest first
        self._answering: set[socket.socket] = set()
        self._connections_changed = threading.Condition()  # guards these two
        self._acceptor = threading.Thread(
            target=self.serve_forever, args=(_POLL_SECS,), name="supervisor-metrics", daemon=True
        )
        super().__init__(where, _Handler)  # type: ignore[arg-type]  # an IPv6 address has four parts
        self.set_app(self._answer)
        self.address = format_address(*self.socket.getsockname()[:2])
        """``host:port`` as bound, with the port that was picked."""
        is_private = ipaddress.ip_address(self.socket.getsockname()[0]).is_loopback
        self._hosts = frozenset(map(str.lower, hosts)) if hosts or is_private else None
        self._host_remedy = host_remedy
        self._has_logged_host = False

    def server_bind(self) -> None:
        """Bind (called by the base class), without the look-up of the host's name, which may wait for DNS."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.socket.getsockname()[:2]
        self.setup_environ()

    def start(self) -> None:
        """Begin to answer, in a daemon thread."""
        self._acceptor.start()

    def close(self) -> None:
        """Free the port and hang up; answers being written have a second to end. Needs `start` before it."""
        # Also wakes the accepting thread, and frees the port even if another process has inherited the socket.
        _shut(self.socket, socket.SHUT_RDWR)
        self.shutdown()
        self.server_close()
        self._acceptor.join()
        with self._connections_changed:
            for connection in self._deadlines:
                _shut(connection, socket.SHUT_RD)  # clients that were to send a request see the end; answers go on
            self._connections_changed.wait_for(lambda: not self._deadlines, _CLOSE_SECS)
            for connection in self._deadlines:
                _shut(connection, socket.SHUT_RDWR)

    def abandon(self) -> None:
        """Let go of the sockets in a forked child, where none of the threads exist: the parent's stay as they are."""
        for held in (self.socket, *self._deadlines):
            with contextlib.suppress(OSError):
                os.close(held.detach())

    def get_request(self) -> tuple[Any, Any]:
        """Accept a client, without a word exchanged (called by the base class)."""
        connection, client = super().get_request()
        try:
            if (context := self._ssl_context()) is not None:
                connection = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        except Exception as error:  # whatever it is, only this client is lost: the base class passes over OSError
            connection.close()
            raise ConnectionAbortedError(str(error)) from error
        return connection, client

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the client a thread; if there are too many, cut the oldest, one that is being answered last of all."""
        with self._connections_changed:
            if len(self._deadlines) >= MAX_CONNECTIONS:
                idle = (connection for connection in self._deadlines if connection not in self._answering)
                oldest = next(idle, None) or next(iter(self._deadlines))
                del self._deadlines[oldest]
                _shut(oldest, socket.SHUT_RDWR)
            self._deadlines[request] = time.monotonic() + self._client_timeout_secs
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Hang up on clients that are too slow (called by the base class, a few times a second)."""
        now = time.monotonic()
        with self._connections_changed:
            for connection, deadline in self._deadlines.items():
                if now >= deadline:
                    _shut(connection, socket.SHUT_RDWR)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer the client, in its own thread (called by the base class)."""
        if isinstance(request, ssl.SSLSocket):
            request.do_handshake()
        super().finish_request(request, client_address)

    def has_asked(self, connection: Any) -> None:
        """Give a connection whose request has come the time for an answer."""
        with self._connections_changed:
            if connection in self._deadlines:
                self._answering.add(connection)
                self._deadlines[connection] = time.monotonic() + ANSWER_SECS

    def close_request(self, request: Any) -> None:
        """Forget the client (called by the base class, whatever happened)."""
        with self._connections_changed:
            self._deadlines.pop(request, None)
            self._answering.discard(request)
            super().close_request(request)
            self._connections_changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what went wrong with one client; clients that vanish or speak no TLS are not our concern."""
        _LOG.debug("Metrics: the connection of %s failed", client_address, exc_info=True)

    def _answer(self, environ: Environ, start_response: Callable[..., Any]) -> Iterator[bytes]:
        """Answer a request, as WSGI calls it."""
        method = environ["REQUEST_METHOD"]
        refusal = self._refusal(environ.get("HTTP_HOST", ""))
        if refusal is not None:
            response = text_response(421, refusal)
        elif method not in ("GET", "HEAD"):
            response = text_response(405, f"{method} is not allowed here; use GET or HEAD.", Allow="GET, HEAD")
        else:
            response = self._respond_to(environ)
        own = {"Content-Type": response.content_type, "Content-Length": str(len(response.body)), **response.headers}
        status = HTTPStatus(response.status)
        start_response(f"{status.value} {status.phrase}", list({**SECURITY_HEADERS, **own}.items()))
        yield b"" if method == "HEAD" else response.body
        if method == "GET":
            response.sent()

    def _refusal(self, hosts: str) -> str | None:
        """Return why a request with these ``Host`` headers is refused; None if it is not.

        A page in a browser may ask any address by a name of its own, and read the answer (DNS rebinding); not by an
        address.
        """
        strange = () if self._hosts is None else [each for each in hosts.split(",") if not _is_known(each, self._hosts)]
        if not strange:
            return None
        name = printable(strange[0])[:_SHOWN]
        text = f"The host name {name} is not allowed. Use an IP address or localhost, or {self._host_remedy}."
        if not self._has_logged_host:
            self._has_logged_host = True
            _LOG.warning("Metrics: requests are refused: %s", text)
        return text


def _shut(connection: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):  # the peer may have gone first
        # Not the method of SSLSocket, which would pull its state from under the thread that reads it.
        socket.socket.shutdown(connection, how)


def _is_known(host: str, allowed: Collection[str]) -> bool:
    """Whether a ``Host`` header has no name, an address, localhost, or one of these names."""
    match = _HOST.fullmatch(host.strip())
    if match is None:
        return False
    name = (match["ipv6"] or match["name"] or "").lower().removesuffix(".")
    if name in ("", "localhost") or name.endswith(".localhost") or name in allowed:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class _HeadTooLongError(Exception):
    pass


class _Head(io.RawIOBase):
    """The bytes of a request, at most `MAX_HEAD_BYTES`."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._left = stream, MAX_HEAD_BYTES

    def readable(self) -> bool:
        return True

    def readline(self, size: int | None = -1) -> bytes:
        line: bytes = self._stream.readline(self._left + 1)
        self._left -= len(line)
        if self._left < 0:
            raise _HeadTooLongError
        return line

    def close(self) -> None:
        """Close the stream, too: the connection stays open as long as that is."""
        self._stream.close()
        super().close()


class _Answering(ServerHandler):
    server_software = "supervisor-metrics"

    def log_exception(self, exc_info: Any) -> None:
        _LOG.debug("Metrics: a request failed", exc_info=exc_info)


class _Handler(WSGIRequestHandler):
    server: Listener
    server_version = "supervisor-metrics"
    sys_version = ""
    default_request_version = "HTTP/1.0"
    """What a line that is no request is answered in: 0.9, the base class's, has no status line."""

    def handle(self) -> None:
        """Read one request and answer it (called by the base class)."""
        self.rfile = _Head(self.rfile)  # type: ignore[assignment]
        self.requestline, self.command = "", ""
        try:
            self.raw_requestline = self.rfile.readline()
            if not self.raw_requestline or not self.parse_request():
                return
        except _HeadTooLongError:
            self.request_version = "HTTP/1.0"
            self.send_error(431, f"The request is longer than {MAX_HEAD_BYTES:,} bytes")
            return
        self.server.has_asked(self.connection)
        environ = self.get_environ()
        handler = _Answering(io.BytesIO(), self.wfile, io.StringIO(), environ)  # type: ignore[arg-type]
        handler.request_handler = self  # type: ignore[attr-defined]  # it logs by this
        application = self.server.get_app()
        assert application is not None
        handler.run(application)

    def end_headers(self) -> None:
        """Add the headers of every answer to the errors of the base class."""
        for name, value in SECURITY_HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        _LOG.debug("Metrics: %s: %s", self.address_string(), format % args)

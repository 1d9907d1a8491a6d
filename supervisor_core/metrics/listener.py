"""A small HTTP server that no client can hold up: sockets, threads, TLS and forks, and nothing about metrics.

One thread accepts, one thread per connection answers GET and HEAD, one after the other (HTTP/1.1; a connection is kept
open between two scrapes). The accepting thread does no I/O with a client, not even the TLS handshake, so a client that
connects and says nothing costs one waiting thread until it times out. A request has one deadline, however slowly its
bytes come, and so has its answer; the bytes of a request are bounded. When too many clients are connected, the one that
has waited longest is hung up on, and who is being answered only where all are.
"""

from __future__ import annotations

import contextlib
import io
import ipaddress
import logging
import os
import re
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from supervisor_core.address import format_address
from supervisor_core.log import printable

_LOG = logging.getLogger("supervisor_core")

MAX_CONNECTIONS = 64
"""How many clients may be connected at a time; one more, and the oldest connection is cut."""

KEEP_SECS = 120.0
"""How long a connection is kept after an answer: scrapes that are not further apart need no new one."""

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

_HOST = re.compile(r"(?:\[(?P<ipv6>[^\[\]]*)\]|(?P<name>[^\[\]:]*))(?::[0-9]*)?")
_CLOSE_SECS = 1.0
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
_GONE = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the answer depends on; header names are looked up without regard to case, absent ones are None."""

    path: str
    header: Callable[[str], str | None]
    client: str = ""
    """The client's address, without its port."""
    is_gone: Callable[[], bool] = lambda: False
    """Whether the client has hung up."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """What to answer."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    encoding: str | None = None
    """The body's ``Content-Encoding``."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers."""
    sent: Callable[[], None] | None = None
    """Called when the whole answer to a GET has been handed to the network."""


def text_response(status: int, line: str, **headers: str) -> Response:
    """Return an answer of one line; headers with underscores for dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status=status, body=f"{printable(line)}\n".encode(), headers=named)


def landing_page(title: str, *items: str, about: str = "") -> Response:
    """Return the page that links to the others; all of it is HTML."""
    page = _LANDING_PAGE.format(title=title, about=about, items="".join(f"<li>{item}</li>\n" for item in items))
    return Response(status=200, body=page.encode(), content_type="text/html; charset=utf-8")


def page_of(request: Request, front: Response, not_ready: Callable[[], str | None], metrics_path: str) -> Response:
    """Return the page that a path leads to, other than the metrics: as each server of metrics has it.

    Args:
        request: what is asked.
        front: the page that links to the others.
        not_ready: returns why the server is not ready; None where it is.
        metrics_path: where the metrics are.
    """
    if request.path == "/-/healthy":
        return text_response(200, "healthy")
    if request.path == "/-/ready":
        reason = not_ready()
        return text_response(200, "ready") if reason is None else text_response(503, f"not ready: {reason}")
    if request.path == "/":
        return front
    return text_response(404, f"nothing here; see {metrics_path}, /-/healthy and /-/ready")


class Listener(ThreadingMixIn, TCPServer):
    """Listens from construction, answers from `start` to `close`.

    Args:
        host: A name or an address, IPv4 or IPv6; the first address that it resolves to is listened on.
        port: 0 picks a free one.
        respond: Answers a request; called from many threads at once.
        ssl_context: Called for each connection, returns what speaks TLS with it, None for none; where it raises, that
            connection is closed.
        client_timeout_secs: How long a client may take to send a request.
        hosts: Further host names by which it may be asked, besides IP addresses and localhost. Default: none where it
            listens on a loopback address, any name elsewhere.
        host_remedy: What to do to have another name accepted: half a sentence.

    Raises:
        OSError: if the address cannot be listened on.
    """

    # TCPServer rather than HTTPServer, which looks up the host's name (and may wait for DNS) and, from Python 3.14 on,
    # shares a port that is in use.
    allow_reuse_address = True
    allow_reuse_port = False
    request_queue_size = 128
    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        host: str,
        port: int,
        respond: Callable[[Request], Response],
        *,
        ssl_context: Callable[[], ssl.SSLContext | None],
        client_timeout_secs: float,
        hosts: Collection[str] = (),
        host_remedy: str = "listen on an address of the network",
    ) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, _, _, _, where = found[0]
        self.respond = respond
        self._ssl_context = ssl_context
        self.client_timeout_secs = client_timeout_secs
        self._connections: dict[socket.socket, bool] = {}  # in the order in which they asked; whether being answered
        self._connections_changed = threading.Condition()
        self._acceptor = threading.Thread(target=self.serve_forever, name="supervisor-metrics", daemon=True)
        super().__init__(where, _Handler)  # type: ignore[arg-type]  # an IPv6 address has four parts
        self.address = format_address(*self.socket.getsockname()[:2])
        """``host:port`` as bound, with the port that was picked."""
        is_private = ipaddress.ip_address(self.socket.getsockname()[0]).is_loopback
        self._hosts = frozenset(map(str.lower, hosts)) if hosts or is_private else None
        self._host_remedy = host_remedy
        self._has_logged_host = False

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
            for connection in self._connections:
                _shut(connection, socket.SHUT_RD)  # those who wait for a request see its end; answers go on
            self._connections_changed.wait_for(lambda: not self._connections, _CLOSE_SECS)
            for connection in self._connections:
                _shut(connection, socket.SHUT_RDWR)

    def abandon(self) -> None:
        """Let go of the sockets in a forked child, where none of the threads exist: the parent's stay as they are."""
        for held in (self.socket, *self._connections):
            with contextlib.suppress(OSError):
                os.close(held.detach())

    def refusal(self, hosts: Sequence[str]) -> str | None:
        """Return why a request with these ``Host`` headers is refused; None where it is not.

        A page in a browser may ask any address by a name of its own, and read the answer (DNS rebinding); not by an
        address.
        """
        if self._hosts is None:
            return None
        strange = [host for host in hosts if not _is_known(host, self._hosts)]
        if not strange:
            return None
        name = printable(strange[0])[:_SHOWN]
        text = f"The host name {name} is not allowed. Use an IP address or localhost, or {self._host_remedy}."
        if not self._has_logged_host:
            self._has_logged_host = True
            _LOG.warning("Metrics: requests are refused: %s", text)
        return text

    def get_request(self) -> tuple[Any, Any]:
        """Accept a client, without a word exchanged (called by the base class)."""
        connection, client = super().get_request()
        connection.settimeout(self.client_timeout_secs)
        try:
            if (context := self._ssl_context()) is not None:
                connection = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        except Exception as error:  # whatever it is, only this client is lost: the base class passes over OSError
            connection.close()
            raise ConnectionAbortedError(str(error)) from error
        return connection, client

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the client a thread, at the cost of the one that has waited longest if there are too many."""
        with self._connections_changed:
            if len(self._connections) >= MAX_CONNECTIONS:
                idle = (connection for connection, answered in self._connections.items() if not answered)
                oldest = next(idle, None) or next(iter(self._connections))
                del self._connections[oldest]
                _shut(oldest, socket.SHUT_RDWR)
            self._connections[request] = False
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer the client, in its own thread (called by the base class)."""
        if isinstance(request, ssl.SSLSocket):
            request.do_handshake()
        super().finish_request(request, client_address)

    def close_request(self, request: Any) -> None:
        """Forget the client (called by the base class, whatever happened)."""
        with self._connections_changed:
            self._connections.pop(request, None)
            super().close_request(request)
            self._connections_changed.notify_all()

    def asked(self, connection: Any, *, answered: bool) -> None:
        """Count a connection as the youngest, which has just asked or been answered (called by its thread)."""
        with self._connections_changed:
            if connection in self._connections:
                del self._connections[connection]
                self._connections[connection] = answered

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what went wrong with one client; clients that vanish or speak no TLS are none of our business."""
        _LOG.debug("Metrics: the connection of %s failed", client_address, exc_info=True)


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


class _Stream(io.RawIOBase):
    """A connection's bytes, each way until a deadline, and in no more than a number of bytes for a request."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline = 0.0
        self._left = 0

    def allow(self, secs: float, head_bytes: int = 0) -> None:
        """From now on, allow this much time, and this many bytes to be received."""
        self._deadline = time.monotonic() + secs
        self._left = head_bytes

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._left <= 0:
            raise _HeadTooLongError
        self._wait_for_deadline()
        received = self._connection.recv_into(buffer, min(len(buffer), self._left))
        self._left -= received
        return received

    def write(self, data: Any) -> int:
        self._wait_for_deadline()
        return self._connection.send(data)

    def _wait_for_deadline(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)


class _Handler(BaseHTTPRequestHandler):
    server: Listener
    server_version = "supervisor-metrics"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    answered = False

    def setup(self) -> None:
        """Read and write through a `_Stream` (called by the base class)."""
        self.connection = self.request
        self._stream = _Stream(self.connection)
        self.rfile = io.BufferedReader(self._stream)
        self.wfile = io.BufferedWriter(self._stream)  # header and body in one packet

    def handle_one_request(self) -> None:
        """Wait for a request, between two of them for longer than for the first, and answer it."""
        try:
            if self.answered:
                self._stream.allow(KEEP_SECS, MAX_HEAD_BYTES)
                if not self.rfile.peek(1):  # type: ignore[attr-defined]  # it is a BufferedReader
                    self.close_connection = True
                    return
            self._stream.allow(self.server.client_timeout_secs, MAX_HEAD_BYTES)
            super().handle_one_request()
        except _HeadTooLongError:
            self.requestline, self.request_version, self.command = "", "HTTP/1.1", ""
            self._stream.allow(ANSWER_SECS)
            self.send_error(431, f"The request is longer than {MAX_HEAD_BYTES:,} bytes")
            self.wfile.flush()
        except OSError:  # silent for too long, or gone
            self.close_connection = True
        self.answered = True

    _own_headers: Mapping[str, str] = {}

    def end_headers(self) -> None:
        """Add the headers of the answer, and those of every answer (called by the base class for its errors)."""
        for name, value in {**SECURITY_HEADERS, **self._own_headers}.items():
            self.send_header(name, value)
        self._own_headers = {}
        super().end_headers()

    def do_GET(self) -> None:
        self._answer(self._response(), body=True)

    def do_HEAD(self) -> None:
        self._answer(self._response(), body=False)

    def _refuse(self) -> None:
        self._answer(text_response(405, f"{self.command} is not allowed here; use GET or HEAD."), body=True)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refuse  # noqa: N815

    def _response(self) -> Response:
        self.server.asked(self.connection, answered=True)
        refusal = self.server.refusal(self.headers.get_all("Host", []))
        if refusal is not None:
            return text_response(421, refusal)
        return self.server.respond(
            Request(
                path=self.path.partition("?")[0],
                header=self.headers.get,
                client=str(self.client_address[0]),
                is_gone=self._is_gone,
            )
        )

    def _is_gone(self) -> bool:
        poll = select.poll()
        try:
            poll.register(self.connection, _GONE)
        except ValueError:  # closed
            return True
        return bool(poll.poll(0))

    def _answer(self, response: Response, *, body: bool) -> None:
        self._stream.allow(ANSWER_SECS)
        self.send_response(response.status)
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # the request's body is not read, so the start of the next one is unknown
        if self.close_connection:
            self.send_header("Connection", "close")
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        if response.encoding is not None:
            self.send_header("Content-Encoding", response.encoding)
        if response.status == 405:
            self.send_header("Allow", "GET, HEAD")
        self._own_headers = response.headers
        self.end_headers()
        if body:
            self.wfile.write(response.body)
        self.wfile.flush()
        self.server.asked(self.connection, answered=False)
        if body and response.sent is not None:
            response.sent()

    def log_message(self, format: str, *args: Any) -> None:
        _LOG.debug("Metrics: %s: %s", self.address_string(), format % args)

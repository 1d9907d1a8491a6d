"""What messages are sent to in tests: a web server, and one for mail, each on a port of its own."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_string
from email.message import Message
from email.policy import default as policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WAIT_SECS = 60.0
"""How long a test waits for what must come."""


@dataclass
class Received:
    """What a server got, and how it answers."""

    port: int = 0
    status: int = 200
    """What a web server answers."""
    location: str | None = None
    echo: bool = False
    """Whether a web server repeats the request's address, in the reason of its status, a header and the body."""
    items: list[Any] = field(default_factory=list)
    """Bodies of web requests as JSON, or mails."""
    paths: list[str] = field(default_factory=list)
    """Of all web requests, with their methods."""
    times: list[float] = field(default_factory=list)
    """Wall times at which they came."""
    answers: threading.Event = field(default_factory=threading.Event)
    """While it is not set, a web server does not answer."""
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def add(self, path: str, item: Any) -> None:
        """A request came."""
        with self._changed:
            self.times.append(time.time())
            self.paths.append(path)
            self.items.append(item)
            self._changed.notify_all()

    def wait(self, count: int) -> list[Any]:
        """Wait until that many have come, and return all."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.items) >= count, WAIT_SECS), self.items
            return list(self.items)

    def wait_for(self, text: str) -> None:
        """Wait until a request's method and path, or its body, has a text."""
        with self._changed:
            assert self._changed.wait_for(lambda: text in f"{self.paths}{self.items}", WAIT_SECS), self.items

    def url(self, token: str = "") -> str:
        """Return the web server's address for Apprise."""
        return f"json://127.0.0.1:{self.port}/{token}"

    @property
    def titles(self) -> list[str]:
        """Of the messages that have come."""
        return [item["title"] for item in self.items]


@contextmanager
def web_receiver() -> Iterator[Received]:
    """A web server, which takes what Apprise sends to ``json://`` and requests of a dead man's switch."""
    received = Received()
    received.answers.set()

    class Handler(BaseHTTPRequestHandler):
        def _take(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            received.add(f"{self.command} {self.path}", json.loads(body) if body else None)
            if not received.answers.wait(WAIT_SECS):
                return
            self.send_response(received.status, self.path if received.echo else None)
            if received.location is not None:
                self.send_header("Location", received.location)
            self.end_headers()
            if received.echo:
                self.wfile.write(f"no such token: {self.path}".encode())

        do_GET = do_POST = _take  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that was killed
    received.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield received
    finally:
        received.answers.set()
        server.shutdown()
        server.server_close()


@contextmanager
def mail_receiver() -> Iterator[Received]:
    """A server for mail; `Received.items` are the mails."""
    received = Received()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 test")
            while line := self.rfile.readline().decode().strip():
                verb = line.partition(" ")[0].upper()
                if verb == "QUIT":
                    return self._say("221 bye")
                if verb == "DATA":
                    self._say("354 go on")
                    received.add("mail", self._mail())
                if verb == "EHLO":
                    self._say("250-test\r\n250 AUTH PLAIN LOGIN")
                elif verb == "AUTH":
                    self._say("235 ok" if received.status == 200 else f"{received.status} {line}")
                else:
                    self._say("250 ok")
            return None

        def _mail(self) -> Message:
            lines = []
            while (line := self.rfile.readline().decode()) not in (".\r\n", ""):
                lines.append(line)
            return message_from_string("".join(lines), policy=policy)

        def _say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        received.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield received
        server.shutdown()

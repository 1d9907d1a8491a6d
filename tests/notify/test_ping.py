"""The dead man's switch: requested while the watcher sees, at most once a minute, and at no other time."""

from __future__ import annotations

import logging
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from supervisor_core.notify.ping import PING_SECS, Ping
from supervisor_core.notify.secret import Secret
from tests.conftest import StillClock
from tests.notify.receivers import WAIT_SECS, Received, web_receiver


@pytest.fixture
def server() -> Iterator[Received]:
    """Where pings go."""
    with web_receiver() as received:
        yield received


@pytest.fixture
def pinging(server: Received) -> Iterator[tuple[Ping, StillClock]]:
    """A ping, and its clock."""
    clock = StillClock(5.0)
    ping = Ping(Secret(f"http://127.0.0.1:{server.port}/hunter2"), clock)
    yield ping, clock
    ping.close()


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[threading.Event]:
    """Set when something was logged, after caplog has it."""
    found = threading.Event()
    handler = logging.Handler()
    handler.emit = lambda record: found.set()  # type: ignore[method-assign]
    logger = logging.getLogger()
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)


def test_at_most_one_a_minute(server: Received, pinging: tuple[Ping, StillClock]) -> None:
    """Looks that see everything are said once a minute; without them nothing is requested."""
    ping, clock = pinging
    for minute in range(2):
        for look in range(10):
            ping.seen()
            server.wait(11 * minute + 1 + look)  # this minute's came before what follows
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/other").close()  # takes as long as one too many
            clock.now += PING_SECS / 10
    clock.now += 3600.0  # blind
    ping.seen()
    server.wait(23)
    assert [path for path in server.paths if "other" not in path] == ["GET /hunter2"] * 3


def test_a_failure_is_logged_once_without_the_url(
    server: Received, pinging: tuple[Ping, StillClock], caplog: pytest.LogCaptureFixture
) -> None:
    """Once when it fails, once when it works again; what the server repeats of the address is not shown."""
    caplog.set_level(logging.DEBUG)
    ping, clock = pinging
    server.status, server.echo = 404, True
    for count in range(1, 4):
        ping.seen()
        server.wait(count)
        clock.now += PING_SECS
    server.status = 200
    ping.seen()
    server.wait(4)
    clock.now += PING_SECS
    ping.seen()
    server.wait(5)  # the fourth was read to its end
    assert [record.getMessage() for record in caplog.records if record.name.startswith("supervisor_core")] == [
        "the ping URL cannot be reached: it answers 404 (Not Found); tried again every minute",
        "the ping URL is reached again",
    ]
    assert "hunter2" not in caplog.text


def test_no_redirect_is_followed(server: Received, caplog: pytest.LogCaptureFixture, logged: threading.Event) -> None:
    """It has failed, and the log says no more than its status."""
    server.status, server.location = 302, "/hunter2"
    ping = Ping(Secret(f"http://127.0.0.1:{server.port}/hunter2"))
    ping.seen()
    assert logged.wait(WAIT_SECS)
    ping.close()
    assert "the ping URL cannot be reached: it answers 302" in caplog.text and "hunter2" not in caplog.text
    assert len(server.paths) == 1


@pytest.mark.parametrize("status", [200, 302, 404])
def test_an_endless_answer_is_not_read(status: int) -> None:
    """Gigabytes in an answer, or in that which redirects, cost nothing."""
    ended, read = threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Location", "/next")
            self.end_headers()
            with suppress(OSError):
                for _ in range(64):
                    self.wfile.write(bytes(1 << 20))
                read.set()
            ended.set()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as endless:
        threading.Thread(target=endless.serve_forever, args=(0.02,), daemon=True).start()
        ping = Ping(Secret(f"http://127.0.0.1:{endless.server_port}/"))
        ping.seen()
        assert ended.wait(WAIT_SECS) and not read.is_set()
        ping.close()
        endless.shutdown()


def test_a_server_that_hangs_does_not_hold_up_the_watcher(
    begun_threads: Callable[[str], list[threading.Thread]], server: Received, pinging: tuple[Ping, StillClock]
) -> None:
    """`seen` and `close` return at once, and no more threads or requests come into being."""
    ping, clock = pinging
    server.answers.clear()
    ping.seen()
    server.wait(1)
    for _ in range(100):
        clock.now += PING_SECS
        ping.seen()
    assert len(begun_threads("supervisor-ping")) == 1 and len(server.paths) == 1
    ping.close()
    server.answers.set()
    (thread,) = begun_threads("supervisor-ping") or [threading.Thread()]
    if thread.ident is not None:
        thread.join(WAIT_SECS)
    assert len(server.paths) == 1, "nothing is requested after the end"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:1/hunter2", "its host refuses the connection"),
        ("http://hunter2.invalid/", "the name of its host cannot be resolved"),
        ("http://127.0.0.1:9/a b?hunter2", "it cannot be used as a URL"),
        ("http://user:hunter2@127.0.0.1/", "it cannot be used as a URL"),
    ],
)
def test_what_is_said_of_a_url_that_cannot_be_reached(
    url: str, why: str, caplog: pytest.LogCaptureFixture, logged: threading.Event
) -> None:
    """The reason is one of a few; errors of the library, which hold parts of the URL, are not shown."""
    ping = Ping(Secret(url))
    ping.seen()
    assert logged.wait(WAIT_SECS)
    ping.close()
    assert f"cannot be reached: {why};" in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://h/", "hunter2", "https://", ""])
def test_only_addresses_of_web_servers(url: str) -> None:
    """Anything else is an error at once, without the URL."""
    with pytest.raises(ValueError, match=r"^the ping URL is none of a web server, as https://HOST/ID$"):
        Ping(Secret(url))

"""HTTP requests: what a connection brings, answered as the exporter answers it.

Byte 0 of an input says whether the pages ask for a password; the rest is what the client sends before it hangs up.
"""

from __future__ import annotations

import atexit
import functools
import io
import os
import re
import tempfile
from typing import Any, cast

from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.web import Web
from supervisor_core.metrics.web_config import WebAccess
from supervisor_core.run.watch.logdir_watch import LogdirWatch

USERS = """basic_auth_users:
  prometheus: $2b$04$S0zX7iW0vcJ9HIf9an1.F.7s.jcDQfNiph64mtcovReKse7dDOaW6
"""
"""The password is ``x``; the cheapest hash that there is."""
RIGHT = b"cHJvbWV0aGV1czp4"
"""User and password, as a client sends them."""
STATUSES = frozenset((200, 400, 401, 404, 405, 408, 414, 421, 431, 501, 503, 505))
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3}) [ -~\x80-\xff]*\r\n")
_FIELD = re.compile(rb"([!-9;-~]+): ([ -~\x80-\xff]*)\r\n")
_PAGES = (b"<h1>Supervisor exporter", b"supervisor_exporter_", b"healthy\n")
"""What only pages hold, not refusals."""


def check_http(data: bytes) -> None:
    """Hand a connection to the exporter, and read every answer."""
    is_closed, asked = bool(data[:1] and data[0] & 1), data[1:]
    connection = Connection(asked)
    cast(Any, _web(is_closed)).finish_request(connection, ("192.0.2.1", 40000))
    for answer in connection.answers:
        for status in statuses_of(bytes(answer), asked):
            assert status in STATUSES, status
        if is_closed and RIGHT not in asked:
            assert not any(page in answer for page in _PAGES), answer[:500]


def statuses_of(sent: bytes, asked: bytes) -> list[int]:
    """Return the statuses of an answer; AssertionError if the bytes are not a whole one."""
    statuses = []
    while sent:
        line = _STATUS_LINE.match(sent)
        if line is None:
            assert re.match(rb"HTTP/1\.[01] [^\n]*\r\n", sent) is None, sent[:200]
            break  # as HTTP/0.9 has it: a body alone, and the end of the connection
        at, found = line.end(), dict[bytes, bytes]()
        while not sent.startswith(b"\r\n", at):
            field = _FIELD.match(sent, at)
            assert field is not None, sent[at : at + 200]
            assert field[1].lower() not in found, field[1]
            found[field[1].lower()] = field[2]
            at = field.end()
        statuses.append(int(line[1]))
        sent = sent[at + 2 :]
        length = int(found.get(b"content-length", b"0"))
        if not sent and length:
            assert b"HEAD" in asked, f"{length} bytes were announced, and none sent"
            break
        assert len(sent) == length, f"{length} bytes were announced, and {len(sent)} sent"
        sent = sent[length:]
    return statuses


class Connection:
    """A socket whose client has sent everything and waits; ``answers`` has what it is sent."""

    def __init__(self, data: bytes) -> None:
        self._received = io.BytesIO(data)
        self.answers = [bytearray()]

    def makefile(self, *_: object) -> io.BytesIO:
        """Return what the client has sent."""
        return self._received

    def sendall(self, data: Any) -> None:
        """Take a part of an answer."""
        self.answers[0] += data


@functools.cache
def _web(is_closed: bool) -> Web:
    folder = _folder()
    path = os.path.join(folder, "web.yml")
    with open(path, "w") as file:
        file.write(USERS)
    exporter = Exporter([LogdirWatch(folder)])
    exporter.refresh()
    return Web(exporter, ":0", access=WebAccess(path if is_closed else None), hosts=("h",))


@functools.cache
def _folder() -> str:
    folder = tempfile.TemporaryDirectory(prefix="fuzz-")
    atexit.register(folder.cleanup)
    return folder.name

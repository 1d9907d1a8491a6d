"""`Answer`: what a route says, and the way it takes to the client: headers, compression, errors as JSON.

TensorBoard checks neither the method of a request nor catches what a plugin raises, so `endpoint` does both, and every
answer goes through TensorBoard's own `http_util.Respond`, which adds its security headers.
"""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensorboard.backend import http_util
from werkzeug.wrappers import Request, Response

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_LOG = logging.getLogger("supervisor_core")

NO_STORE = "no-store"
IMMUTABLE = "public, max-age=31536000, immutable"

JSON = "application/json"
BINARY = "application/octet-stream"

_WORTH_PACKING = 1_400
"""Bytes: less than this goes into one packet anyway."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A whole answer."""

    body: bytes
    content_type: str
    code: int = 200
    cache: str = NO_STORE
    headers: tuple[tuple[str, str], ...] = ()
    packed: bool = False
    """Whether the body is gzipped already."""


class Refused(Exception):  # noqa: N818 - a refusal is an answer, no fault
    """A request that is answered with an error; the text is one sentence for people.

    Args:
        code: the HTTP status.
        text: what came, and what was expected.
        reason: for programs, where one status has several causes.
        headers: more headers.
    """

    def __init__(self, code: int, text: str, *, reason: str | None = None, **headers: str) -> None:
        super().__init__(text)
        self.code = code
        self.reason = reason
        self.headers = tuple((name.replace("_", "-"), value) for name, value in headers.items())


def unavailable(reason: str, text: str) -> Refused:
    """Return the refusal of what cannot be answered now: ``starting`` passes, ``failed`` stays."""
    return Refused(503, text, reason=reason, Retry_After="1" if reason == "starting" else "60")


def json_answer(value: Mapping[str, Any], *, code: int = 200, headers: Iterable[tuple[str, str]] = ()) -> Answer:
    """Return plain values as an answer; there must be nothing in them that JSON cannot hold."""
    body = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    return Answer(body=body, content_type=JSON, code=code, headers=tuple(headers))


def refusal_answer(refused: Refused) -> Answer:
    """Return a refusal as an answer."""
    value = {"error": str(refused).encode("utf-8", "backslashreplace").decode()}
    if refused.reason is not None:
        value["reason"] = refused.reason
    return json_answer(value, code=refused.code, headers=refused.headers)


def endpoint(answer: Callable[[Request], Answer]) -> WSGIApplication:
    """Return a function from requests to answers as the WSGI application of one route."""

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        return _response(request, _answered(request, answer))(environ, start_response)

    return application


def _answered(request: Request, answer: Callable[[Request], Answer]) -> Answer:
    try:
        if request.method != "GET":
            raise Refused(405, f"Got {request.method}; only GET is answered.", Allow="GET")
        return answer(request)
    except Refused as refused:
        return refusal_answer(refused)
    except Exception as error:
        _LOG.exception("The Supervisor tab could not answer %s", request.path)
        return refusal_answer(Refused(500, f"A fault of the plugin, TensorBoard's log has more: {error!r}."))


def _response(request: Request, answer: Answer) -> Response:
    body, packed = answer.body, answer.packed
    accepted = request.accept_encodings.quality("gzip") > 0
    if not packed and accepted and answer.content_type != BINARY and len(body) >= _WORTH_PACKING:
        # TensorBoard's own level costs four times as much, for a sixth fewer bytes.
        body, packed = gzip.compress(body, compresslevel=1, mtime=0), True
    elif packed and not accepted:
        body, packed = gzip.decompress(body), False
    response: Response = http_util.Respond(
        request,
        body,
        answer.content_type,
        code=answer.code,
        content_encoding="gzip" if packed else "identity",
        headers=list(answer.headers),
    )
    if not packed:
        del response.headers["Content-Encoding"]
    response.headers["Cache-Control"] = answer.cache
    response.headers["Vary"] = "Accept-Encoding"
    del response.headers["Expires"]
    return response

"""Requests and answers: arguments checked, refusals in words, JSON, gzip.

An answer goes through TensorBoard's own `http_util.Respond`, which adds its security headers. It has few for what is no
page of HTML; those that all our servers send are added. TensorBoard is loaded for that only: a report has the answers
without it.
"""

from __future__ import annotations

import gzip
import json
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment
    from werkzeug.datastructures import Headers
    from werkzeug.wrappers import Request, Response

_LOG = logging.getLogger("supervisor_core")

NO_STORE = "no-store"
IMMUTABLE = "public, max-age=31536000, immutable"

JSON = "application/json"
BINARY = "application/octet-stream"

PREFIX, HOST, LABEL = "prefix", "host", "label:"
"""What groups runs; after the last comes the name of a label."""

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


def json_answer(value: Mapping[str, Any]) -> Answer:
    """Return plain values as an answer; a number that JSON cannot hold becomes null."""
    try:
        body = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:  # hardly ever: `plain` takes longer than all the rest
        from supervisor_core.run.judge.run_json import plain  # loads numpy

        body = json.dumps(plain(value), allow_nan=False, separators=(",", ":")).encode()
    return Answer(body=body, content_type=JSON)


def refusal_answer(refused: Refused) -> Answer:
    """Return a refusal as an answer."""
    value = {"error": str(refused).encode("utf-8", "backslashreplace").decode()}
    if refused.reason is not None:
        value["reason"] = refused.reason
    return replace(json_answer(value), code=refused.code, headers=refused.headers)


def endpoint(answer: Callable[[Request], Answer]) -> WSGIApplication:
    """Return a function from requests to answers as the WSGI application of one route."""
    from werkzeug.wrappers import Request

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
    from tensorboard.backend import http_util

    from supervisor_core.metrics.listener import SECURITY_HEADERS  # TensorBoard's start waits for this module

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
    )
    for name, value in answer.headers:
        response.headers[name] = value  # TensorBoard has a policy of its own for HTML
    if not packed:
        del response.headers["Content-Encoding"]
    response.headers["Cache-Control"] = answer.cache
    response.headers["Vary"] = "Accept-Encoding"
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)
    del response.headers["Expires"]
    return response


EVER = (-math.inf, math.inf)
"""The window of a request that names none."""


class Arguments:
    """The arguments of one request. Those that a route does not know are passed over.

    Args:
        values: name -> value; of several with one name the first counts, but for `texts`.
        headers: those of the request.
    """

    def __init__(self, values: Mapping[str, str], headers: Headers | Mapping[str, str]) -> None:
        self._values = values
        self._headers = headers

    def header(self, name: str) -> str:
        """Return a header of the request; empty where it has none."""
        return self._headers.get(name, "")

    def text(self, name: str) -> str:
        """Return an argument that must be there."""
        value = self._values.get(name)
        if not value:
            raise _missing(name)
        return value

    def texts(self, name: str, most: int, *, needed: bool = False) -> list[str]:
        """Return all values of an argument that may occur several times, each once, in their order; empty where there
        is none, unless one is needed."""
        every: Callable[[str], list[str]] | None = getattr(self._values, "getlist", None)
        values = [self._values.get(name)] if every is None else every(name)
        found = [value for value in dict.fromkeys(values) if value]
        if needed and not found:
            raise _missing(name)
        if len(found) > most:
            raise Refused(400, f"The argument {name!r} occurs {len(found):,} times; expected at most {most}.")
        return found

    def grouping(self) -> str:
        """Return what groups runs: `PREFIX`, where nothing is given, `HOST` or `LABEL` and a name."""
        value = self._values.get("by") or PREFIX
        if value not in (PREFIX, HOST) and (value == LABEL or not value.startswith(LABEL)):
            raise _bad("by", value, f"{PREFIX}, {HOST} or {LABEL}<name>")
        return value

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """Return one of some words, the first of them where nothing is given."""
        value = self._values.get(name) or choices[0]
        if value not in choices:
            raise _bad(name, value, f"one of {', '.join(choices)}")
        return value

    def integer(self, name: str, low: int, high: int | None) -> int | None:
        """Return a whole number within bounds; None where nothing is given."""
        value = self._values.get(name)
        if not value:
            return None
        bounds = f"a whole number from {low:,}" + ("" if high is None else f" to {high:,}")
        if not value.isascii() or not value.isdigit() or len(value) > 18:
            raise _bad(name, value, bounds)
        number = int(value)
        if number < low or (high is not None and number > high):
            raise _bad(name, value, bounds)
        return number

    def number(self, name: str, low: float, high: float) -> float:
        """Return a number within bounds, the lower one where nothing is given."""
        number = self._number(name, low)
        if not low <= number <= high:
            raise _bad(name, self._values[name], f"a number from {low:g} to {high:g}")
        return number

    def window(self) -> tuple[float, float]:
        """Return ``from`` and ``to``, which reach to infinity where they are not given."""
        low, high = self._number("from", EVER[0]), self._number("to", EVER[1])
        if low > high:
            raise Refused(400, f"The argument 'from' ({low:g}) lies above 'to' ({high:g}); expected it below.")
        return low, high

    def _number(self, name: str, default: float) -> float:
        value = self._values.get(name)
        if not value:
            return default
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise _bad(name, value, "a number")
        return number


def _missing(name: str) -> Refused:
    return Refused(400, f"The argument {name!r} is missing.")


def _bad(name: str, value: str, expected: str) -> Refused:
    return Refused(400, f"The argument {name!r} is {shortened(value)}; expected {expected}.")


def shortened(text: str) -> str:
    """Return what came, in quotes, as an error repeats it: at most 80 characters."""
    return repr(text if len(text) <= 80 else text[:80] + "...")

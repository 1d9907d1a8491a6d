"""`alert_route`: which runs a Prometheus scrapes, and whether it has alert rules and an Alertmanager."""

from __future__ import annotations

import json
from collections.abc import Iterable
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

from supervisor_core.cli import WrongInput
from supervisor_core.run.fleet import AlertRoute
from supervisor_core.run.model import Run

QUERY = "group by (run) (supervisor_run_info)"
PREFIX = "Supervisor"
"""Of the names of the alerts in rules.yaml."""
_TIMEOUT_SECS = 30.0
_MOST_BYTES = 64 << 20
"""Of one answer; that of 100,000 runs has 10 MB."""


class _Unredirected(HTTPRedirectHandler):
    """Follows no redirection: what was given is what is asked."""

    def redirect_request(self, *_: Any) -> None:
        """Return None: no other address is asked."""


def alert_route(url: str, runs: Iterable[Run]) -> AlertRoute:
    """Return what a Prometheus says of the alerts of some runs.

    A run counts as scraped if a series has its name, or a name of which one is the end of the other: the directory that
    an exporter was given may be above or below the present one.

    Args:
        url: the address of the Prometheus, with the prefix that it may have.
        runs: those that are asked for.

    Raises:
        WrongInput: if it does not answer as a Prometheus does.
    """
    try:
        labels = {str(each["metric"].get("run", "")) for each in _asked(url, "query", query=QUERY)["result"]}
        groups = _asked(url, "rules", type="alert")["groups"]
        rules = sum(str(rule["name"]).startswith(PREFIX) for group in groups for rule in group["rules"])
        alertmanagers = len(_asked(url, "alertmanagers")["activeAlertmanagers"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WrongInput(f"--prometheus {url} does not answer as a Prometheus does: {error!r:.300}") from error
    ends = {end for label in labels for end in _ends(label)}
    return AlertRoute(
        rules=rules,
        alertmanagers=alertmanagers,
        scraped=frozenset(run.name for run in runs if _is_scraped(run, labels, ends)),
    )


def _asked(url: str, path: str, **query: str) -> Any:
    """Return the data of an answer of the HTTP API."""
    asked = f"{url.rstrip('/')}/api/v1/{path}{'?' if query else ''}{urlencode(query)}"
    request = Request(asked, headers={"Accept": "application/json"})
    try:
        with build_opener(_Unredirected()).open(request, timeout=_TIMEOUT_SECS) as answer:
            text = answer.read(_MOST_BYTES + 1)
    except HTTPError as error:
        error.close()  # it holds the connection
        raise ValueError(f"status {error.code}") from None
    if len(text) > _MOST_BYTES:
        raise ValueError(f"more than {_MOST_BYTES:,} bytes")
    return json.loads(text)["data"]


def _is_scraped(run: Run, labels: set[str], ends: set[str]) -> bool:
    names = {run.name, *(session.run for session in run.sessions[-1:] if session.run)}
    return any(name in ends or not labels.isdisjoint(_ends(name)) for name in names)


def _ends(name: str) -> list[str]:
    """Return a name, and what is left of it without its first directories."""
    parts = name.split("/")
    return ["/".join(parts[index:]) for index in range(len(parts))]

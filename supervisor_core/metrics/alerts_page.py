"""The page of alerts: which runs need somebody now, and what each alert means and what to do (docs/alerts.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise

from supervisor_core.base.clock import utc_text
from supervisor_core.base.log import html_text, policy_digest
from supervisor_core.metrics.listener import SECURITY_HEADERS
from supervisor_core.run.judge.finding import Finding

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


MOST_ROWS = 200
"""How many findings are listed; `supervisor_finding` has all."""


def alerts_page(said: Sequence[tuple[str, Finding]] = ()) -> str:
    """Return which runs need somebody now, and docs/alerts.md, as HTML with an anchor for each alert.

    Args:
        said: the label of a run, and what is to be said of it.
    """
    return f"{_HEAD}{_now(said)}{_runbook()}</body>\n</html>\n"


def _now(said: Sequence[tuple[str, Finding]]) -> str:
    urgent = [(label, found) for label, found in said if found.severity != "info"]
    if not urgent:
        return ""
    urgent.sort(key=lambda item: (item[1].severity != "page", -(item[1].since or 0.0)))
    rows = [_row(label, found) for label, found in urgent[:MOST_ROWS]]
    left = len(urgent) - MOST_ROWS
    more = f"<p>And {left:,} more: see supervisor_finding.</p>\n" if left > 0 else ""
    runs = len({label for label, _ in urgent})
    head = "<tr><th>run</th><th>severity</th><th>since (UTC)</th><th>what</th><th>first</th></tr>\n"
    title = f"{runs:,} {'run needs' if runs == 1 else 'runs need'} you"
    return f"<h1>{title}</h1>\n<table>{head}{''.join(rows)}</table>\n{more}"


def _row(label: str, found: Finding) -> str:
    since = (None if found.since is None else utc_text(found.since)) or "unknown"
    action = html_text(found.action or "")
    shown = f"<code>{action}</code>" if found.is_command else action
    name = f'<a href="#{found.alert.lower()}">{found.severity}</a>' if found.alert else found.severity
    cells = (html_text(label), name, since, html_text(found.sentence), shown)
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>\n"


@cache
def _runbook() -> str:
    """Return docs/alerts.md, which is part of the distribution, as HTML.

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
    rendered: str = parser.renderer.render(tokens, parser.options, {})
    return rendered


def alerts_headers() -> dict[str, str]:
    """Return the headers of `alerts_page`: a browser may use its style, and nothing else."""
    return {_POLICY: f"{SECURITY_HEADERS[_POLICY]}; style-src '{policy_digest(_STYLE)}'"}


def _anchor(title: str) -> str:
    """Return a heading's anchor, as code hosts make it from the title."""
    return re.sub(r"[^\w-]", "", title.lower().replace(" ", "-"))

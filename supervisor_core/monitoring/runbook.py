"""The page of alerts as HTML: docs/alerts.md, which is part of the distribution, with an anchor for each alert.

It is what ``runbook_url`` leads to where the page is not published elsewhere, so an alert can always be looked up.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from itertools import pairwise

_HEAD = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Alerts</title>
<style>
:root { color-scheme: light dark }
body { max-width: 50em; margin: auto; padding: 1em; font: 1em/1.5 system-ui, sans-serif }
table { display: block; overflow-x: auto; border-collapse: collapse }
td, th { padding: .3em .6em; border: 1px solid; text-align: left; vertical-align: top }
pre { overflow-x: auto; padding: .6em; border: 1px solid }
h2 { margin-top: 2.5em }
:target { border-left: .4em solid; padding-left: .4em }
</style></head>
<body>
"""
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)


@cache
def runbook_page() -> str:
    """Return the page. Links to its own headings work; of another page of the documentation there is the file's name,
    since nothing serves it."""
    from markdown_it import MarkdownIt  # takes a while, and is for this page only

    text = files(__package__).joinpath("alerts.md").read_text(encoding="utf-8")
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(_COMMENT.sub("", text))
    for opening, content in pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", anchor(content.content))
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


def anchor(title: str) -> str:
    """Return a heading's anchor, as code hosts make it from the title."""
    return re.sub(r"[^\w-]", "", title.lower().replace(" ", "-"))

"""The page of alerts as HTML: docs/alerts.md, which is part of the distribution, with an anchor for each alert.

It is what ``runbook_url`` leads to where the page is not published elsewhere, so an alert can always be looked up.
"""

from __future__ import annotations

import html
import re
from functools import cache
from importlib.resources import files

_HEAD = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Alerts</title>
<style>body { max-width: 60em; margin: auto; padding: 1em } pre { white-space: pre-wrap; font: inherit }</style></head>
<body>
"""


@cache
def runbook_page() -> str:
    """Return the page: text as it is written, each heading with an anchor of its name in lower case."""
    text = files(__package__).joinpath("alerts.md").read_text(encoding="utf-8")
    parts = re.split(r"^(#{1,2}) (.+)$", text, flags=re.MULTILINE)
    sections = []
    for marks, title, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        level, name = len(marks), html.escape(title)
        anchor = re.sub(r"[^\w-]", "", title.lower().replace(" ", "-"))
        sections.append(f'<h{level} id="{anchor}">{name}</h{level}>\n<pre>{html.escape(body.strip())}</pre>\n')
    return _HEAD + "".join(sections) + "</body>\n</html>\n"

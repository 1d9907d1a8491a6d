"""The page that an alert's runbook_url leads to by default is in the distribution, and has the place that it names."""

from __future__ import annotations

import re

from supervisor_core.monitoring.rules import rule_groups
from supervisor_core.monitoring.runbook import runbook_page


def test_every_runbook_url_leads_to_a_section() -> None:
    """Each alert's anchor is on the page, once."""
    anchors = re.findall(r'<h2 id="([^"]+)">', runbook_page())
    assert len(set(anchors)) == len(anchors)
    urls = [rule["annotations"]["runbook_url"] for rule in rule_groups()["groups"][0]["rules"] if "alert" in rule]
    assert {url.partition("#")[2] for url in urls} <= set(anchors)


def test_the_text_is_shown_as_it_is() -> None:
    """Nothing of the text is taken for HTML."""
    page = runbook_page()
    assert "&quot;RUN&quot;" in page and "What to do." in page
    assert set(re.findall(r"<(\w+)", page)) <= {"html", "head", "meta", "title", "style", "body", "h1", "h2", "pre"}

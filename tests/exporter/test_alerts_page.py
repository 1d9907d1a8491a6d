"""The page that an alert's runbook_url leads to by default is in the distribution, can be read, and its links work."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from supervisor_core.metrics.alerts_page import alerts_page
from supervisor_core.metrics.config_files import rule_groups
from supervisor_core.run.judge.finding import Finding


class Reader(HTMLParser):
    """Reads a page as a browser does: its anchors and links, and its text by the elements that it is in."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids += [values["id"] or ""] if "id" in values else []
        self.links += [values["href"] or ""] if "href" in values else []
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((tuple(self.open), data))

    def within(self, *tags: str) -> str:
        """The text that is in one of these elements."""
        return "\n".join(text for path, text in self.texts if set(tags) & set(path))


@pytest.fixture(scope="module")
def page() -> Reader:
    """The page, read."""
    return Reader(alerts_page())


def test_every_runbook_url_leads_to_a_section(page: Reader) -> None:
    """Each alert's anchor is on the page, once; so is what the page itself links to."""
    assert len(set(page.ids)) == len(page.ids)
    rules = [rule for group in rule_groups()["groups"] for rule in group["rules"]]
    urls = [rule["annotations"]["runbook_url"] for rule in rules if "alert" in rule]
    assert {url.partition("#")[2] for url in urls} <= set(page.ids)
    assert {link.partition("#")[0] for link in page.links} == {""}, "nothing else is served"
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


def test_nothing_is_left_of_the_markdown(page: Reader) -> None:
    """Tables, lists, queries and emphasis are shown as such; a link to another page names its file."""
    assert page.open == []
    assert "SupervisorTrainingLost" in page.within("td")
    assert "Do." in page.within("strong") and "dmesg" in page.within("li")
    assert 'supervisor_loss_finite{run="RUN"}' in page.within("pre")
    shown = "".join(text for path, text in page.texts if not {"code", "style"} & set(path))
    assert not any(mark in shown for mark in ("**", "](", "`", "|--", "<!--"))
    assert "exporter (docs/exporter.md)" in shown


def test_it_begins_with_the_runs_that_need_somebody() -> None:
    """The worst first, each with its sentence and what to do; what is only an info is left out; names do no harm."""
    said = [
        ("late", Finding(kind="checkpoint_overdue", severity="warn", text="Too old.", action="look & see")),
        (
            "<b>x",
            Finding(kind="stalled", severity="page", since=0.0, text="No progress.", action="ls", is_command=True),
        ),
        ("gone", Finding(kind="lost", severity="page", since=60.0, text="It is gone.", cost="5 steps are lost.")),
        ("over", Finding(kind="stopped", text="Stopped as asked.")),
    ]
    page = Reader(alerts_page(said))
    assert page.open == [] and page.within("h1").splitlines()[0] == "3 runs need you"
    cells = page.within("td").splitlines()
    assert cells[:5] == ["gone", "page", "1970-01-01 00:01:00", "It is gone. 5 steps are lost.", "<b>x"]
    assert cells[5:] and "Too old." in cells and "Stopped as asked." not in cells
    assert "#supervisortraininglost" in page.links and page.within("code").splitlines()[0] == "ls"

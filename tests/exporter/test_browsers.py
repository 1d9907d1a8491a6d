"""What a browser may do with the exporter's pages, and by which names it may ask for them."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.web import Web
from supervisor_core.metrics.web_config import WebAccess


def test_the_one_style_is_allowed_by_its_digest(exporter_of: Callable[..., Exporter], tmp_path: Path, ask) -> None:
    """The page of alerts has a style of its own, and nothing else that a policy would forbid."""
    with Web(exporter_of(tmp_path), ":0") as web:
        answer = ask(web, "/alerts")
    page = answer.body.decode()
    [style] = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert answer.headers["Content-Security-Policy"].endswith(f"; style-src 'sha256-{digest}'")
    assert not re.search(r"<(?:script|img|iframe|link|form)\b|\sstyle=|\son\w+=", page)


@pytest.mark.parametrize(
    ("address", "hosts", "accepted", "refused"),
    [
        ("127.0.0.1:0", ("Metrics.example.org",), ("localhost", "metrics.example.ORG:443"), ("exporter.example.org",)),
        ("0.0.0.0:0", ("a", "b"), ("a:1", "b.", "127.0.0.1"), ("c", "a.example.org")),
    ],
)
def test_by_which_names_it_is_asked(
    exporter_of: Callable[..., Exporter],
    tmp_path: Path,
    ask,
    address: str,
    hosts: tuple[str, ...],
    accepted: tuple[str, ...],
    refused: tuple[str, ...],
) -> None:
    """On a loopback address only by those that are given, elsewhere by any unless some are given."""
    with Web(exporter_of(tmp_path), address, hosts=hosts) as web:
        assert [ask(web, Host=host).status for host in accepted] == [200] * len(accepted)
        answers = [ask(web, Host=host) for host in refused]
    assert [answer.status for answer in answers] == [421] * len(refused)
    assert all(b"--web.allowed-host=NAME" in answer.body for answer in answers)


def test_a_strange_name_is_refused_before_a_password(
    exporter_of: Callable[..., Exporter], tmp_path: Path, ask, password_hash: str
) -> None:
    """What is refused anyway costs no check of a password."""
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users:\n  prometheus: {password_hash}\n")
    with Web(exporter_of(tmp_path), ":0", access=WebAccess(str(config))) as web:
        assert ask(web, Host="evil.example").status == 421
        assert ask(web, Host="localhost").status == 401

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from tb_plugin.http import IMMUTABLE
from tb_plugin.static_files import static_files
from tb_plugin.tab import FailedPlugin
from tests.cases import each
from tests.tb_plugin.conftest import Bench, a_run


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A frontend as a build leaves it."""
    directory = tmp_path / "static"
    (directory / "assets").mkdir(parents=True)
    (directory / "index.js").write_text('import "./main-ABCD2345.js";')
    (directory / "main-ABCD2345.js").write_text("export const timeline = '\N{SNOWMAN}';" * 100, encoding="utf-8")
    (directory / "assets" / "style-QRST7777.css").write_text("p { color: red }")
    (directory / "run-timeline.js").write_text("")
    (tmp_path / "secret.txt").write_text("secret")
    return directory


@each(
    "name, content_type, cache",
    [
        ("index.js", "text/javascript; charset=utf-8", "no-cache"),
        ("main-ABCD2345.js", "text/javascript; charset=utf-8", IMMUTABLE),
        ("assets/style-QRST7777.css", "text/css; charset=utf-8", IMMUTABLE),
        ("run-timeline.js", "text/javascript; charset=utf-8", "no-cache"),
    ],
)
def test_files_are_served_as_they_are(
    bench: Callable[..., Bench], built: Path, name: str, content_type: str, cache: str
) -> None:
    """Whole, with their type, packed for who accepts it; cached for good only where names change with content."""
    tab = bench(a_run(), files=static_files(built))
    plain = tab.get(name)
    assert (plain.status_code, plain.content_type, plain.headers["Cache-Control"]) == (200, content_type, cache)
    assert plain.data == (built / name).read_bytes()
    packed = tab.get(name, headers={"Accept-Encoding": "gzip"})
    assert gzip.decompress(packed.data) == plain.data
    assert packed.headers["X-Content-Type-Options"] == "nosniff"


@each(
    "path",
    [
        "../secret.txt",
        "..%2fsecret.txt",
        "assets/../../secret.txt",
        "assets/..\\..\\secret.txt",
        "/etc/passwd",
        "%00index.js",
        "index.js%00",
        "INDEX.JS",
        "static/index.js",
        "assets",
        "assets/",
    ],
)
def test_nothing_else_can_be_asked_for(bench: Callable[..., Bench], built: Path, path: str) -> None:
    """A path is looked up among the names that were there at the start; it never reaches the disk."""
    tab = bench(a_run(), files=static_files(built))
    answer = tab.client.get(tab.address + path)
    assert answer.status_code == 404
    assert b"secret" not in answer.data.replace(b"secret.txt", b"")


def test_what_appears_later_is_not_served(bench: Callable[..., Bench], built: Path) -> None:
    """The files are read once: nothing that comes into the directory later gets out of it."""
    tab = bench(a_run(), files=static_files(built))
    (built / "later.js").write_text("alert(1)")
    (built / "index.js").unlink()
    assert tab.get("later.js").status_code == 404
    assert tab.get("index.js").status_code == 200


def test_a_source_tree_says_how_to_build(bench: Callable[..., Bench], tmp_path: Path) -> None:
    """Without a built frontend the tab is a sentence that says what to do."""
    answer = bench(a_run(), files=static_files(tmp_path / "static")).get("index.js")
    assert (answer.status_code, answer.content_type) == (200, "text/javascript; charset=utf-8")
    assert "export function render()" in answer.text
    assert "make frontend" in answer.text


def test_a_reason_is_text_whatever_it_holds() -> None:
    """What a failed plugin shows is a string of JavaScript, never code or markup."""
    apps = FailedPlugin('";alert(1)//</script>\n\N{SNOWMAN}\u2028').get_plugin_apps()
    assert set(apps) == {"/index.js", "/*"}
    from werkzeug.test import Client

    text = Client(apps["/index.js"]).get("/").text
    assert 'textContent = "The Supervisor tab could not start: \\";alert(1)//</script>\\n\\u2603\\u2028";' in text
    refused = Client(apps["/*"]).get("/runs")
    assert (refused.status_code, refused.get_json()["reason"]) == (503, "failed")
    assert refused.headers["Retry-After"] == "60"

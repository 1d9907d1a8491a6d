"""docs/exporter.md says what the code does."""

from __future__ import annotations

import base64
import re
import shutil
from pathlib import Path

import pytest

from supervisor_core.base.options import OPTION_NAMES
from supervisor_core.metrics import web_config
from supervisor_core.metrics.web_config import WebAccess

DOCS = Path(__file__).parents[2] / "docs" / "exporter.md"
TEXT = DOCS.read_text(encoding="utf-8") if DOCS.parent.is_dir() else ""

pytestmark = pytest.mark.skipif(not TEXT, reason="the documentation is not part of what is tested here")


def test_the_web_configuration_works(tmp_path: Path, certificates) -> None:
    """The example, with the certificates it names, asks for the password that it says."""
    for name in ("crt", "key"):
        shutil.copy(certificates.directory / f"server.{name}", tmp_path)
    (example,) = re.findall(r"```yaml\n(tls_server_config:.*?)```", TEXT, re.DOTALL)
    path = tmp_path / "web.yml"
    path.write_text(example)
    access = WebAccess(str(path))
    (password,) = re.findall(r'# of "(.*)"', example)
    credentials = base64.b64encode(f"prometheus:{password}".encode()).decode()
    assert access.tls
    assert access.rules().auth.admits(f"Basic {credentials}")
    assert not access.rules().auth.admits(None)


def test_every_key_and_choice_is_documented() -> None:
    """Keys, versions and kinds of client certificates are named as they are written."""
    keys = set(re.findall(r"`\.?(?:tls_server_config\.)?(\w+)`", TEXT))
    assert {*web_config._Tls.__struct_fields__, "basic_auth_users"} <= keys
    for name in ("NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert", "TLS12", "TLS13"):
        assert f"`{name}`" in TEXT, name


def test_every_option_exists() -> None:
    """Options of the training are called what they are called."""
    named = re.findall(r"Options\.(\w+)", TEXT)
    assert named and set(named) <= set(OPTION_NAMES)


def test_the_scrape_configuration_is_valid(tmp_path: Path, promtool) -> None:
    """Prometheus takes the configuration shown, and so asks for what the unit above it serves: TLS and a password."""
    (block,) = re.findall(r"^```yaml\n(scrape_configs:\n.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    for name in ("exporter-ca.crt", "exporter-password"):
        (tmp_path / name).touch()
    path = tmp_path / "prometheus.yml"
    path.write_text(block.replace("/etc/prometheus", str(tmp_path)))
    promtool("check", "config", path)
    (unit,) = re.findall(r"^ExecStart=(.*)$", TEXT, re.MULTILINE)
    assert "--web.config.file" in unit and "scheme: https" in block and "password_file" in block

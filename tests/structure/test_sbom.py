"""The list of a wheel's components names what it holds and what it needs, and is the same each time."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
METADATA = """Metadata-Version: 2.4
Name: tensorboard-plugin-supervisor
Version: 1.2.3
License-Expression: Apache-2.0
Requires-Dist: rich>=13
Requires-Dist: bcrypt>=4; python_version >= "3"
Requires-Dist: missing-on-this-python; python_version < "3"
Requires-Dist: tensorflow>=2; extra == "tensorflow"
"""
LOCK: dict[str, Any] = {
    "packages": {
        "": {"dependencies": {"builder": "1.0.0", "@some/lib": "2.0.0"}},
        "node_modules/builder": {"version": "1.0.0", "license": "MIT", "integrity": "sha512-AAECAw=="},
        "node_modules/@some/lib": {"version": "2.0.0", "license": "ISC", "integrity": "sha512-BAUGBw=="},
    }
}


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    """The script."""
    if importlib.util.find_spec("cyclonedx") is None:
        assert os.environ.get("CI") != "true", "cyclonedx-python-lib is missing: make install"
        pytest.skip("cyclonedx-python-lib is missing: make install")
    spec = importlib.util.spec_from_file_location("sbom_script", ROOT / "scripts" / "sbom.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel whose tab holds the code of one package."""
    path = tmp_path / "tensorboard_plugin_supervisor-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tensorboard_plugin_supervisor-1.2.3.dist-info/METADATA", METADATA)
        listed = [{"name": "@some/lib", "version": "2.0.0", "license": "ISC"}]
        archive.writestr("tb_plugin/static/packages.json", json.dumps(listed))
    return path


def test_names_what_it_holds_and_needs(sbom: ModuleType, wheel: Path) -> None:
    """The wheel by its hash, its Python packages with theirs, the tab's with checksums; what built it as excluded."""
    found = json.loads(sbom.document(wheel, LOCK))
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    ours = found["metadata"]["component"]
    assert ours["purl"] == "pkg:pypi/tensorboard-plugin-supervisor@1.2.3"
    assert ours["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}]
    listed = {item["purl"].partition("@2")[0].partition("@1")[0]: item for item in found["components"]}
    assert {"pkg:pypi/rich", "pkg:pypi/bcrypt", "pkg:pypi/pygments"} <= {name.partition("@")[0] for name in listed}
    assert not any("missing" in name or "tensorflow" in name for name in listed)
    library, tool = listed["pkg:npm/%40some/lib"], listed["pkg:npm/builder"]
    assert library["hashes"] == [{"alg": "SHA-512", "content": "04050607"}]
    assert (library.get("scope"), tool["scope"]) == (None, "excluded")
    needs = {item["ref"]: item.get("dependsOn", []) for item in found["dependencies"]}
    direct = [name.partition("@")[0] if "npm" not in name else name for name in needs[ours["bom-ref"]]]
    assert sorted(direct) == ["pkg:npm/%40some/lib@2.0.0", "pkg:pypi/bcrypt", "pkg:pypi/rich"]
    (rich,) = (ref for ref in needs if ref.startswith("pkg:pypi/rich@"))
    assert any(ref.startswith("pkg:pypi/pygments@") for ref in needs[rich])


def test_is_the_same_each_time(sbom: ModuleType, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It depends on the wheel and on the time that the build is said to have, not on the clock or on chance."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795000000")
    first = sbom.document(wheel, LOCK)
    assert first == sbom.document(wheel, LOCK)
    assert "2026-11-18T" in first


def test_a_tab_that_was_built_of_other_packages_is_refused(sbom: ModuleType, wheel: Path) -> None:
    """A package whose version is not the one of the lock is no package that was verified."""
    other = json.loads(json.dumps(LOCK))
    other["packages"]["node_modules/@some/lib"]["version"] = "2.0.1"
    with pytest.raises(SystemExit, match=r"@some/lib 2\.0\.0 is in the tab, and 2\.0\.1"):
        sbom.document(wheel, other)

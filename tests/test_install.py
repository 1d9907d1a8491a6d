"""Commands that install something: they are typed into a shell, and then it is installed."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from supervisor_core.base import install
from supervisor_core.base.install import DISTRIBUTION, EXTRAS
from tests.cases import each

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def brought_by(extra: str) -> set[str]:
    """What pyproject.toml installs for an extra, and for those that it names; markers left out."""
    found: set[str] = set()
    for item in PROJECT["optional-dependencies"][extra]:
        named = re.fullmatch(rf"{DISTRIBUTION}\[([\w,]+)\]", item)
        if named is None:
            found.add(item.partition(";")[0].strip())
        else:
            found |= {part for name in named[1].split(",") if name != "tab" for part in brought_by(name)}
    return found


@each("extra", EXTRAS)
def test_an_extra_is_what_pyproject_says(extra: str) -> None:
    """The versions that a message names are those that the extra installs."""
    assert set(EXTRAS[extra]) == brought_by(extra)


@each("name, fixed", [("protobuf", (4, 25, 8)), ("werkzeug", (3, 1, 6)), ("torch", (2, 6))])
def test_the_lowest_version_has_no_known_fault(name: str, fixed: tuple[int, ...]) -> None:
    """Of recursion in protobuf (CVE-2025-4565), of paths and forms in werkzeug, of `weights_only=True` in PyTorch
    (CVE-2025-32434): wherever it is asked for."""
    asked = [*PROJECT["dependencies"], *(item for extra in PROJECT["optional-dependencies"].values() for item in extra)]
    lowest = [found[1] for item in asked if (found := re.match(rf"{name}>=([\d.]+)", item))]
    assert lowest and all(tuple(map(int, version.split("."))) >= fixed for version in lowest)


@each("requirement", [install.PY_SPY, install.CRC32C])
def test_a_dependency_is_what_pyproject_says(requirement: str) -> None:
    """Likewise of those that every installation has."""
    assert requirement in {item.partition(";")[0].strip() for item in PROJECT["dependencies"]}


def wheel(directory: Path, name: str, version: str, module: str) -> Path:
    """Write a wheel with one module."""
    directory.mkdir(exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    path = directory / f"{stem}-py3-none-any.whl"
    files = {
        f"{module}.py": "",
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{stem}.dist-info/RECORD"] = "".join(f"{each},,\n" for each in [*files, f"{stem}.dist-info/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for each, text in files.items():
            archive.writestr(each, text)
    return path


def sources_alone(directory: Path) -> Path:
    """The package that is tested, in a directory without anything beside it, as what a build may have left."""
    sources = directory / "sources"
    sources.mkdir()
    (sources / "supervisor_core").symlink_to(Path(install.__file__).parents[1])
    return sources


class Environment:
    """A virtual environment whose pip reaches no index, in a directory whose name a shell takes apart.

    Args:
        directory: where it is made.
    """

    def __init__(self, directory: Path) -> None:
        self.wheels = directory / "wheels"
        self.root = directory / "an environment"
        subprocess.run([sys.executable, "-m", "venv", self.root], check=True)
        sources = sources_alone(directory)
        self._variables = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(sources),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": self.wheels.as_uri(),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_CONFIG_FILE": "/dev/null",
        }

    def python(self, code: str) -> str:
        """Run a program in it; return what it prints."""
        command = [self.root / "bin" / "python", "-c", code]
        done = subprocess.run(command, env=self._variables, cwd=self.root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def type(self, line: str) -> None:
        """Have a shell run a line."""
        done = subprocess.run(["sh", "-c", line], env=self._variables, capture_output=True, text=True)
        assert done.returncode == 0, (line, done.stderr)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """One without any package but pip."""
    return Environment(tmp_path_factory.mktemp("install"))


def test_what_a_message_says_installs_the_extra(environment: Environment) -> None:
    """The command is complete: into the environment of the program that printed it, quoted, the versions that do."""
    for name, version in (("lightning", "2.4.1"), ("torch", "2.6.1")):
        wheel(environment.wheels, name, version, module=name)
    said = environment.python(
        "from supervisor_core.base.install import install_command; print(install_command('lightning'))"
    )
    assert said == f"'{environment.root}/bin/python' -m pip install 'lightning>=2.4' 'torch>=2.6'"
    environment.type(said)
    environment.python("import torch, lightning")


def test_an_environment_without_pip_is_one_of_uv(tmp_path: Path) -> None:
    """uv makes environments that have no pip; its own command names the Python to install for."""
    python = tmp_path / "my env" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", python.parents[1]], check=True)
    code = "from supervisor_core.base.install import install_command; print(install_command('torch'))"
    environment = {"PYTHONPATH": str(sources_alone(tmp_path))}
    done = subprocess.run([python, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"uv pip install --python '{python}' 'torch>=2.6'\n"

"""examples/monitoring/Containerfile: the image is built, and runs the exporter and TensorBoard as a runtime would.

No registry is asked: the base is a Debian of this machine's release. What a container gets is made of namespaces: a
root file system that is read-only, a network of its own, the image's user.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from supervisor_core import __version__
from supervisor_core.events.file_writer import FileWriter

ROOT = Path(__file__).parents[2]
CONTAINERFILE = "examples/monitoring/Containerfile"
PROGRAMS = ("buildah", "mmdebstrap", "unshare", "ip")

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        os.geteuid() != 0 or any(shutil.which(name) is None for name in PROGRAMS),
        reason=f"needs root and {', '.join(PROGRAMS)}",
    ),
]

CONTAINER = """set -e
ip link set lo up
mount --bind "$1" "$1"
mount --bind "$2" "$1/runs"
mount -t tmpfs tmpfs "$1/tmp"
mount -o remount,bind,ro "$1"
exec chroot --userspec="$3" "$1" /usr/bin/env -i PATH="$4" /bin/sh -c "$5"
"""
"""What a container is: arguments are its files, the runs, the user, the path of programs, and what runs there."""


@dataclass(frozen=True)
class Image:
    """An image that was built: its configuration, and its files."""

    config: dict[str, Any]
    files: Path

    def run(self, script: str, runs: Path) -> str:
        """Return what a shell script prints in a container, with everything in ``runs`` mounted read-only."""
        path = dict(entry.split("=", 1) for entry in self.config["Env"])["PATH"]
        inside = ("sh", "-c", CONTAINER, "sh", str(self.files), str(runs), self.config["User"], path, script)
        done = subprocess.run(
            ["unshare", "--net", "--mount", *inside],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """The image, built in a clone's directory from a wheel and the lock."""
    work = tmp_path_factory.mktemp("image")
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    packages = "python3,python3-venv,python3-pip,ca-certificates"
    run("mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", release, work / "base.tar")
    (work / "Containerfile").write_text("FROM scratch\nADD base.tar /\n")
    clone = work / "clone"
    clone.mkdir()
    for name in (".dockerignore", CONTAINERFILE, "locks"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, clone / name)
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", clone / "dist", ROOT)
    buildah = ("buildah", "--storage-driver=vfs", f"--root={work / 'store'}", f"--runroot={work / 'run'}")
    build = (*buildah, "build", "--isolation=chroot", "--format=docker", "--pull-never")
    run(*build, "--tag=localhost/base", work)
    # An authority of the machine's own, where it has one, is trusted while the image is built, and not in it.
    trusted = "--volume=/etc/ssl/certs:/etc/ssl/certs:ro"
    base = "--build-arg=BASE=localhost/base"
    run(*build, trusted, base, f"--file={clone / CONTAINERFILE}", "--tag=localhost/tb-supervisor", clone)
    name = run(*buildah, "from", "--isolation=chroot", "localhost/tb-supervisor").strip()
    try:
        files = Path(run(*buildah, "mount", name).strip())
        (files / "runs").mkdir()
        (files / "etc/hosts").write_text("127.0.0.1 localhost\n")
        found = json.loads(run(*buildah, "inspect", "--type=image", "localhost/tb-supervisor"))
        yield Image(config=found["Docker"]["config"], files=files)
    finally:
        run(*buildah, "rm", "--all")
        run(*buildah, "rmi", "--all", "--force")


def run(*command: object) -> str:
    """Return what a command prints; one that fails ends the test, with what it said."""
    done = subprocess.run(
        list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_exporter_runs_in_it(image: Image, tmp_path: Path) -> None:
    """With the image's own command and user, and nothing to write to, it serves a run; the health check says so."""
    assert image.config["User"] == "65534:65534"
    assert image.config["Labels"]["org.opencontainers.image.version"] == __version__
    (tmp_path / "digits").mkdir()
    write_a_run(tmp_path / "digits")
    command = [*image.config["Entrypoint"], *image.config["Cmd"]]
    health = image.config["Healthcheck"]["Test"]
    assert health[0] == "CMD" and command[0] == "tb-supervisor"
    ask = "from urllib.request import urlopen; print(urlopen('http://127.0.0.1:10988/metrics').read().decode())"
    printed = image.run(
        f"""
        ! {quoted(health[1:])} 2>/dev/null && echo unhealthy
        touch /opt/tb-supervisor/x 2>&1 || true
        {quoted(command)} & exporter=$!
        until {quoted([*health[1:-1], health[-1].replace("healthy", "ready")])} 2>/dev/null; do
            kill -0 $exporter || exit 1
        done
        {quoted(health[1:])} && echo healthy
        {quoted(["python3", "-c", ask])}
        kill $exporter
        wait $exporter && echo stopped
        """,
        tmp_path,
    )
    assert "unhealthy" in printed and "\nhealthy\n" in printed and "Read-only file system" in printed
    assert 'supervisor_global_step{run="digits"} 7.0' in printed
    assert printed.endswith("stopped\n")


def test_only_the_wheel_and_the_lock_are_sent_to_be_built(image: Image, tmp_path: Path) -> None:
    """Of a clone with everything in it, the context has what the image is made of."""
    for name in ("dist/a.whl", "dist/a.tar.gz", "locks/image.txt", "locks/dev.txt", ".git/config", "docs/index.md"):
        (tmp_path / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "clone" / name).write_text(name)
    shutil.copy(ROOT / ".dockerignore", tmp_path / "clone")
    (tmp_path / "Containerfile").write_text("FROM scratch\nCOPY . /\n")
    out = tmp_path / "out"
    run(
        *("buildah", "--storage-driver=vfs", f"--root={tmp_path / 'store'}", f"--runroot={tmp_path / 'run'}"),
        *("build", "--isolation=chroot", f"--file={tmp_path / 'Containerfile'}", f"--output={out}", tmp_path / "clone"),
    )
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()) == [
        "dist/a.whl",
        "locks/image.txt",
    ]


def quoted(command: list[str]) -> str:
    """A command as a shell takes it."""
    return " ".join("'" + word.replace("'", "'\"'\"'") + "'" for word in command)


def write_a_run(directory: Path) -> None:
    """A run of another writer: a loss at step 7, which everybody may read."""
    writer = FileWriter(str(directory))
    writer.scalar("loss", 0.5, step=7)
    writer.close()
    for path in (directory, *directory.parents[:1], *directory.iterdir()):
        path.chmod(0o755)

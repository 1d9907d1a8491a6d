#!/usr/bin/env python3
"""Write the locks that ``make`` installs from: what constraints.txt pins, with the hashes of every file of it.

    scripts/lock.py            what make lock does
    scripts/lock.py --check    exit status 1 where a lock is not what this would write, but for hashes of files that
                               were added to a version since

Each lock lists what its purpose needs beyond ``dev``; that of ``image`` is what the command and the tab need. uv
resolves, for every Python from the oldest on and every system but Windows, and asks the package index for the hashes;
pip and uv both refuse a file that has none of them. To renew: raise versions in constraints.txt, and run this. A
package that is missing there is named, with the version to pin.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from check_versions import ROOT, UV, fetch_as_pip_does, run

sys.path.insert(0, str(ROOT))
from build_frontend import NODE_FROM_PYPI

LOCKS = ROOT / "locks"
PURPOSES = ("dev", "bench", "docs", "faults", "fuzz", "node", "image")
WHOLE = ("dev", "image")
"""Locks that are installed on their own: they list everything, not what comes on top of ``dev``."""
OLDEST_PYTHON = "3.10"
HEAD = (
    "# What {purpose} needs{beyond}, each file by its hash. Written by `make lock` from constraints.txt; not edited.\n"
)


def main() -> int:
    """Write the locks; return 1 where something is not pinned, or not as it should be."""
    constraints = pins((ROOT / "constraints.txt").read_text())
    with tempfile.TemporaryDirectory(prefix="lock-") as directory:
        work = Path(directory)
        run(sys.executable, "-m", "venv", work / "uv")
        run(work / "uv/bin/python", "-m", "pip", "install", "-qq", "--disable-pip-version-check", UV)
        fetch_as_pip_does()
        written = {purpose: compiled(work, purpose) for purpose in PURPOSES}
    dev = entries(written["dev"])
    status = 0
    for purpose, text in written.items():
        found = entries(text)
        own = {name: entry for name, entry in found.items() if purpose in WHOLE or name not in dev}
        if unpinned := sorted({version for entry in found.values() for version in pins(entry)} - constraints):
            print(f"lock: constraints.txt lacks {', '.join(unpinned)}", file=sys.stderr)
            status = 1
        beyond = "" if purpose in WHOLE else " beyond dev"
        content = HEAD.format(purpose=purpose, beyond=beyond) + "".join(own[name] for name in sorted(own))
        path = LOCKS / f"{purpose}.txt"
        if "--check" in sys.argv[1:]:
            if not path.exists() or not is_covered(path.read_text(), content):
                print(f"lock: {path.relative_to(ROOT)} is not as scripts/lock.py writes it", file=sys.stderr)
                status = 1
        else:
            LOCKS.mkdir(exist_ok=True)
            path.write_text(content)
    return status


def compiled(work: Path, purpose: str) -> str:
    """Return the lock of everything that a purpose needs."""
    asked = work / "asked.in"
    asked.write_text("\n".join({"dev": build_requirements(), "node": [NODE_FROM_PYPI]}.get(purpose, [])) + "\n")
    options = ("--universal", "--generate-hashes", "--no-header", "--no-annotate", "--python-version", OLDEST_PYTHON)
    wanted: tuple[object, ...] = (asked,)
    if purpose == "image":
        wanted = (ROOT / "pyproject.toml", "--extra", "tab")
    elif purpose != "node":
        wanted = (asked, ROOT / "pyproject.toml", "--extra", "dev", "--extra", purpose)
    return run(
        *(work / "uv/bin/uv", "pip", "compile", "--quiet", *options, "--constraint", ROOT / "constraints.txt", *wanted)
    )


def build_requirements() -> list[str]:
    """Return what the build backend asks for."""
    text = (ROOT / "pyproject.toml").read_text()
    (requires,) = re.findall(r"^requires = \[(.*)\]$", text, re.MULTILINE)
    return re.findall(r'"([^"]+)"', requires)


def entries(text: str) -> dict[str, str]:
    """Return the entries of a lock by the names of the packages; of one package there may be several, in one text."""
    found: dict[str, str] = {}
    for entry in re.findall(r"^[A-Za-z0-9].*\n(?: .*\n)*", text, re.MULTILINE):
        if "; os_name == 'nt'" in entry:
            continue
        name = entry.partition("==")[0]
        found[name] = found.get(name, "") + entry
    return found


def is_covered(old: str, new: str) -> bool:
    """Say whether two locks are the same, but for further hashes in the new one."""
    before, after = (
        {
            name: (re.findall(r"^\S.*", entry, re.MULTILINE), set(re.findall(r"--hash=\S+", entry)))
            for name, entry in each
        }
        for each in (entries(old).items(), entries(new).items())
    )
    return before.keys() == after.keys() and all(
        heads == after[name][0] and hashes <= after[name][1] for name, (heads, hashes) in before.items()
    )


def pins(text: str) -> set[str]:
    """Return each ``name==version`` of a text."""
    return set(re.findall(r"^([A-Za-z0-9._-]+==[^\s;]+)", text, re.MULTILINE))


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"lock: {error.stderr}") from None

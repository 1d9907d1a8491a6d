"""Fuzzes one target in this process until the time is up or a promise is broken; `fuzz.__main__` starts it.

python -m fuzz.worker TARGET [libFuzzer's arguments ...]
"""

from __future__ import annotations

import logging
import resource
import sys
from pathlib import Path

import atheris

from fuzz.json_mutator import mutated
from fuzz.targets import TARGETS

MEMORY_BYTES = 512 << 20
"""How much memory reading may take beside what the program itself takes: as in the tests of hostile logdirs."""
INSTRUMENTED = ["supervisor_core", "http.server", "http.client", "email", "socketserver", "google.protobuf", "json"]


def main() -> None:
    """Fuzz."""
    name, *arguments = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    with atheris.instrument_imports(include=INSTRUMENTED):
        check = TARGETS[name].check()
    for path in sorted(TARGETS[name].corpus.iterdir()):
        check(path.read_bytes())  # loads what is loaded at the first call, outside of the limit
    limit = _data_bytes() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    options = {"custom_mutator": _mutate} if TARGETS[name].is_json else {}
    atheris.Setup([sys.argv[0], *arguments], check, **options)
    atheris.Fuzz()


def _mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Alter JSON, or bytes; the one as often as the other."""
    return mutated(data, max_size, seed) if seed % 2 else bytes(atheris.Mutate(data, max_size))


def _data_bytes() -> int:
    """How much of this process counts against `resource.RLIMIT_DATA`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmData:")) << 10


if __name__ == "__main__":
    main()

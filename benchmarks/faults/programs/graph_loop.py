"""`benchmarks.faults.wrapped` with TensorFlow, in a process that has imported it."""

from __future__ import annotations

import tensorflow  # noqa: F401

import supervisor_core
from benchmarks.faults.wrapped import started as main

assert supervisor_core.Supervisor
__all__ = ["main"]

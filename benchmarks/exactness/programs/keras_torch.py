"""`keras_fit` on this backend."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "torch"

from benchmarks.exactness.programs.keras_fit import main

__all__ = ["main"]

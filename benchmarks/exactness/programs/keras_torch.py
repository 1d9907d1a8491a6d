"""`keras_fit` on this backend."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "torch"

import torch._dynamo  # noqa: F401  # which the first step imports

from benchmarks.exactness.programs import keras_fit
from benchmarks.exactness.programs.keras_fit import main

__all__ = ["keras_fit", "main"]

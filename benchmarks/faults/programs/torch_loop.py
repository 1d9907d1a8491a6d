"""`benchmarks.faults.wrapped` with PyTorch, in a process that has imported it."""

from __future__ import annotations

import torch
import torch._dynamo  # which an optimizer imports

import supervisor_core.torch.loop  # noqa: F401
from benchmarks.faults.wrapped import started as main

assert torch.nn
__all__ = ["main"]

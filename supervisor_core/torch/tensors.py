"""Tensors and random states of PyTorch, for state trees."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy
import torch

from supervisor_core.checkpoint import contents, safetensors_file
from supervisor_core.checkpoint.blocks import IN_THREAD, BlockWriter
from supervisor_core.checkpoint.nan_check import has_nan
from supervisor_core.checkpoint.safetensors_file import Array, ArrayBytes, Written
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.training.random_state import RandomSource, process_sources
from supervisor_core.training.state import summary
from supervisor_core.training.tree import ArrayKind, NumpyArrays


class TorchTensors:
    """``torch.Tensor``, on any device."""

    name = "torch"
    file = contents.TORCH
    copies_memory = True

    def matches(self, value: Any) -> bool:
        """See `ArrayKind.matches`."""
        return isinstance(value, torch.Tensor)

    def check(self, value: Any) -> None:
        """See `ArrayKind.check`."""
        if value.layout is not torch.strided or value.is_quantized or hasattr(value, "full_tensor"):
            raise TypeError(f"a {type(value).__name__} of layout {value.layout}, which is not one dense tensor")
        if value.dtype not in _NAMES:
            raise TypeError(f"a {type(value).__name__} of {value.dtype}, which a checkpoint cannot hold")

    def copy(self, value: Any, into: Any = None) -> Any:
        """See `ArrayKind.copy`; waits for the device."""
        self.check(value)
        if into is not None:
            return into.copy_(value.detach())
        if value.numel() * value.element_size() < LARGE_BYTES:
            return value.detach().to("cpu", copy=True).contiguous()
        # numpy asks the kernel for huge pages: a quarter of the time, which goes into making pages.
        memory = numpy.empty(value.numel() * value.element_size(), numpy.uint8)
        return torch.from_numpy(memory).view(value.dtype).reshape(value.shape).copy_(value.detach())

    def save(self, arrays: Mapping[str, Any], path: str, blocks: BlockWriter = IN_THREAD) -> Written:
        """See `ArrayKind.save`."""
        return safetensors_file.write(path, {name: _numbers(tensor) for name, tensor in arrays.items()}, blocks)

    def load(self, files: SealedFiles, names: Collection[str]) -> Mapping[str, Any]:
        """See `ArrayKind.load`."""
        return safetensors_file.read(files, self.file, names, _allocate)


LARGE_BYTES = 32 << 20
"""From this size on, glibc's malloc never keeps the memory of a tensor for the next one."""
PIECE_BYTES = 256 << 20
"""Of a tensor on a device that is written without a copy of it all, so much is copied to host memory at a time."""
_NAMES = {getattr(torch, name): kind for kind, name in safetensors_file.DTYPES.items() if hasattr(torch, name)}


def _numbers(tensor: Any) -> ArrayBytes:
    def pieces() -> Iterator[Any]:
        flat = tensor.detach().reshape(-1)  # one that is no block of memory is copied here
        for part in flat.split(max(1, PIECE_BYTES // tensor.element_size())) if flat.numel() else ():
            yield part.cpu().view(torch.uint8).numpy()

    return ArrayBytes(_NAMES[tensor.dtype], tuple(tensor.shape), tensor.numel() * tensor.element_size(), pieces)


def _allocate(array: Array) -> tuple[memoryview, Callable[[], Any]]:
    name = safetensors_file.DTYPES[array.dtype]
    if not hasattr(torch, name):
        raise KeyError(name)
    memory = torch.empty(array.bytes, dtype=torch.uint8, device="cpu")
    return memoryview(memory.numpy()), lambda: memory.view(getattr(torch, name)).reshape(array.shape)


def tensor_has_nan(tensor: Any) -> bool:
    """Return whether a tensor in host memory has NaN; False for one whose numbers are not one block of memory."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.is_contiguous():
        return False
    return has_nan(str(tensor.dtype).removeprefix("torch."), tensor.reshape(-1).view(torch.uint8).numpy())


def tensor_with_nan(path: str) -> str | None:
    """Return the name of a tensor in a file of safetensors that has NaN; None where none has, or it is no such file.

    Raises:
        OSError: if there is no file.
    """
    from safetensors import SafetensorError, safe_open

    os.stat(path)  # some versions of safetensors raise a RuntimeError for a file that is gone

    try:
        with safe_open(path, framework="pt") as file:
            return next((name for name in file.keys() if tensor_has_nan(file.get_tensor(name))), None)  # noqa: SIM118
    except SafetensorError:
        return None


KINDS: tuple[ArrayKind, ...] = (TorchTensors(), NumpyArrays())
"""The arrays in the states of a PyTorch training."""


def random_sources() -> tuple[RandomSource, ...]:
    """Return the random sources of this process: python, numpy, and PyTorch's."""
    return (*process_sources(), *torch_sources())


def torch_sources() -> list[RandomSource]:
    """Return the random sources of PyTorch: on the CPU, and on each device in use."""
    sources = [RandomSource("torch", torch.get_rng_state, torch.set_rng_state)]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        sources += map(_source_of_device, range(torch.cuda.device_count()))
    return sources


def _source_of_device(number: int) -> RandomSource:
    cuda = torch.cuda
    name = f"torch.cuda:{number}"
    return RandomSource(name, lambda: cuda.get_rng_state(number), lambda state: cuda.set_rng_state(state, number))


def thread_facts() -> dict[str, str]:
    """Return what of the process has to be the same for an exact resume: it decides the order of sums."""
    return {"number of threads": str(torch.get_num_threads())}


def unwrapped(module: Any) -> Any:
    """Return the module inside ``torch.compile``, ``DataParallel`` and ``DistributedDataParallel``: its names in a
    checkpoint are then the same with and without them."""
    while True:
        if hasattr(module, "_orig_mod"):
            module = module._orig_mod
        elif isinstance(module, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
            module = module.module
        else:
            return module


def model_facts(*models: Any, with_dtype: bool) -> dict[str, str]:
    """Return what of models has to be the same for an exact resume: type of device, memory format, dtype.

    Args:
        models: modules; anything else has no facts.
        with_dtype: with the dtypes, for a model whose tensors are not compared with those of the checkpoint.
    """
    modules = [model for model in models if isinstance(model, torch.nn.Module)]
    if not modules:
        return {}
    tensors = (item for module in modules for item in (*module.parameters(), *module.buffers()))
    found = [item for item in tensors if not torch.nn.parameter.is_lazy(item)]
    facts = {
        "type of device": summary(item.device.type for item in found),
        "memory format": summary(map(_format_of, found)),
    }
    if with_dtype:
        facts["dtype of the model"] = summary(str(item.dtype).removeprefix("torch.") for item in found)
    return facts


def _format_of(tensor: Any) -> str:
    if tensor.is_contiguous():
        return "contiguous"
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    return "channels_last" if last is not None and tensor.is_contiguous(memory_format=last) else "strided"


def structure_of(*models: Any) -> str:
    """Return a digest of the names, types and shapes in the states of models."""
    parts = [
        f"{name} {getattr(value, 'dtype', '')} {tuple(getattr(value, 'shape', ()))}"  # type: ignore[repr-in-text]
        for model in models
        for name, value in model.state_dict().items()
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


BUFFERS = "The statistics of BatchNorm differ from rank to rank: those of the ranks other than 0 are not captured."


def model_limits(ranks: int, *models: Any) -> tuple[str, ...]:
    """Return what models have of which not all is captured: sentences.

    Args:
        ranks: how many processes train them.
        models: with what ``DistributedDataParallel`` wraps around them; anything but modules is left out.
    """
    norms = (torch.nn.modules.batchnorm._BatchNorm, torch.nn.modules.instancenorm._InstanceNorm)
    own = (
        part
        for model in models
        if isinstance(model, torch.nn.Module) and ranks > 1
        if not getattr(model, "broadcast_buffers", False)  # DistributedDataParallel's
        for part in model.modules()
        if isinstance(part, norms) and not isinstance(part, torch.nn.SyncBatchNorm) and part.track_running_stats
    )
    return (BUFFERS,) if any(True for _ in own) else ()

"""Whose a session is and where it runs, as scheduler, launcher, machine and framework say: its labels, the number of
processes, their devices.

All of it is read from the environment, a few small files of the kernel, and frameworks that the program has imported
and initialised: nothing is imported, no device is touched, nothing is asked over a network.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor_core.base.errors import OptionsError
from supervisor_core.base.log import printable
from supervisor_core.base.options import Options
from supervisor_core.base.session_labels import MAX_LABELS, MAX_VALUE_CHARS, VARIABLE, parsed
from supervisor_core.engine.tf_config import EVALUATOR_JOB, task_from_environment

_LOG = logging.getLogger("supervisor_core")

FOUND_IN: Mapping[str, tuple[str, ...]] = {
    "user": ("SLURM_JOB_USER", "USER", "LOGNAME", "USERNAME"),
    "job_id": ("SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"),
    "array_index": ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"),
    "partition": ("SLURM_JOB_PARTITION",),
    "node_list": ("SLURM_JOB_NODELIST", "NODE_NAME"),
    "namespace": ("POD_NAMESPACE",),
    "pod": ("POD_NAME",),
}
"""The labels that a session has without being asked -> the environment variables with their values: the first one that
is set. Slurm and torchrun set theirs; those of a pod are of Kubernetes' downward API, but for the index."""

_NAMESPACE_FILE = "var/run/secrets/kubernetes.io/serviceaccount/namespace"
_GPUS = "proc/driver/nvidia/gpus"
_ACCELERATORS = ("dev/nvidiactl", "dev/kfd", "dev/accel0", "dev/vfio", "dev/dxg")
"""What there is where a process may use an accelerator: of NVIDIA, AMD, Google, and under Windows."""
_MAX_FILE_CHARS = 4096
_MAX_GPUS = 1024
_ROOT = Path("/")


def labels_of_session(
    options: Options, environ: Mapping[str, str] = os.environ, root: Path = _ROOT
) -> Mapping[str, str]:
    """Return the labels of a session: those of `Options.labels`, then those of ``SUPERVISOR_LABELS``, then those that
    are found, 16 at most. An empty value leaves a label out. What cannot be used of the environment is logged.

    Args:
        root: where the file systems are.
    """
    of_environment, problems = parsed(environ.get(VARIABLE, ""))
    for problem in problems[:MAX_LABELS]:
        _LOG.warning("%s: a label is left out. %s", VARIABLE, problem)
    labels = dict(options.labels or {})
    for others in (of_environment, _found(environ, root)):
        labels = {**labels, **{name: value for name, value in others.items() if name not in labels}}
    return dict([(name, value) for name, value in labels.items() if value][:MAX_LABELS])


def _found(environ: Mapping[str, str], root: Path) -> dict[str, str]:
    found = {}
    for label, variables in FOUND_IN.items():
        values = (environ.get(name, "").strip() for name in variables)
        value = next((value for value in values if value and value != "none"), "")  # torchrun's id where none is given
        if value:
            found[label] = printable(value)[:MAX_VALUE_CHARS]
    if "namespace" not in found and "KUBERNETES_SERVICE_HOST" in environ:
        namespace = printable(_text(root / _NAMESPACE_FILE).strip())[:MAX_VALUE_CHARS]
        found |= {"namespace": namespace} if namespace else {}
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What a session's processes are, and run on; the fields are those of `SessionRecord`. None where unknown."""

    world_size: int | None = None
    device_kind: str | None = None
    device_count: int | None = None


def placement(
    environ: Mapping[str, str] = os.environ, root: Path = _ROOT, modules: Mapping[str, Any] = sys.modules
) -> Placement:
    """Return the number of processes that train together, and the devices that they may use.

    Devices that are visible count, used or not: an idle one is taken, too. Of a training in several processes the
    devices of this machine stand for those of the others.

    Args:
        root: where the file systems are.
        modules: what has been imported.
    """
    frameworks = (_of_jax(modules), _of_torch(modules))
    sizes = [each.world_size for each in frameworks if each.world_size is not None]
    size = max(sizes, default=None) or _number(environ, "WORLD_SIZE") or _of_tensorflow(environ)
    size = size or _number(environ, "SLURM_STEP_NUM_TASKS")
    for each in frameworks:
        if each.device_count is not None:
            return Placement(world_size=size, device_kind=each.device_kind, device_count=each.device_count)
    kind, visible = _nvidia(environ, root)
    kind = next((each.device_kind for each in frameworks if each.device_kind is not None), kind)
    if not visible:
        has_none = sys.platform == "linux" and not any((root / name).exists() for name in _ACCELERATORS)
        return Placement(world_size=size, device_kind="cpu" if visible == 0 or has_none else kind)
    return Placement(world_size=size, device_kind=kind, device_count=_of_all(visible, size, environ))


def _of_all(visible: int, size: int | None, environ: Mapping[str, str]) -> int:
    """Return the number of devices of all processes, by what this one sees of its machine's."""
    if size is None or size == 1:
        return visible
    nodes = _number(environ, "SLURM_STEP_NUM_NODES")
    local = _number(environ, "LOCAL_WORLD_SIZE") or (max(1, size // nodes) if nodes else None)
    if local is None:
        return size  # one for each, as frameworks have it
    return visible * max(1, size // local) if visible >= local else visible * size  # shared, or each its own


def _of_jax(modules: Mapping[str, Any]) -> Placement:
    """Return what JAX says, once the program has initialised it."""

    def ask() -> Placement:
        bridge, jax = modules.get("jax._src.xla_bridge"), modules.get("jax")
        if bridge is None or jax is None or not bridge.backends_are_initialized():
            return Placement()
        devices, size = jax.devices(), int(jax.process_count())
        if devices[0].platform == "cpu":
            return Placement(world_size=size, device_kind="cpu")
        return Placement(world_size=size, device_kind=str(devices[0].device_kind), device_count=len(devices))

    return _asked(ask)


def _of_torch(modules: Mapping[str, Any]) -> Placement:
    """Return what PyTorch says, once the program has initialised it."""

    def ask() -> Placement:
        dist, cuda = modules.get("torch.distributed"), modules.get("torch.cuda")
        size = (
            int(dist.get_world_size()) if dist is not None and dist.is_available() and dist.is_initialized() else None
        )
        kind = str(cuda.get_device_name()) if cuda is not None and cuda.is_initialized() else None
        return Placement(world_size=size, device_kind=kind)

    return _asked(ask)


def _asked(ask: Callable[[], Placement]) -> Placement:
    try:
        return ask()
    except Exception:  # another version of the framework, or one that is being imported: the label is not worth more
        _LOG.debug("A framework did not say what it runs on", exc_info=True)
        return Placement()


def _of_tensorflow(environ: Mapping[str, str]) -> int | None:
    """Return the number of tasks that train, by ``TF_CONFIG``; None without a cluster."""
    try:
        task = task_from_environment(environ)
    except OptionsError:  # the facade that needs it says so
        return None
    tasks = {} if task is None else task.addresses
    return sum(len(addresses) for job, addresses in tasks.items() if job not in ("ps", EVALUATOR_JOB)) or None


def _nvidia(environ: Mapping[str, str], root: Path) -> tuple[str | None, int | None]:
    """Return the kind and the number of NVIDIA's devices that this process may use; None where unknown. A container
    sees the files of all, and has device nodes of its own only."""
    found = {}
    try:
        with os.scandir(root / _GPUS) as entries:
            for entry, _ in zip(entries, range(_MAX_GPUS), strict=False):
                lines = (line.partition(":") for line in _text(Path(entry.path, "information")).splitlines())
                facts = {name.strip(): value.strip() for name, _, value in lines}
                if (root / f"dev/nvidia{facts.get('Device Minor', '')}").exists():
                    found[entry.name] = facts.get("Model")
    except OSError:
        pass  # no such driver
    kind = next((model for _, model in sorted(found.items()) if model), "gpu" if found else None)
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return kind, len(found) or None
    named = 0
    for each in (part.strip() for part in visible.split(",")):
        if not each or each.startswith("-") or each == "NoDevFiles":
            break  # CUDA ignores what comes after
        named += 1
    return kind or ("gpu" if named else None), min(named, _MAX_GPUS)


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and 0 < len(text) <= 7 and int(text) > 0 else None


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_FILE_CHARS)
    except OSError:
        return ""

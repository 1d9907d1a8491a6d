"""The values of what frameworks write, read without them: files of ``torch.save``, shards, arrays of JAX."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from supervisor_core.checkpoint.manifest import Manifest, seal
from supervisor_core.checkpoint.tensor_files import open_tensors
from supervisor_core.checkpoint.values import difference_of, values_of
from supervisor_core.errors import UnreadableCheckpointError
from supervisor_core.storage.local import LOCAL
from supervisor_core.training.tree import copy_tree, write_tree

NO_TORCH = "torch is not installed: make test-frameworks has it"


def leaves(tree: Any, path: str = "", joint: str = "/") -> Iterator[tuple[str, Any]]:
    """The tensors in a tree, by their paths."""
    if isinstance(tree, Mapping):
        items: Any = tree.items()
    elif isinstance(tree, (list, tuple)):
        items = enumerate(tree)
    else:
        yield path, tree
        return
    for key, item in items:
        yield from leaves(item, f"{path}{joint}{key}" if path else str(key), joint)


def of_torch(tensor: Any) -> Any:
    """The numbers of a tensor in C order, as they are read."""
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.dtype in (torch.bfloat16, torch.float8_e4m3fn):
        tensor = tensor.float()
    return tensor.contiguous().numpy().reshape(-1)


def assert_read(path: Path, expected: Mapping[str, Any]) -> None:
    """The tensors of a checkpoint are these, in blocks of any size."""
    with open_tensors(path) as opened:
        assert {tensor.name for tensor in opened.tensors} == set(expected)
        for tensor in opened.tensors:
            for most in (1 << 18, 7):
                assert tensor.read is not None, tensor.name
                found = [tensor.read(block) for block in tensor.blocks(most)]
                np.testing.assert_array_equal(np.concatenate([np.zeros(0), *found]), expected[tensor.name], tensor.name)


def torch_state() -> dict[str, Any]:
    """Tensors of all kinds: in other orders than their dimensions', parts of others, parameters, narrow types."""
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    torch.manual_seed(0)
    return {
        "model": {
            "w": torch.randn(50, 70),
            "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
            "turned": torch.randn(20, 30).t(),
            "half": torch.randn(9).bfloat16(),
            "float8": torch.randn(16).to(torch.float8_e4m3fn),
            "complex": torch.randn(4, dtype=torch.complex64),
            "scalar": torch.tensor(7),
            "flags": torch.tensor([True, False]),
            "rows": torch.randn(100)[10:20],
            "empty": torch.zeros(0, 3),
        },
        "parameter": torch.nn.Parameter(torch.randn(3, 3)),
        "list": [torch.ones(2), {"deep": torch.full((2,), float("nan"))}],
    }


def test_a_file_of_torch_save(tmp_path: Path) -> None:
    """Every tensor in it, by the keys that lead to it; its pickle is decoded, and code in another one is not run."""
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    state = torch_state()
    torch.save(state, tmp_path / "x.pt")
    assert_read(tmp_path / "x.pt", {name: of_torch(tensor) for name, tensor in leaves(state)})
    assert "first 'list/1/deep': 2 NaN of 2" in values_of(tmp_path / "x.pt").summary
    torch.save({"model": torch.nn.Linear(2, 2)}, tmp_path / "code.pt")
    with pytest.raises(UnreadableCheckpointError, match="may run code that is in the file"):
        values_of(tmp_path / "code.pt")


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_shards(tmp_path: Path) -> None:
    """A folder that torch.distributed.checkpoint has written; and the same shards in a sealed checkpoint."""
    dcp = pytest.importorskip("torch.distributed.checkpoint", reason=NO_TORCH)
    state = torch_state()
    dcp.save(state, checkpoint_id=str(tmp_path / "dcp"), no_dist=True)
    assert_read(tmp_path / "dcp", {name: of_torch(tensor) for name, tensor in leaves(state, joint=".")})

    from supervisor_core.torch.shards import Shard, ShardFiles

    def sealed(path: Path, scale: float) -> Path:
        own = {name: tensor * scale for name, tensor in leaves({"objects": {"model": {"w": state["model"]["w"]}}})}
        dcp.save(own, checkpoint_id=str(path / "shards"), no_dist=True)
        tree = {"objects": {"model": {"w": Shard("objects/model/w")}}, "random": {}}
        kinds = (ShardFiles(is_split=True, whole=False),)
        write_tree(str(path), copy_tree(tree, kinds), kinds)
        seal(str(path), Manifest(format="state-tree", step=1), LOCAL)
        return path

    before, after = sealed(tmp_path / "one", 1.0), sealed(tmp_path / "two", 1.5)
    assert_read(before, {"objects/model/w": of_torch(state["model"]["w"])})
    assert difference_of(before, after)[0].relative == pytest.approx(0.5)


def test_a_sealed_checkpoint_of_pytorch(tmp_path: Path) -> None:
    """Its tensors in the order of the modules, not of their names."""
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    from supervisor_core.torch.tensors import TorchTensors

    model = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(11)))
    kinds = (TorchTensors(),)
    tree = {"objects": {"model": dict(model.state_dict())}, "random": {}}
    (tmp_path / "ckpt-1").mkdir()
    write_tree(str(tmp_path / "ckpt-1"), copy_tree(tree, kinds), kinds)
    seal(str(tmp_path / "ckpt-1"), Manifest(format="state-tree", step=1), LOCAL)
    names = [tensor.name for tensor in values_of(tmp_path / "ckpt-1").tensors]
    assert names == [f"objects/model/{name}" for name in model.state_dict()]


def test_a_folder_of_transformers(tmp_path: Path) -> None:
    """Weights have one name in however many files they are; a file that needs code is a tensor without numbers."""
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    parts = {"a.weight": torch.ones(2), "b.weight": torch.full((3,), 2.0)}
    for folder, files in (("one", [parts]), ("two", [{name: parts[name]} for name in parts])):
        (tmp_path / folder).mkdir()
        for number, content in enumerate(files, start=1):
            name = "model" if len(files) == 1 else f"model-{number:05d}-of-{len(files):05d}"
            safetensors.save_file(content, tmp_path / folder / f"{name}.safetensors")
        torch.save({"state": {0: {"exp_avg": torch.ones(2)}}}, tmp_path / folder / "optimizer.pt")
        torch.save(torch.nn.Linear(1, 1), tmp_path / folder / "training_args.bin")
    found, values = difference_of(tmp_path / "one", tmp_path / "two")
    assert found.summary == "3 frozen, 1 without numbers; relative change 0 %"
    assert [tensor.name for tensor in values.tensors] == [
        "model/a.weight", "model/b.weight", "optimizer.pt/state/0/exp_avg", "training_args.bin",
    ]  # fmt: skip


def test_lightning(tmp_path: Path) -> None:
    """The file of Lightning in a sealed checkpoint."""
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    (tmp_path / "ckpt-1").mkdir()
    torch.save({"epoch": 1, "state_dict": {"layer.weight": torch.ones(4)}}, tmp_path / "ckpt-1" / "lightning.ckpt")
    content = '{"dict":[["objects",{"dict":[["trainer",{"array":["lightning","trainer"]}]]}],["random",{"dict":[]}]]}'
    (tmp_path / "ckpt-1" / "tree.json").write_text(content)
    seal(str(tmp_path / "ckpt-1"), Manifest(format="state-tree", step=1), LOCAL)
    assert_read(tmp_path / "ckpt-1", {"state_dict/layer.weight": np.ones(4)})


def test_orbax(tmp_path: Path) -> None:
    """The arrays of JAX in a sealed checkpoint, read by tensorstore alone; in a process of its own, since one that has
    used JAX cannot be forked by other tests."""
    for package in ("jax", "orbax", "tensorstore"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: make test-frameworks has it")
    done = subprocess.run([sys.executable, __file__, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def of_orbax(directory: Path) -> None:
    """Write two checkpoints with arrays of JAX, and read them."""
    import jax

    from supervisor_core.jax.arrays import JaxArrays

    kernel = jax.random.normal(jax.random.key(0), (40, 30))
    arrays = {"kernel": kernel, "half": kernel[0].astype("bfloat16"), "scalar": jax.numpy.asarray(3)}
    kinds = (JaxArrays(),)

    def sealed(path: Path, scale: float) -> Path:
        path.mkdir()
        own = {name: (array * scale).astype(array.dtype) for name, array in arrays.items()}
        tree = {"objects": {"state": own}, "random": {}}
        write_tree(str(path), copy_tree(tree, kinds), kinds)
        seal(str(path), Manifest(format="state-tree", step=1), LOCAL)
        return path

    before, after = sealed(directory / "one", 1), sealed(directory / "two", 3)
    assert_read(
        before,
        {f"objects/state/{name}": np.asarray(array, np.float32).reshape(-1) for name, array in arrays.items()},
    )
    found, values = difference_of(before, after)
    assert found.relative == pytest.approx(2, rel=1e-2) and found.counts == {"changed": 3}
    assert values.summary.startswith("all finite; ") and "1 bfloat16" in values.summary


if __name__ == "__main__":
    of_orbax(Path(sys.argv[1]))

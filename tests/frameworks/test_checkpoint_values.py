"""The values of what frameworks write, read by `verify --values`: files of ``torch.save``, and shards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from supervisor_core.base.errors import UnreadableCheckpointError
from supervisor_core.checkpoint.manifest import Manifest, seal
from supervisor_core.checkpoint.values import values_of
from supervisor_core.storage.local import LOCAL
from supervisor_core.training.tree import copy_tree, write_tree

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The tensors in a tree, by their paths."""
    if isinstance(tree, (Mapping, list)):
        for key, item in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
            yield from leaves(item, f"{path}/{key}" if path else str(key))
    else:
        yield path, tree


def state() -> dict[str, Any]:
    """Tensors of all kinds: in other orders than their dimensions', parts of others, parameters, narrow types."""
    torch.manual_seed(0)
    return {
        "model": {
            "w": torch.randn(500, 700),
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


def norm_of(tensor: Any) -> float:
    """Of the finite numbers of a tensor."""
    tensor = tensor.detach()
    numbers = torch.view_as_real(tensor) if tensor.is_complex() else tensor.double()
    return float(numbers.double().nan_to_num(0.0).norm())


def assert_read(path: Path, expected: Mapping[str, Any]) -> None:
    """The tensors of a checkpoint have these shapes and norms."""
    found = {tensor.name: tensor for tensor in values_of(path).tensors}
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert found[name].shape == tuple(tensor.shape) and found[name].dtype == str(tensor.dtype)[6:]
        assert found[name].norm == pytest.approx(norm_of(tensor)), name


def lightning(path: Path, content: Any) -> Path:
    """A sealed checkpoint with a file of Lightning's."""
    path.mkdir()
    torch.save(content, path / "lightning.ckpt")
    tree = '{"dict":[["objects",{"dict":[["trainer",{"array":["lightning","trainer"]}]]}],["random",{"dict":[]}]]}'
    (path / "tree.json").write_text(tree)
    seal(str(path), Manifest(format="state-tree", step=1), LOCAL)
    return path


def test_a_file_of_torch_save(tmp_path: Path) -> None:
    """Every tensor in it, by the keys that lead to it; code in a pickle is not run."""
    path = lightning(tmp_path / "ckpt-1", state())
    assert_read(path, dict(leaves(state())))
    assert "first 'list/1/deep': 2 NaN of 2" in values_of(path).summary
    with pytest.raises(UnreadableCheckpointError, match="may run code that is in the file"):
        values_of(lightning(tmp_path / "ckpt-2", {"model": torch.nn.Linear(2, 2)}))


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_shards(tmp_path: Path) -> None:
    """The parts of a tensor that torch.distributed.checkpoint has written are one tensor."""
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    from supervisor_core.torch.shards import Shard, ShardFiles

    weights = state()["model"]["w"]
    dcp.save({"objects/model/w": weights}, checkpoint_id=str(tmp_path / "shards"), no_dist=True)
    tree = {"objects": {"model": {"w": Shard("objects/model/w")}}, "random": {}}
    kinds = (ShardFiles(is_split=True, whole=False),)
    write_tree(str(tmp_path), copy_tree(tree, kinds), kinds)
    seal(str(tmp_path), Manifest(format="state-tree", step=1), LOCAL)
    assert_read(tmp_path, {"objects/model/w": weights})


def test_a_sealed_checkpoint_of_pytorch(tmp_path: Path) -> None:
    """Its tensors in the order of the modules, not of their names."""
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
    """Weights have one name in however many files they are; the optimizer's file is read, the arguments' is not."""
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    path = tmp_path / "checkpoint-1"
    path.mkdir()
    for number, name in enumerate(("a.weight", "b.weight"), start=1):
        safetensors.save_file({name: torch.ones(2)}, path / f"model-0000{number}-of-00002.safetensors")
    torch.save({"state": {0: {"exp_avg": torch.ones(2)}}}, path / "optimizer.pt")
    torch.save(torch.nn.Linear(1, 1), path / "training_args.bin")
    (path / "trainer_state.json").write_text('{"global_step": 1}')
    seal(str(path), Manifest(format="transformers", step=1), LOCAL)
    values = values_of(path)
    assert [tensor.name for tensor in values.tensors] == [
        "model/a.weight", "model/b.weight", "optimizer.pt/state/0/exp_avg",
    ]  # fmt: skip
    assert values.norm == pytest.approx(np.sqrt(6))

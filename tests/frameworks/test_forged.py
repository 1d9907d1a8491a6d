"""Checkpoints that another user has forged, with each adapter: no code runs, nothing hangs, nothing of other files is
recorded, and the training goes on from the newest one of its own."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

Alter = Callable[[Path, Any], Any]
pytestmark = pytest.mark.timeout(600)  # each starts a framework three times, and makes dozens of checkpoints
Forgeries = Mapping[str, tuple[Alter, str]]


def installed(name: str) -> Any:
    """A framework, or a skipped test."""
    return pytest.importorskip(name, reason=f"{name} is not installed: make test-frameworks has it")


def saved(value: Any) -> bytes:
    """What ``torch.save`` writes."""
    torch = installed("torch")
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def rezipped(
    data: bytes,
    change: Callable[[str, bytes], bytes] = lambda name, old: old,
    *,
    method: int = zipfile.ZIP_STORED,
    more: tuple[str, ...] = (),
) -> bytes:
    """A file of ``torch.save`` with other records."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w", method) as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
        for name in more:
            new.writestr(f"{old.namelist()[0].partition('/')[0]}/{name}", b"")
    return file.getvalue()


def again_and_again(name: str, old: bytes) -> bytes:
    """A pickle of 2**60 values in a few bytes."""
    many = b"\x80\x02]" + b"".join(b"q%ch%c\x86" % (number, number) for number in range(60)) + b"."
    return many if name.endswith("data.pkl") else old


def beyond(data: bytes) -> bytes:
    """A file of ``torch.save`` whose only storage of four numbers is said to have 400,000."""
    many = b"J" + (400_000).to_bytes(4, "little")
    return rezipped(data, lambda name, old: old.replace(b"K\x04", many) if name.endswith("data.pkl") else old)


def test_pytorch(tmp_path: Path, forging: ModuleType, trials: ModuleType) -> None:
    """One process, and a model that is not split: shards are none of its arrays."""
    installed("torch")
    with trials.trial(tmp_path, forging, "torch") as trial:
        trial.resumes(trials.forge(trial, forging.state_trees("torch.safetensors")))


def test_pytorch_with_shards(tmp_path: Path, forging: ModuleType, trials: ModuleType) -> None:
    """Two ranks: their metadata and their parts are not unpickled, and lead to no other file."""
    installed("torch")
    if not hasattr(installed("torch.distributed.fsdp"), "fully_shard"):
        pytest.skip("this PyTorch has no fully_shard: 2.6 has")
    with trials.trial(tmp_path, forging, "sharded", ranks=2) as trial:
        trees = dict(forging.state_trees("torch.safetensors"))
        del trees["shards"]
        own = trials.forge(trial, {**trees, **shards(trial.forger, forging)})
        trial.resumes(own)


def shards(forger: Any, forging: ModuleType) -> Forgeries:
    """What can be done to the shards of a checkpoint."""
    from torch.distributed.checkpoint.metadata import BytesStorageMetadata

    good = (forger.good / "shards" / ".metadata").read_bytes()
    code = forging.Code(str(forger.marker))

    def metadata(change: Callable[[Any], object]) -> bytes:
        changed = pickle.loads(good)
        change(changed)
        return pickle.dumps(changed)

    def first(content: Any) -> Any:
        return next(iter(content.storage_data.values()))

    part = saved(code)

    def other_part(content: Any) -> None:
        info = first(content)
        info.relative_path, info.offset, info.length = "__9_9.distcp", 0, len(part)

    def bytes_entry(content: Any) -> None:
        content.state_dict_metadata = dict.fromkeys(content.state_dict_metadata, BytesStorageMetadata())

    def outside(content: Any) -> None:
        first(content).relative_path = "../../../../secret"

    def huge(content: Any) -> None:
        import torch

        for item in content.state_dict_metadata.values():
            item.size = torch.Size([1 << 40])
            for chunk in item.chunks[1:]:
                item.chunks.remove(chunk)
            item.chunks[0].sizes, item.chunks[0].offsets = torch.Size([1 << 40]), torch.Size([0])

    def often(content: Any) -> None:
        import torch

        for item in content.state_dict_metadata.values():
            for chunk in item.chunks[:1]:
                empty = replace(chunk, sizes=torch.Size([0] * len(chunk.sizes)))
                item.chunks.extend([empty] * 1000)

    def with_part(path: Path, forger: Any) -> None:
        (path / "shards" / ".metadata").write_bytes(metadata(other_part))
        (path / "shards" / "__9_9.distcp").write_bytes(part)

    def another_part(path: Path, forger: Any) -> None:
        import torch

        other = saved(torch.zeros(5))

        def place(content: Any) -> None:
            info = first(content)
            info.relative_path, info.offset, info.length = "__9_9.distcp", 0, len(other)

        (path / "shards" / ".metadata").write_bytes(metadata(place))
        (path / "shards" / "__9_9.distcp").write_bytes(other)

    def not_listed(path: Path, forger: Any) -> Mapping[str, Any]:
        files = json.loads((forger.good / "supervisor-manifest.json").read_text())["files"]
        (path / "shards" / "__9_9.distcp").write_bytes(part)
        return {"files": files}

    write = forging.write
    return {
        "metadata with code": (write("shards/.metadata", pickle.dumps(code)), r"it names \w+\.system"),
        "part with code": (with_part, r"it is no tensor: it names \w+\.system"),
        "entries of bytes": (write("shards/.metadata", metadata(bytes_entry)), "BytesStorageMetadata"),
        "outside": (write("shards/.metadata", metadata(outside)), "outside of the folder's files"),
        "huge": (write("shards/.metadata", metadata(huge)), "no metadata of shards"),
        "one part often": (write("shards/.metadata", metadata(often)), "its parts have [0-9,]+ bytes"),
        "not listed": (not_listed, "__9_9.distcp: it is not in the manifest"),
        "another part": (another_part, "it is another tensor than the metadata say"),
        "FIFO metadata": (forging.replace_by_fifo("shards/.metadata"), "it is a FIFO"),
        "linked part": (forging.replace_by_link("shards/__0_0.distcp"), "it is a symbolic link"),
        "FIFO part": (forging.replace_by_fifo("shards/__1_0.distcp"), "it is a FIFO"),
    }


def test_lightning(tmp_path: Path, forging: ModuleType, trials: ModuleType) -> None:
    """The ``.ckpt`` is unpickled with restrictions, and looked at before."""
    installed("lightning")
    with trials.trial(tmp_path, forging, "lightning") as trial:
        own = trials.forge(trial, {**forging.state_trees("torch.safetensors"), **ckpts(trial.forger, forging)})
        trial.resumes(own, only_with_framework=("parts",))


def ckpts(forger: Any, forging: ModuleType) -> Forgeries:
    """What can be done to Lightning's file."""
    import torch

    file = "lightning.ckpt"
    good = torch.load(forger.good / file, weights_only=False)
    code = forging.Code(str(forger.marker))
    write = forging.write
    few = saved({**good, "state_dict": {}, "optimizer_states": [torch.zeros(4)]})
    nobody = r"it names \w+\.system|names \w+\.system.* belongs to nobody \(user 65534\).*trust_pickled=True.*chown "
    return {
        "code": (write(file, saved({**good, "hyper_parameters": {"x": code}})), nobody),
        "code alone": (write(file, pickle.dumps(code)), "no zip archive of torch.save"),
        "beyond": (write(file, beyond(few)), "has not the 400,000 elements|not as torch.save"),
        "compressed": (write(file, rezipped(few, method=zipfile.ZIP_DEFLATED)), "compressed"),
        "a program": (write(file, rezipped(few, more=("constants.pkl",))), "which is none of torch.save's"),
        "parts": (write(file, saved({"state_dict": {}})), "no checkpoint of Lightning's"),
        "values again and again": (write(file, rezipped(few, again_and_again)), "a value that contains itself"),
        "FIFO ckpt": (forging.replace_by_fifo(file), "it is a FIFO"),
        "linked ckpt": (forging.replace_by_link(file), "it is a symbolic link"),
    }


def test_lightning_trusts_its_own(tmp_path: Path, forging: ModuleType, trials: ModuleType) -> None:
    """What only unrestricted unpickling reads is read if nobody else may have written it, or with the option. Otherwise
    the error names whose it may be, and both ways out; the training says so when it saves."""
    installed("lightning")
    odd = {"ODD_HYPERPARAMETERS": "1"}
    with trials.trial(tmp_path, forging, "lightning", **odd) as trial:
        refused = trial.train(8, **odd)
        assert refused.returncode == 1 and "NoUsableCheckpointError" in refused.stderr
        for text in (f"others may write {trial.logdir}", "chmod go-w", "Options(trust_pickled=True)"):
            assert text in refused.stderr, refused.stderr
        assert "resumed ckpt-4 4" in trial.train(6, "trust_pickled=True", **odd).stdout
        for path in (trial.logdir, trial.directory):
            path.chmod(0o755)
        done = trial.train(8, **odd)
        assert "resumed ckpt-6 6" in done.stdout and "would be passed over" not in done.stderr, done.stderr


def test_lightning_removes_nothing_that_a_checkpoint_names(
    tmp_path: Path, forging: ModuleType, trials: ModuleType
) -> None:
    """`ModelCheckpoint` removes the best checkpoint so far when it has written another one: where its state says."""
    installed("lightning")
    models = tmp_path / "models"
    environment = {"MODELS": str(models)}
    with trials.trial(tmp_path, forging, "lightning", **environment) as trial:
        import torch

        private = tmp_path / "private"
        (private / "folder").mkdir(parents=True)
        content = torch.load(trial.forger.good / "lightning.ckpt", weights_only=False)
        (state,) = (state for key, state in content["callbacks"].items() if "ModelCheckpoint" in key)
        assert os.path.dirname(state["best_model_path"]) == str(models)
        state["best_model_path"] = f"{models}/../private"
        trial.forger.forge("path", forging.write("lightning.ckpt", saved(content)))
        done = trial.train(900_004, **environment)
        assert "resumed ckpt-900000 900000" in done.stdout and "done" in done.stdout, done.stdout + done.stderr
        assert (private / "folder").exists()
        assert "1 paths in it do not lie in the directory" in done.stderr


def test_transformers(tmp_path: Path, forging: ModuleType, trials: ModuleType) -> None:
    """The Trainer loads what it can load without harm: everything else is passed over before it is given a path."""
    installed("transformers")
    with trials.trial(tmp_path, forging, "transformers") as trial:
        own = trials.forge(trial, trainers(trial.forger, forging))
        trial.resumes(own, only_with_framework=("odd state",))


def trainers(forger: Any, forging: ModuleType) -> Forgeries:
    """What can be done to a checkpoint of the Trainer's."""
    import torch

    code = saved(forging.Code(str(forger.marker)))
    write, fifo, link = forging.write, forging.replace_by_fifo, forging.replace_by_link
    state = json.loads((forger.good / "trainer_state.json").read_text())

    def weights_with_code(path: Path, forger: Any) -> None:
        (path / "model.safetensors").unlink()
        (path / "pytorch_model.bin").write_bytes(code)

    def not_listed(name: str, data: bytes) -> Alter:
        def alter(path: Path, forger: Any) -> Mapping[str, Any]:
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_bytes(data)
            return {"hidden": name}

        return alter

    def folder(name: str) -> Alter:
        def alter(path: Path, forger: Any) -> None:
            (path / name).mkdir()
            (path / name / ".metadata").write_bytes(code)

        return alter

    def random_state(position: Any) -> bytes:
        state = torch.load(forger.good / "rng_state.pth", weights_only=False)
        name, keys, _, *rest = state["numpy"]
        return saved({**state, "numpy": (name, keys, position, *rest)})

    def index(path: Path, forger: Any) -> None:
        (path / "model.safetensors").unlink()
        names = {"weight_map": {"layer.weight": "../../secret"}}
        (path / "model.safetensors.index.json").write_text(json.dumps(names))

    def odd_step(path: Path, forger: Any) -> None:
        (path / "trainer_state.json").write_text(json.dumps({**state, "global_step": 3}))

    def odd_state(path: Path, forger: Any) -> None:
        step = int(path.name.rpartition("-")[2])
        (path / "trainer_state.json").write_text(json.dumps({**state, "global_step": step, "surprise": 1}))

    def no_weights(path: Path, forger: Any) -> None:
        (path / "model.safetensors").unlink()

    def steps(alter: Alter) -> Alter:
        """The Trainer's state says the step of the copy."""

        def altered(path: Path, forger: Any) -> Any:
            step = int(path.name.rpartition("-")[2])
            (path / "trainer_state.json").write_text(json.dumps({**state, "global_step": step}))
            return alter(path, forger)

        return altered

    found = {
        "FIFO state": (fifo("trainer_state.json"), "it is a FIFO"),
        "linked state": (link("trainer_state.json"), "it is a symbolic link"),
        "deep state": (write("trainer_state.json", forging.deep()), "nested too deep"),
        "state of a hole": (forging.hole("trainer_state.json"), "are on disk|at most"),
        "odd step": (odd_step, "it is not of step"),
        "FIFO weights": (fifo("model.safetensors"), "it is a FIFO"),
        "linked weights": (link("model.safetensors"), "it is a symbolic link"),
        "no header": (write("model.safetensors", b"\xff" * 64), "its header is none"),
        "weights with code": (weights_with_code, r"names \w+\.system.*belongs to nobody"),
        "no weights": (no_weights, "has no weights that the Trainer loads; .*belongs to nobody"),
        "index": (index, "it names weights that are not in the manifest"),
        "not listed": (not_listed("scaler.pt", code), "scaler.pt: it is not in the manifest"),
        "settings": (not_listed("config.json", b"["), "config.json: it is not in the manifest"),
        "deep settings": (write("config.json", forging.deep()), "config.json: it is no JSON: it is nested too deep"),
        "FSDP": (folder("pytorch_model_fsdp_0"), "is of FSDP or DeepSpeed.* belongs to nobody"),
        "FSDP's optimizer": (folder("optimizer_0"), "is of FSDP or DeepSpeed.* belongs to nobody"),
        "DeepSpeed": (folder("global_step4"), "is of FSDP or DeepSpeed.* belongs to nobody"),
        "position": (write("rng_state.pth", random_state(2**31 - 1)), "the position in numpy's random state"),
        "odd state": (odd_state, "does not take it: TypeError"),
        "unlisted": (forging.unlisted, "trainer_state.json: it is not in the manifest"),
        "linked directory": (forging.linked_directory, "is a symbolic link"),
        "FIFO manifest": (forging._fifo_manifest, "it is a FIFO"),
        "foreign format": (forging.fields(format="state-tree"), "has the format 'state-tree'"),
    }
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        found[f"{name} with code"] = (write(name, code), r"names \w+\.system.*belongs to nobody.*trust_pickled=True")
        found[f"{name} of a FIFO"] = (fifo(name), "it is a FIFO")
        found[f"{name} beyond"] = (write(name, beyond(saved(torch.zeros(4)))), "has not the 400,000 elements")
    own = {"odd state", "deep state", "state of a hole", "odd step", "FIFO state", "linked state", "FIFO manifest"}
    return {
        kind: (alter if kind in own | {"linked directory"} else steps(alter), text)
        for kind, (alter, text) in found.items()
    }


def test_transformers_unpickles_no_arguments(tmp_path: Path, forging: ModuleType, trials: ModuleType) -> None:
    """The Trainer writes ``training_args.bin``, and does not read it: code in it does not run, in a checkpoint that is
    whole in everything else. Whoever may write into the logdir gives the training other weights."""
    installed("transformers")
    with trials.trial(tmp_path, forging, "transformers") as trial:
        state = json.loads((trial.forger.good / "trainer_state.json").read_text())
        arguments = saved(forging.Code(str(trial.forger.marker)))

        def alter(path: Path, forger: Any) -> None:
            text = json.dumps({**state, "global_step": 900_000})
            (path / "trainer_state.json").write_text(text)
            (path / "training_args.bin").write_bytes(arguments)

        trial.forger.forge("arguments", alter)
        done = trial.train(8)
        assert "resumed checkpoint-900000 900000" in done.stdout, done.stderr
        trial.forger.check(forging.outputs(trial.logdir, done.stdout, done.stderr))


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.pt", "trainer_state.json"])
def test_transformers_without_a_manifest(tmp_path: Path, forging: ModuleType, trials: ModuleType, file: str) -> None:
    """Where no checkpoint is sealed, as in a run that was begun without the callback, links, FIFOs and code are passed
    over as well, and the newest that is none of them is taken."""
    installed("transformers")
    code = saved(forging.Code("")) if file != "model.safetensors" else b""
    with trials.trial(tmp_path, forging, "transformers") as trial:
        for path in trial.logdir.glob("checkpoint-*/supervisor-manifest.json"):
            path.unlink()
        trial.forger.good = trial.logdir / "checkpoint-4"
        shutil.copy(trial.logdir / "checkpoint-4" / "trainer_state.json", trial.forger.home / "state")

        def bare(alter: Alter) -> Alter:
            def altered(path: Path, forger: Any) -> Any:
                alter(path, forger)
                return {"sealed": False}

            return altered

        kinds = {"FIFO": forging.replace_by_fifo(file), "link": forging.replace_by_link(file)}
        if code:
            kinds["code"] = forging.write(file, saved(forging.Code(str(trial.forger.marker))))
        for kind, alter in kinds.items():
            trial.forger.forge(kind, bare(alter))
        done = trial.train(8)
        assert "resumed checkpoint-4 4" in done.stdout and done.returncode == 0, done.stdout + done.stderr
        trial.forger.check(forging.outputs(trial.logdir, done.stdout, done.stderr))


def test_keras(tmp_path: Path, forging: ModuleType, trials: ModuleType) -> None:
    """The variables are arrays of numpy."""
    if find_spec("keras") is None:  # imported, it would ask for a backend in this process
        pytest.skip("keras is not installed: make test-frameworks has it")
    with trials.trial(tmp_path, forging, "keras") as trial:
        trial.resumes(trials.forge(trial, forging.state_trees("numpy.safetensors")))


def test_jax(tmp_path: Path, forging: ModuleType, trials: ModuleType) -> None:
    """Orbax opens the files of its folder by their names: they are looked at before, and their arrays' sizes are."""
    installed("jax")
    with trials.trial(tmp_path, forging, "jax") as trial:
        large = trial.forger.home / "large"
        write_arrays = (
            "import sys, numpy as np, orbax.checkpoint as ocp\n"
            "zeros = np.zeros((20_000, 20_000), np.float32)\n"
            "ocp.PyTreeCheckpointer().save(sys.argv[1], {'objects': {'w': zeros, 'n': np.zeros(())}})\n"
        )
        subprocess.run(
            [sys.executable, "-c", write_arrays, str(large)], env={**os.environ, **trials.ENVIRONMENT}, check=True
        )
        for path in (large, *large.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)

        def zeros(path: Path, forger: Any) -> None:
            shutil.rmtree(path / "orbax")
            shutil.copytree(large, path / "orbax")

        def another_file(path: Path, forger: Any) -> Mapping[str, Any]:
            files = json.loads((forger.good / "supervisor-manifest.json").read_text())["files"]
            (path / "orbax" / "checkpoint").write_bytes(b"\x80")
            return {"files": files}

        def elsewhere(use_ocdbt: bool) -> Alter:
            """Arrays at absolute paths, as Orbax has joined them."""

            def alter(path: Path, forger: Any) -> None:
                tree, metadata = (path / "tree.json").read_text(), path / "orbax" / "_METADATA"
                content = json.loads(metadata.read_text())
                for item in content["tree_metadata"].values():
                    keys = item["key_metadata"]
                    name = "/".join(key["key"] for key in keys)
                    item["key_metadata"] = [{**keys[0], "key": f"{forger.home}/{name}"}]
                    tree = tree.replace(f'"{name}"', f'"{forger.home}/{name}"')
                metadata.write_text(json.dumps({**content, "use_ocdbt": use_ocdbt}))
                (path / "tree.json").write_text(tree)

            return alter

        def without_file(path: Path, forger: Any) -> None:
            (path / "orbax" / "manifest.ocdbt").unlink()

        own = {
            **forging.state_trees(None),
            "zeros": (zeros, "larger ones than this program"),
            "another file": (another_file, "orbax/checkpoint: it is not in the manifest"),
            "FIFO in the folder": (forging.replace_by_fifo("orbax/manifest.ocdbt"), "it is a FIFO"),
            "link in the folder": (forging.replace_by_link("orbax/_METADATA"), "it is a symbolic link"),
            "no metadata": (forging.write("orbax/_METADATA", b"{}"), "no metadata of Orbax's"),
            "no database of names": (elsewhere(False), "no database"),
            "no file of the database": (without_file, "no database"),
            "names that lead elsewhere": (elsewhere(True), "leads out of its folder"),
            "no database": (forging.write("orbax/manifest.ocdbt", b"\0" * 64), "cannot be loaded"),
        }
        trial.resumes(trials.forge(trial, own), only_with_framework=("zeros", "no database"))


REPLACE = """
import os, sys
import orbax.checkpoint as ocp
from supervisor_core.checkpoint.manifest import read_manifest
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.jax.arrays import folder_of

checkpoint, secret = sys.argv[1:]
path = os.path.join(checkpoint, "orbax", "_METADATA")
before = open(path, "rb").read()
files = SealedFiles(checkpoint, read_manifest(checkpoint))
with folder_of(files, "orbax", files.below("orbax"), before) as folder:
    os.unlink(path)
    os.symlink(secret, path)
    assert open(os.path.join(folder, "_METADATA"), "rb").read() == before
    assert "objects" in ocp.PyTreeCheckpointer().restore(folder)
assert not os.path.exists(folder)
"""


def test_orbax_reads_what_was_looked_at(tmp_path: Path, forging: ModuleType, trials: ModuleType) -> None:
    """Who puts a link in the place of a file when it was compared with the manifest leads Orbax to no other file."""
    installed("jax")
    with trials.trial(tmp_path, forging, "jax") as trial:
        checkpoint = trial.forger.good
        for path in (checkpoint, *checkpoint.rglob("*")):
            os.chown(path, forging.NOBODY, forging.NOBODY)
        done = subprocess.run(
            [sys.executable, "-c", REPLACE, str(checkpoint), str(trial.forger.secret)],
            env={**os.environ, **trials.ENVIRONMENT}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_a_checkpoint_of_another_user_is_resumed_from(tmp_path: Path, forging: ModuleType, trials: ModuleType) -> None:
    """If it is whole, and no code is in it: whoever may write there gives the training its weights."""
    for adapter, framework in (("jax", "jax"), ("lightning", "lightning"), ("torch", "torch")):
        installed(framework)
        with trials.trial(tmp_path, forging, adapter) as trial:
            trial.forger.forge("copy", lambda path, forger: None)
            done = trial.train(900_001)
            assert "resumed ckpt-900000 900000" in done.stdout, done.stdout + done.stderr

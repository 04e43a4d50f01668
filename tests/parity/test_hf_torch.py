"""Tensors in PyTorch's own format."""

import json
import pathlib
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from common.errors import ConfigError  # noqa: E402
from common.models import hf_files, hf_torch, pretrained  # noqa: E402
from tests import t5_folder  # noqa: E402


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text((t5_folder.GATED / "config.json").read_text())
    return tmp_path


def _tensors(dtype=torch.float32):
    read = hf_files.read_tensors(t5_folder.GATED)
    return {name: torch.tensor(tensor).to(dtype) for name, tensor in read.items()}


def test_a_file_and_shards_hold_the_same(folder):
    tensors = _tensors()
    torch.save(tensors, folder / "pytorch_model.bin")
    expected = pretrained.load(t5_folder.GATED)
    for _ in range(2):
        found = pretrained.load(folder)
        assert found.config == expected.config
        for name, tensor in hf_torch.read_tensors(folder).items():
            np.testing.assert_array_equal(tensor, tensors[name])
        names = sorted(tensors)
        files = {"a.bin": names[:30], "b.bin": names[30:]}
        for file, part in files.items():
            torch.save({name: tensors[name] for name in part}, folder / file)
        (folder / "pytorch_model.bin").unlink(missing_ok=True)
        index = {"weight_map": {name: file for file, part in files.items() for name in part}}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


def test_a_round_trip_keeps_bfloat16(folder, tmp_path):
    tensors = _tensors(torch.bfloat16)
    tensors["lm_head.weight"] = torch.nn.Parameter(tensors["lm_head.weight"])
    torch.save(tensors, folder / "pytorch_model.bin")
    config, params, origin, _ = pretrained.load(folder)
    pretrained.save(tmp_path / "out", config, params, origin)
    for name, tensor in hf_files.read_tensors(tmp_path / "out").items():
        assert tensor.dtype.name == "bfloat16"
        assert tensor.tobytes() == tensors[name].detach().view(torch.uint16).numpy().tobytes()


class Harmful:
    def __reduce__(self):
        return pathlib.Path.touch, (pathlib.Path("harmed"),)


def test_nothing_else_is_unpickled(folder, monkeypatch):
    monkeypatch.chdir(folder)
    path = folder / "pytorch_model.bin"
    for content in ({"shared.weight": Harmful()}, [1], {"step": 1}):
        torch.save(content, path)
        with pytest.raises(ConfigError, match=r"pytorch_model.bin"):
            pretrained.load(folder)
    path.write_bytes(pickle.dumps(Harmful(), protocol=2))
    with pytest.raises(ConfigError, match=r"pytorch_model.bin"):
        pretrained.load(folder)
    path.write_bytes(b"")
    with pytest.raises(ConfigError, match=r"pytorch_model.bin"):
        pretrained.load(folder)
    assert not (folder / "harmed").exists()

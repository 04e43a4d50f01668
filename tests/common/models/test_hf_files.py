import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from common.errors import ConfigError
from common.models import hf_files


def test_shards_hold_what_fits_and_the_index_names_them(tmp_path):
    tensors = {f"t{i}": np.full((size,), i, np.float32) for i, size in enumerate((2, 1, 9, 2))}
    hf_files.write_tensors(tmp_path, tensors, {"t0": "bfloat16"}, max_shard_bytes=8)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    # bfloat16 halves the first; the third is larger than a shard.
    shards = [f"model-0000{i}-of-00003.safetensors" for i in (1, 1, 2, 3)]
    assert index["weight_map"] == dict(zip(tensors, shards, strict=True))
    assert index["metadata"]["total_size"] == 4 + 4 + 36 + 8
    read = hf_files.read_tensors(tmp_path)
    assert read.pop("t0").dtype.name == "bfloat16"
    for name, tensor in read.items():
        np.testing.assert_array_equal(tensor, tensors[name])


def test_a_transposed_view_is_written_in_its_own_order(tmp_path):
    tensor = np.arange(6, dtype=np.float32).reshape(2, 3)
    hf_files.write_tensors(tmp_path, {"t": tensor.T}, {})
    np.testing.assert_array_equal(hf_files.read_tensors(tmp_path)["t"], tensor.T)


def test_tensors_that_are_no_weights_are_named(tmp_path):
    tensors = {"w": np.ones(1, np.float32), "ids": np.ones(1, np.int64), "d": np.ones(1)}
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(
        ConfigError, match=r"(d is float64|ids is int64); (d is float64|ids is int64)"
    ):
        hf_files.read_tensors(tmp_path)


@pytest.mark.parametrize("content", ["[]", "{}", '{"weight_map": {"t": 1}}', "{"])
def test_an_index_that_is_none_is_named(tmp_path, content):
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ConfigError, match=r"model.safetensors.index.json"):
        hf_files.read_tensors(tmp_path)


def test_a_shard_that_is_missing_is_named(tmp_path):
    index = {"weight_map": {"t": "model-00001-of-00001.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ConfigError, match=r"model-00001-of-00001.safetensors"):
        hf_files.read_tensors(tmp_path)

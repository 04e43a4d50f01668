"""Against numbers that transformers' RobertaModel computed on random weights."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from common.errors import ConfigError
from common.models import roberta

GOLDEN = Path(__file__).parents[2] / "golden" / "roberta"


@pytest.fixture(scope="module")
def reference():
    return dict(np.load(GOLDEN / "reference.npz"))


def test_states_agree_at_every_length_up_to_the_longest(reference):
    config, params = roberta.load(GOLDEN)
    ids = reference["input_ids"]
    assert ids.shape[1] == config.max_tokens
    states = jax.jit(roberta.encode, static_argnums=1)(params, config, ids)
    real = ids != config.pad_token_id
    assert real.sum(1).tolist() == [32, 20, 7, 2]
    np.testing.assert_allclose(states[real], reference["states"][real], atol=1e-5)


def test_a_text_is_the_mean_of_its_tokens_whatever_the_padding(reference):
    config, params = roberta.load(GOLDEN)
    ids, states = reference["input_ids"][2:3], reference["states"][2]
    for length in (7, 16):
        encoding = roberta.encode_texts(params, config, ids[:, :length])
        np.testing.assert_allclose(encoding[0], states[:7].mean(0), atol=1e-5)


@pytest.fixture
def copy(tmp_path):
    """A checkpoint that a test may spoil: returns (folder, tensors, save)."""
    shutil.copy(GOLDEN / "config.json", tmp_path)
    tensors = load_file(GOLDEN / "model.safetensors")
    return tmp_path, tensors, lambda t: save_file(t, tmp_path / "model.safetensors")


def test_a_model_with_a_head_loads_too(copy):
    folder, tensors, save = copy
    headed = {f"roberta.{name}": x for name, x in tensors.items() if "pooler" not in name}
    save(headed | {"lm_head.bias": np.zeros(48, np.float32)})
    _, expected = roberta.load(GOLDEN)
    jax.tree.map(np.testing.assert_array_equal, roberta.load(folder)[1], expected)


def test_tensors_that_do_not_fit_are_named(copy):
    folder, tensors, save = copy
    del tensors["embeddings.LayerNorm.bias"]
    tensors["encoder.layer.1.output.dense.weight"] = np.zeros((24, 47), np.float32)
    tensors["encoder.layer.2.output.dense.bias"] = np.zeros(24, np.float32)
    save(tensors)
    with pytest.raises(ConfigError) as error:
        roberta.load(folder)
    message = str(error.value)
    assert "embeddings.LayerNorm.bias is missing" in message
    assert "encoder.layer.1.output.dense.weight is [24, 47], not [24, 48]" in message
    assert "encoder.layer.2.output.dense.bias is left over" in message


def test_what_is_no_roberta_is_refused(copy):
    folder, tensors, save = copy
    with pytest.raises(ConfigError, match="holds no RoBERTa"):
        roberta.load(folder)
    save(tensors)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(ConfigError, match=r"is .'bert', 'gelu'., not .'roberta', 'gelu'.\."):
        roberta.load(folder)

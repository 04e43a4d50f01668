"""Against numbers computed by DigiRL's own PyTorch class on random weights."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from common.errors import ConfigError
from common.models import autoui, pretrained, sampling
from common.models.distribution import SamplingConfig

GOLDEN = Path(__file__).parents[2] / "golden"
MODELS = ("autoui_gated_untied", "autoui_relu_tied")
STEPS = 12  # of the greedy reference


@pytest.fixture(scope="module", params=MODELS)
def golden(request):
    folder = GOLDEN / request.param
    config, params = pretrained.load(folder, prompt_length=23, action_length=STEPS)
    reference = dict(np.load(folder / "reference.npz"))
    reference["grad_norms"] = json.loads((folder / "grad_norms.json").read_text())["grad_norms"]
    inputs = (
        jnp.asarray(reference["input_ids"], jnp.int32),
        jnp.asarray(reference["image_features"])[:, None],
    )
    return config, params, inputs, reference


def test_the_tensors_decide_what_is_tied(golden, request):
    config = golden[0]
    assert config.tied == (not config.gated)
    assert ("head" in golden[1]["t5"]) == config.gated


def test_logits_and_log_probs_agree(golden):
    config, params, inputs, reference = golden
    labels = jnp.asarray(reference["labels"], jnp.int32)
    logits = jax.jit(autoui.logits, static_argnums=1)(params, config, *inputs, labels)
    np.testing.assert_allclose(logits, reference["logits"], atol=1e-4)
    stats = jax.jit(autoui.token_stats, static_argnums=1)
    log_probs = stats(params, config, *inputs, labels).log_probs
    expected = np.where(labels > 0, reference["label_logprobs"], 0)
    np.testing.assert_allclose(log_probs, expected, atol=1e-4)


def test_greedy_tokens_agree(golden):
    config, params, inputs, reference = golden
    greedy = sampling.sampler(config, SamplingConfig(0.0))
    action_ids, _ = greedy(params, *inputs, jax.random.key(0))
    np.testing.assert_array_equal(action_ids, reference["greedy"][:, 1:])


def test_loss_and_gradient_norms_agree(golden):
    config, params, inputs, reference = golden
    labels = jnp.asarray(reference["labels"], jnp.int32)

    def loss(params):
        log_probs = autoui.token_stats(params, config, *inputs, labels).log_probs
        return -log_probs.sum() / jnp.sum(labels > 0)

    value, gradient = jax.jit(jax.value_and_grad(loss))(params)
    np.testing.assert_allclose(value, reference["loss"], rtol=1e-5)
    flat = {
        "/".join(key.key for key in path): float(jnp.sum(leaf**2))
        for path, leaf in jax.tree_util.tree_leaves_with_path(gradient)
    }
    squares: dict[str, float] = {}
    for ours, name in pretrained._names(config):
        joint = name.split("[")[0]
        squares[joint] = squares.get(joint, 0.0) + flat[ours]
    assert squares.keys() == reference["grad_norms"].keys()
    for name, norm in reference["grad_norms"].items():
        assert squares[name] ** 0.5 == pytest.approx(norm, rel=1e-3, abs=1e-6), name


@pytest.fixture
def copy(tmp_path):
    """A checkpoint in one file that a test may spoil: returns (folder, tensors, save)."""
    source = GOLDEN / MODELS[0]
    shutil.copy(source / "config.json", tmp_path)
    tensors = {}
    for shard in source.glob("*.safetensors"):
        tensors.update(load_file(shard))
    return tmp_path, tensors, lambda: save_file(tensors, tmp_path / "model.safetensors")


def test_aliases_of_the_embedding_are_accepted(copy):
    folder, tensors, save = copy
    tensors["encoder.embed_tokens.weight"] = tensors["shared.weight"]
    save()
    config, params = pretrained.load(folder)
    assert not config.tied
    np.testing.assert_array_equal(params["t5"]["head"], tensors["lm_head.weight"].T)


def test_an_untied_model_without_a_head_is_not_scaled(copy):
    folder, tensors, save = copy
    del tensors["lm_head.weight"]
    save()
    config, params = pretrained.load(folder)
    assert not config.tied
    np.testing.assert_array_equal(params["t5"]["head"], tensors["shared.weight"].T)


def test_tensors_that_do_not_fit_are_named(copy):
    folder, tensors, save = copy
    del tensors["encoder.final_layer_norm.weight"]
    tensors["gate_dense.weight"] = tensors["gate_dense.weight"][:, :-1]
    tensors["encoder.block.3.layer.0.layer_norm.weight"] = np.ones(64, np.float32)
    tensors["mha_layer.in_proj_weight"] = tensors["mha_layer.in_proj_weight"][:-1]
    save()
    with pytest.raises(ConfigError) as error:
        pretrained.load(folder)
    message = str(error.value)
    assert "encoder.final_layer_norm.weight is missing" in message
    assert "gate_dense.weight is [64, 127], not [64, 128]" in message
    assert "encoder.block.3.layer.0.layer_norm.weight is left over" in message
    assert "mha_layer.in_proj_weight[v] is [63, 64], not [64, 64]" in message


def test_files_that_cannot_be_read_are_named(copy):
    folder, _, _ = copy
    with pytest.raises(ConfigError, match="safetensors"):
        pretrained.load(folder)
    (folder / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ConfigError, match="safetensors"):
        pretrained.load(folder)
    (folder / "config.json").write_text('{"d_model": 64}')
    with pytest.raises(ConfigError, match="safetensors"):
        pretrained.load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ConfigError, match="config"):
        pretrained.load(folder)

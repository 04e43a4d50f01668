"""Against numbers computed by DigiRL's own PyTorch class on random weights."""

import dataclasses
import functools
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from common.errors import ConfigError
from common.models import autoui, hf_files, hf_layout, pretrained, sampling
from common.models.distribution import SamplingConfig

GOLDEN = Path(__file__).parents[2] / "golden"
MODELS = ("autoui_gated_untied", "autoui_relu_tied")
STEPS = 12  # of the greedy reference


@pytest.fixture(scope="module", params=MODELS)
def golden(request):
    folder = GOLDEN / request.param
    config, params, _, _ = pretrained.load(folder, prompt_length=23, action_length=STEPS)
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
    for ours, name in hf_layout.names(config):
        joint = name.split("[")[0]
        squares[joint] = squares.get(joint, 0.0) + flat[ours]
    assert squares.keys() == reference["grad_norms"].keys()
    for name, norm in reference["grad_norms"].items():
        assert squares[name] ** 0.5 == pytest.approx(norm, rel=1e-3, abs=1e-6), name


@pytest.fixture
def copy(tmp_path):
    """A checkpoint in one file that a test may spoil: returns (folder, tensors, save)."""
    folder = tmp_path / "copy"
    folder.mkdir()
    shutil.copy(GOLDEN / MODELS[0] / "config.json", folder)
    tensors = hf_files.read_tensors(GOLDEN / MODELS[0])
    return folder, tensors, lambda: save_file(tensors, folder / "model.safetensors")


def _settings(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def _assert_comes_back(folder, tmp_path, max_shard_bytes=10**9):
    """Loads, keeps what JSON can hold, saves, and compares every bit; returns what was written."""
    config, params, origin, _ = pretrained.load(folder)
    origin = pretrained.Origin.from_dict(json.loads(json.dumps(origin.to_dict())))
    written = tmp_path / "written"
    pretrained.save(written, config, params, origin, max_shard_bytes)
    before, after = hf_files.read_tensors(folder), hf_files.read_tensors(written)
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert (after[name].dtype, after[name].shape) == (tensor.dtype, tensor.shape), name
        assert after[name].tobytes() == tensor.tobytes(), name
    assert json.loads((written / "config.json").read_text()) == origin.settings
    return written


@pytest.mark.parametrize("max_shard_bytes", [10**9, 300_000])
@pytest.mark.parametrize("name", MODELS)
def test_a_round_trip_is_bitwise(name, max_shard_bytes, tmp_path):
    written = _assert_comes_back(GOLDEN / name, tmp_path, max_shard_bytes)
    assert len(list(written.glob("*.safetensors"))) == (1 if max_shard_bytes == 10**9 else 6)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_round_trip_keeps_half_precision_and_names_that_share_a_tensor(copy, tmp_path, dtype):
    folder, tensors, save = copy
    for name in tensors:
        tensors[name] = tensors[name].astype(dtype)
    tensors["encoder.final_layer_norm.weight"] = np.full(64, 1 / 3, np.float32)
    tensors["encoder.embed_tokens.weight"] = tensors["shared.weight"]
    relative = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    tensors[relative] = np.linspace(-1, 1, 128).reshape(32, 4).astype(dtype)  # of old T5s
    save()
    _assert_comes_back(folder, tmp_path)


def test_a_round_trip_keeps_a_head_that_is_the_embedding_and_one_that_is_missing(copy, tmp_path):
    folder, tensors, save = copy
    tensors["lm_head.weight"] = tensors["shared.weight"]
    save()
    _assert_comes_back(folder, tmp_path / "copied")
    _settings(folder, tie_word_embeddings=True)
    assert pretrained.load(folder).config.tied
    _assert_comes_back(folder, tmp_path / "tied")
    _settings(folder, tie_word_embeddings=False)
    del tensors["lm_head.weight"]
    save()
    _assert_comes_back(folder, tmp_path / "missing")


def test_what_was_trained_is_written_and_the_bias_without_effect_is_kept(copy, tmp_path):
    folder, tensors, save = copy
    del tensors["lm_head.weight"]
    save()
    config, params, origin, _ = pretrained.load(folder)
    trained = jax.tree.map(lambda leaf: leaf + 1, params)
    trained["t5"]["head"] += 1
    pretrained.save(tmp_path / "trained", config, trained, origin)
    written = hf_files.read_tensors(tmp_path / "trained")
    head = written.pop("lm_head.weight")  # it is no copy any more
    np.testing.assert_array_equal(head, tensors["shared.weight"] + 1 + 1)
    for name in tensors:
        change = np.full(tensors[name].shape, 1, np.float32)
        if name == "mha_layer.in_proj_bias":
            change[64:128] = 0
        np.testing.assert_array_equal(written[name], tensors[name] + change, err_msg=name)


def test_a_fresh_model_is_written_and_read(tmp_path):
    for tied in (False, True):
        config = dataclasses.replace(
            autoui.PRESETS["tiny"], image_grid=None, image_dim=8, image_tokens=1, tied=tied
        )
        rng = np.random.default_rng(0)
        params = jax.tree.map(
            lambda leaf: rng.normal(size=leaf.shape).astype(np.float32),  # noqa: B023
            jax.eval_shape(functools.partial(autoui.init, config), jax.random.key(0)),
        )
        folder = tmp_path / str(tied)
        pretrained.save(folder, config, params)
        loaded = pretrained.load(folder, config.prompt_length, config.action_length)
        assert loaded.config == config
        jax.tree.map(np.testing.assert_array_equal, loaded.params, params)
        assert not loaded.origin.unused["mha_layer.in_proj_bias[k]"].any()


def test_a_model_of_patches_is_not_written(tmp_path):
    with pytest.raises(ConfigError, match="reads patches of the screen"):
        pretrained.save(tmp_path / "x", autoui.PRESETS["tiny"], {})
    assert not (tmp_path / "x").exists()


def test_a_plain_t5_gets_a_fresh_fusion(copy):
    folder, tensors, save = copy
    for name in [name for name in tensors if name.startswith(hf_layout.FUSION)]:
        del tensors[name]
    save()
    loaded = pretrained.load(folder, seed=1)
    assert loaded.text_only
    assert loaded.config.image_dim == 1408
    assert loaded.params["image"]["dense"]["kernel"].shape == (1408, 64)
    np.testing.assert_array_equal(loaded.params["t5"]["embedding"], tensors["shared.weight"])
    shapes = jax.eval_shape(lambda: autoui.init(loaded.config, jax.random.key(0)))
    assert jax.tree.map(np.shape, loaded.params) == jax.tree.map(lambda x: x.shape, shapes)
    other = pretrained.load(folder, seed=2).params["fusion"]["k"]
    assert (other != loaded.params["fusion"]["k"]).all()


def test_half_a_fusion_is_no_plain_t5(copy):
    folder, tensors, save = copy
    del tensors["image_dense.weight"], tensors["mha_layer.in_proj_bias"]
    save()
    with pytest.raises(ConfigError) as error:
        pretrained.load(folder)
    for name in ("image_dense.weight", "mha_layer.in_proj_bias[q]", "mha_layer.in_proj_bias[v]"):
        assert f"{name} is missing" in str(error.value)


def test_an_alias_that_is_none_is_refused(copy):
    folder, tensors, save = copy
    tensors["decoder.embed_tokens.weight"] = tensors["shared.weight"] + 1
    save()
    with pytest.raises(ConfigError, match=r"decoder.embed_tokens.weight is not shared.weight"):
        pretrained.load(folder)


def test_an_alias_alone_is_the_embedding(copy, tmp_path):
    folder, tensors, save = copy
    tensors["decoder.embed_tokens.weight"] = tensors.pop("shared.weight")
    save()
    _assert_comes_back(folder, tmp_path)


def test_aliases_of_the_embedding_are_accepted(copy):
    folder, tensors, save = copy
    tensors["encoder.embed_tokens.weight"] = tensors["shared.weight"]
    save()
    config, params, _, _ = pretrained.load(folder)
    assert not config.tied
    np.testing.assert_array_equal(params["t5"]["head"], tensors["lm_head.weight"].T)


def test_an_untied_model_without_a_head_is_not_scaled(copy):
    folder, tensors, save = copy
    del tensors["lm_head.weight"]
    save()
    config, params, _, _ = pretrained.load(folder)
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

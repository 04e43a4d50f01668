"""Against numbers computed by transformers' Blip2VisionModel and processor on random weights."""

import json
import shutil
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from common.errors import ConfigError
from common.models import blip2, vit

GOLDEN = Path(__file__).parents[2] / "golden" / "blip2_vision"
SIZE = 28


@pytest.fixture(scope="module")
def reference():
    return dict(np.load(GOLDEN / "reference.npz"))


@pytest.fixture(scope="module")
def tower():
    return blip2.load(GOLDEN)


@pytest.fixture
def copy(tmp_path):
    """The golden folder without its tensors; returns (folder, tensors)."""
    shutil.copy(GOLDEN / "config.json", tmp_path)
    return tmp_path, load_file(GOLDEN / "model.safetensors")


def images(count):
    rng = np.random.default_rng(count)
    return [rng.integers(0, 256, (40 + i, 30, 3)).astype(np.uint8) for i in range(count)]


def test_pixels_agree(reference):
    found = blip2.preprocess(reference["image"], SIZE)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.transpose(2, 0, 1), reference["pixel_values"], atol=1e-6)


def test_states_and_pooled_output_agree(tower, reference):
    config, params = tower
    assert config == vit.PRESETS["small"]
    pixels = reference["pixel_values"].transpose(1, 2, 0)[None]
    found = jax.jit(vit.encode, static_argnums=1)(params, config, pixels)
    np.testing.assert_allclose(found.states[0], reference["last_hidden_state"], atol=1e-5)
    np.testing.assert_allclose(found.pooled[0], reference["pooler_output"], atol=1e-5)


def test_the_parameters_are_those_that_init_makes(tower):
    config, params = tower
    made = jax.eval_shape(lambda: vit.init(config, jax.random.key(0)))
    assert jax.tree.map(np.shape, params) == jax.tree.map(np.shape, made)


def test_the_features_of_a_screen_are_the_pooled_output(tower, reference):
    extract = blip2.Blip2(*tower)
    found = extract(reference["image"])
    assert (found.shape, found.dtype) == (extract.shape, np.float32) == ((1, 32), np.float32)
    np.testing.assert_allclose(found[0], reference["pooler_output"], atol=1e-5)


def test_any_number_of_screens_takes_four_compilations(tower, monkeypatch):
    traced, encode = [], vit.encode

    def counted(params, config, pixels):
        traced.append(len(pixels))
        return encode(params, config, pixels)

    monkeypatch.setattr(vit, "encode", counted)
    extract = blip2.Blip2(*tower)
    alone = [extract(image) for image in images(11)]
    for count in (0, 2, 3, 8, 5, 11, 7, 9):
        found = extract.batch(images(11)[:count])
        assert found.shape == (count, 1, 32)
        np.testing.assert_allclose(found, np.array(alone[:count]).reshape(-1, 1, 32), atol=1e-5)
    assert sorted(traced) == [1, 2, 4, 8]


def test_of_a_whole_blip_2_only_the_tower_s_shards_are_read(copy, tower):
    folder, tensors = copy
    settings = json.loads((folder / "config.json").read_text())
    whole = {"model_type": "blip-2", "vision_config": settings, "text_config": {}}
    (folder / "config.json").write_text(json.dumps(whole))
    files = {}
    for number, (name, tensor) in enumerate(sorted(tensors.items())):
        shard = f"model-{number % 2}.safetensors"
        files.setdefault(shard, {})[f"vision_model.{name}"] = tensor
    files["model-0.safetensors"]["query_tokens"] = np.ones((1, 2, 3), np.float32)
    for shard, content in files.items():
        save_file(content, folder / shard)
    places = {name: shard for shard, content in files.items() for name in content}
    places["language_model.lm_head.weight"] = "model-2.safetensors"  # which is not there
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    config, params = blip2.load(folder)
    assert config == tower[0]
    jax.tree.map(np.testing.assert_array_equal, params, tower[1])


def test_what_a_config_leaves_out_is_vit_g_s(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "blip-2", "vision_config": {}}')
    assert blip2.read_config(tmp_path) == vit.PRESETS["vit-g"]


@pytest.mark.parametrize(("dtype", "within"), [(np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)])
def test_weights_of_half_the_size_load(copy, reference, dtype, within):
    folder, tensors = copy
    save_file({k: v.astype(dtype) for k, v in tensors.items()}, folder / "model.safetensors")
    config, params = blip2.load(folder)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype(np.float32)}
    found = blip2.Blip2(config, params)(reference["image"])
    np.testing.assert_allclose(found[0], reference["pooler_output"], atol=within)


def test_bfloat16_halves_the_weights_and_stays_close(reference):
    config, params = blip2.load(GOLDEN, "bfloat16")
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype(ml_dtypes.bfloat16)}
    found = blip2.Blip2(config, params)(reference["image"])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[0], reference["pooler_output"], atol=0.05)


def test_tensors_that_do_not_fit_are_named(copy):
    folder, tensors = copy
    del tensors["post_layernorm.bias"]
    tensors["embeddings.patch_embedding.weight"] = np.ones((32, 3, 8, 8), np.float32)
    name = "encoder.layers.1.self_attn.qkv.weight"
    tensors[name] = tensors[name][:-1]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ConfigError) as error:
        blip2.load(folder)
    said = str(error.value)
    assert "post_layernorm.bias is missing" in said
    assert "embeddings.patch_embedding.weight is [32, 3, 8, 8], not [32, 3, 7, 7]" in said
    assert f"{name} is [95, 32], not [96, 32]" in said
    assert said.count(" is ") == 3


def test_files_that_cannot_be_read_are_named(copy):
    folder, tensors = copy
    with pytest.raises(ConfigError, match=r"Cannot read .*model\.safetensors"):
        blip2.load(folder)
    (folder / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ConfigError, match=r"Cannot read .*model\.safetensors"):
        blip2.load(folder)
    save_file({"a": np.ones(1, np.float32)}, folder / "model.safetensors")
    names = dict.fromkeys(tensors, "model.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    with pytest.raises(ConfigError, match=r"Cannot read embeddings.class_embedding in .*\.saf"):
        blip2.load(folder)
    (folder / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ConfigError, match="has no weight_map"):
        blip2.load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"Cannot read .*config\.json"):
        blip2.load(folder)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model_type": "t5"}, "a model of type 't5', not blip-2"),
        ({"hidden_act": "quick_gelu"}, "hidden_act is 'quick_gelu'; only 'gelu' is known"),
        ({"image_size": 30}, "image_size 30 is no multiple of patch_size 7"),
        ({"num_attention_heads": 0}, "num_heads is 0; it must be a positive integer"),
    ],
)
def test_another_model_is_refused(copy, changes, sentence):
    folder, _ = copy
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | changes))
    with pytest.raises(ConfigError, match=sentence):
        blip2.load(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"size": {"height": 384, "width": 384}},
        {"do_center_crop": True},
        {"do_normalize": False},
        {"resample": 2},
        {"image_mean": [0.5, 0.5, 0.5]},
    ],
)
def test_another_processing_of_images_is_refused(copy, changes):
    folder, tensors = copy
    save_file(tensors, folder / "model.safetensors")
    settings = {
        "size": {"height": SIZE, "width": SIZE},
        "do_center_crop": None,
        "rescale_factor": 0.00392156862745098,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_processor_type": "BlipImageProcessor",
    }
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(settings))
    blip2.load(folder)
    path.write_text(json.dumps(settings | changes))
    with pytest.raises(ConfigError, match=f"{next(iter(changes))} is .*; only .* is supported"):
        blip2.load(folder)

"""BLIP-2's vision tower and processor, next to transformers' own on random weights."""

from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from common.models import blip2, vit  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "blip2_vision"
TINY = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 42,
    "patch_size": 14,
}
SMALL = {
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 5,
    "num_attention_heads": 6,
    "image_size": 112,
    "patch_size": 8,
    "qkv_bias": False,
    "layer_norm_eps": 1e-5,
}
ONE_LAYER = {"num_hidden_layers": 1}  # of ViT-g, at full width and 257 positions
SIZES = pytest.mark.parametrize("size", [TINY, SMALL, ONE_LAYER], ids=["tiny", "small", "vit-g"])


def randomize(model):
    """Weights that let every product pass on about as much as it was given, and no bias of 0."""
    torch.manual_seed(0)
    for name, tensor in model.named_parameters():
        norm = "norm" in name and name.endswith("weight")
        std = tensor[0].numel() ** -0.5 if tensor.ndim in (2, 4) else 0.1
        torch.nn.init.normal_(tensor, float(norm), std)
    return model.eval()


def tower(size):
    return randomize(transformers.Blip2VisionModel(transformers.Blip2VisionConfig(**size)))


def both(model, config, params, images):
    """Returns transformers' states and pooled output, and ours, of the same pixels."""
    pixels = np.stack([blip2.preprocess(image, config.image_size) for image in images])
    with torch.no_grad():
        theirs = model(torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy()))
    ours = jax.jit(vit.encode, static_argnums=1)(params, config, pixels)
    return (theirs.last_hidden_state.numpy(), theirs.pooler_output.numpy()), ours


def screens(count):
    rng = np.random.default_rng(1)
    return [rng.integers(0, 256, (96, 60, 3)).astype(np.uint8) for _ in range(count)]


@SIZES
def test_all_outputs_agree(size, tmp_path):
    model = tower(size)
    model.save_pretrained(tmp_path)
    config, params = blip2.load(tmp_path)
    theirs, ours = both(model, config, params, screens(2))
    assert 1 < np.abs(theirs[0]).max() < 20
    for expected, found in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-4)


@SIZES
def test_bfloat16_stays_within_a_tenth_of_a_state_s_spread(size, tmp_path):
    """States have the spread 1 after the norm; 8 bits of mantissa lose up to 2^-9 a product."""
    model = tower(size)
    model.save_pretrained(tmp_path)
    config, params = blip2.load(tmp_path, "bfloat16")
    assert params["class"].dtype == ml_dtypes.bfloat16
    theirs, ours = both(model, config, params, screens(2))
    for expected, found in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(found, expected, atol=0.1)
        assert np.sqrt(np.mean((found - expected) ** 2)) < 0.02


def test_a_whole_blip_2_in_shards_gives_its_tower_s_features(tmp_path):
    text = transformers.OPTConfig(
        vocab_size=64, hidden_size=32, ffn_dim=64, num_hidden_layers=1, num_attention_heads=2,
        word_embed_proj_dim=32,
    )  # fmt: skip
    former = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    former |= {"intermediate_size": 64, "encoder_hidden_size": TINY["hidden_size"]}
    settings = transformers.Blip2Config(
        vision_config=TINY, qformer_config=former, text_config=text.to_dict()
    )
    model = randomize(transformers.Blip2Model(settings))
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    extract = blip2.Blip2(*blip2.load(tmp_path))
    (image,) = screens(1)
    processor = transformers.BlipImageProcessorPil(size={"height": 42, "width": 42})
    with torch.no_grad():  # as DigiRL does
        expected = model.get_image_features(**processor(images=image, return_tensors="pt"))
    np.testing.assert_allclose(extract(image), expected.pooler_output, atol=1e-4)


@pytest.mark.parametrize("shape", [(2400, 1080), (960, 540), (1080, 2400), (224, 224), (31, 50)])
def test_pixels_agree(shape):
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3)).astype(np.uint8)
    processor = transformers.BlipImageProcessorPil(size={"height": 224, "width": 224})
    expected = processor(images=image, return_tensors="np")["pixel_values"][0]
    found = blip2.preprocess(image, 224).transpose(2, 0, 1)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_golden_numbers_are_what_transformers_computes():
    model = transformers.Blip2VisionModel.from_pretrained(GOLDEN).eval()
    reference = np.load(GOLDEN / "reference.npz")
    processor = transformers.BlipImageProcessorPil(size={"height": 28, "width": 28})
    inputs = processor(images=reference["image"], return_tensors="pt")
    np.testing.assert_allclose(inputs["pixel_values"][0], reference["pixel_values"], atol=1e-6)
    with torch.no_grad():
        found = model(**inputs)
    for name in ("last_hidden_state", "pooler_output"):
        np.testing.assert_allclose(found[name][0], reference[name], atol=1e-5)

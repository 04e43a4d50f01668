import dataclasses
from pathlib import Path

import numpy as np
import pytest

from common.errors import ConfigError
from common.models import autoui, vision
from common.models.vision import patches

GOLDEN = Path(__file__).parents[2] / "golden" / "blip2_vision"


def test_patches_are_means_of_blocks_in_reading_order():
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (960, 540, 3)).astype(np.uint8)
    found = patches(image)
    assert found.shape == (144, 108)
    assert found.dtype == np.uint8
    small = image.reshape(96, 10, 54, 10, 3).mean((1, 3))
    for row, column in ((0, 0), (0, 8), (7, 3), (15, 8)):
        block = small[row * 6 : row * 6 + 6, column * 6 : column * 6 + 6]
        np.testing.assert_allclose(found[row * 9 + column], block.reshape(-1), atol=1)


@pytest.mark.parametrize("shape", [(640, 360), (2280, 1080), (50, 40), (96, 54)])
def test_a_screen_of_any_size_and_layout_will_do(shape):
    image = np.full((*shape, 3), (10, 20, 30), np.uint8)
    for view in (image, image[::-1], np.asfortranarray(image)):
        np.testing.assert_array_equal(patches(view), np.tile((10, 20, 30), (144, 36)))


def screens(count):
    return np.random.default_rng(0).integers(0, 256, (count, 6, 4, 3)).astype(np.uint8)


class Counting:
    """Features that say how many screens were encoded before."""

    def __init__(self):
        self.calls = 0

    def __call__(self, image):
        self.calls += 1
        return np.full((1, 2), self.calls, np.float32)


def test_an_unchanged_screen_is_encoded_once():
    cached, (a, b) = vision.Cached(Counting()), screens(2)
    assert [cached(image)[0, 0] for image in (a, b, a.copy(), np.asfortranarray(a), b)] == [
        1, 2, 1, 1, 2
    ]  # fmt: skip
    assert (cached.hits, cached.misses) == (3, 2)


def test_the_same_bytes_in_another_shape_are_another_screen():
    cached, (a,) = vision.Cached(Counting()), screens(1)
    assert cached(a)[0, 0] != cached(a.reshape(4, 6, 3))[0, 0]


def test_the_screen_that_was_not_seen_for_longest_is_forgotten():
    cached, (a, b, c) = vision.Cached(Counting(), capacity=2), screens(3)
    assert [cached(image)[0, 0] for image in (a, b, a, c, a, b)] == [1, 2, 1, 3, 1, 4]
    assert (cached.hits, cached.misses) == (2, 4)


def test_what_is_remembered_can_not_be_spoilt():
    features = vision.Cached(Counting())(screens(1)[0])
    with pytest.raises(ValueError, match="read-only"):
        features += 1


def takes(image_dim=32, image_tokens=1):
    config = autoui.PRESETS["small"]
    return dataclasses.replace(config, image_dim=image_dim, image_tokens=image_tokens)


def test_a_model_of_pixels_takes_patches():
    assert vision.extractor(autoui.PRESETS["tiny"]) is patches


def test_a_model_of_blip_2_s_features_takes_the_folder_s_and_all_models_share_it():
    vision._blip2.cache_clear()
    extract = vision.extractor(takes(), GOLDEN)
    reference = np.load(GOLDEN / "reference.npz")
    found = extract(reference["image"])
    np.testing.assert_allclose(found, reference["pooler_output"][None], atol=1e-5)
    again = vision.extractor(dataclasses.replace(takes(), prompt_length=8), GOLDEN)
    assert again is extract
    again(reference["image"])
    assert (extract.hits, extract.misses) == (1, 1)


@pytest.mark.parametrize(
    ("config", "folder", "sentence"),
    [
        (autoui.PRESETS["tiny"], GOLDEN, "takes the pixels of the screen: leave --vision-folder"),
        (takes(), None, "give the folder of BLIP-2, or of its vision model, with --vision-folder"),
        (takes(1408), GOLDEN, r"shape \(1, 1408\); the vision model in .* makes \(1, 32\)"),
        (takes(image_tokens=2), GOLDEN, r"shape \(2, 32\)"),
        (takes(), Path("/nowhere"), r"Cannot read /nowhere/config\.json"),
    ],
)
def test_a_model_and_a_folder_that_do_not_go_together(config, folder, sentence):
    with pytest.raises(ConfigError, match=sentence):
        vision.extractor(config, folder)

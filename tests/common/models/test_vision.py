import numpy as np
import pytest

from common.models.vision import patches


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

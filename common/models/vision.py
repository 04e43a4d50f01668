"""Screens to image tokens: a fixed function, so that it can run on the actor."""

from __future__ import annotations

import numpy as np
from PIL import Image

ROWS, COLUMNS = 16, 9  # of patches; the screen's own shape at 9:16
PATCH = 6  # pixels


def patches(image: np.ndarray) -> np.ndarray:
    """Cuts a small copy of the screen into patches.

    Args:
      image: The screen, uint8 [H, W, 3], of any size.

    Returns:
      uint8 [144, 108]: patches in rows from the top left, each 6 x 6 pixels in RGB.
    """
    small = Image.fromarray(image).resize((COLUMNS * PATCH, ROWS * PATCH), Image.Resampling.BOX)
    grid = np.asarray(small).reshape(ROWS, PATCH, COLUMNS, PATCH, 3)
    return grid.transpose(0, 2, 1, 3, 4).reshape(ROWS * COLUMNS, PATCH * PATCH * 3)

"""Screens to image features: fixed functions, so that they can run on the actor.

A model's config says which features it takes: pixels of patches, or those of BLIP-2's vision tower,
whose weights are in a folder of the actor's machine.
"""

from __future__ import annotations

import collections
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from common.errors import ConfigError
from common.models import blip2
from common.models.autoui import AutoUIConfig

ROWS, COLUMNS = 16, 9  # of patches; the screen's own shape at 9:16
PATCH = 6  # pixels
CACHED_SCREENS = 1024  # 6 MB of BLIP-2's features


class FeatureExtractor(Protocol):
    """Maps a screen uint8 [H, W, 3] of any size to features [N, C] of one shape and dtype."""

    def __call__(self, image: np.ndarray, /) -> np.ndarray: ...


Extractor = Callable[[AutoUIConfig], FeatureExtractor]  # as `extractor`, with its folder


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


class Cached:
    """An extractor that remembers the features of the screens that it saw last.

    Attributes:
      hits: Screens whose features were known.
      misses: Screens that were encoded.
    """

    def __init__(self, extract: FeatureExtractor, capacity: int = CACHED_SCREENS):
        self._extract = extract
        self._capacity = capacity
        self._known: collections.OrderedDict[bytes, np.ndarray] = collections.OrderedDict()
        self.hits = self.misses = 0

    def __call__(self, image: np.ndarray) -> np.ndarray:
        """Returns features that nobody may write to."""
        digest = hashlib.sha256(np.ascontiguousarray(image).data)
        digest.update(str(image.shape).encode())
        key = digest.digest()
        features = self._known.get(key)
        if features is None:
            self.misses += 1
            features = self._known[key] = self._extract(image)
            features.flags.writeable = False
            if len(self._known) > self._capacity:
                self._known.popitem(last=False)
        else:
            self.hits += 1
            self._known.move_to_end(key)
        return features


def extractor(
    config: AutoUIConfig, folder: Path | None = None, dtype: str = "float32"
) -> FeatureExtractor:
    """Returns what makes the features that a model takes.

    Args:
      config: Of the model.
      folder: Holds BLIP-2, or its vision tower; see `blip2.load`.
      dtype: Of the tower's matrix products and weights, float32 or bfloat16.

    Raises:
      ConfigError: The model needs a folder and there is none, or the other way round; or the
        folder's tower is of another width, or can't be read.
    """
    if config.image_grid is not None:
        if folder is not None:
            raise ConfigError(
                "The model takes the pixels of the screen: leave --vision-folder out."
            )
        return patches
    if folder is None:
        raise ConfigError(
            "The model takes an image encoder's features: give the folder of BLIP-2, or of its "
            "vision model, with --vision-folder."
        )
    width = blip2.read_config(folder).d_model
    if (config.image_tokens, config.image_dim) != (1, width):
        raise ConfigError(
            f"The model takes features of the shape ({config.image_tokens}, {config.image_dim}); "
            f"the vision model in {folder} makes (1, {width})."
        )
    return _blip2(folder, dtype)


@functools.cache
def _blip2(folder: Path, dtype: str) -> Cached:
    """One for all models of a process, as they come and go: it has 2 to 4 GB."""
    return Cached(blip2.Blip2(*blip2.load(folder, dtype)))

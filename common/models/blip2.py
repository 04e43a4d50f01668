"""BLIP-2's view of a screen: its image processor, its vision tower out of a folder, its features.

Auto-UI was trained on the pooled output of the vision tower of BLIP-2 (OPT 2.7 B), and so is what
DigiRL extracts: nothing of the Q-Former or of the language model is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from common.errors import ConfigError
from common.models import vit
from common.models.hf_files import read_json
from common.models.hf_lazy import LazyTensors
from common.models.vit import Params, ViTConfig

# Of CLIP's training images, RGB in 0..1.
MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
STD = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)
BATCHES = (1, 2, 4, 8)

KeyPath = tuple[Any, ...]

_PREFIX = "vision_model."  # of the tower's tensors in a whole BLIP-2
_NAMES = {  # of modules and parameters, ours and Hugging Face's
    "class": "embeddings.class_embedding",
    "positions": "embeddings.position_embedding",
    "patches": "embeddings.patch_embedding",
    "attention_norm": "layer_norm1",
    "attention": "self_attn",
    "ff_norm": "layer_norm2",
    "wi": "mlp.fc1",
    "wo": "mlp.fc2",
    "norm": "post_layernorm",
    "kernel": "weight",
    "scale": "weight",
}
_FIELDS = {  # of the config, ours and Hugging Face's
    "image_size": "image_size",
    "patch_size": "patch_size",
    "d_model": "hidden_size",
    "num_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
    "layers": "num_hidden_layers",
    "qkv_bias": "qkv_bias",
    "norm_epsilon": "layer_norm_eps",
}


class Blip2:
    """Features of screens: float32 [1, D], the pooled output of a frozen vision tower.

    Images go in batches of 1, 2, 4 or 8, so that it is compiled at most four times.
    """

    def __init__(self, config: ViTConfig, params: Params):
        self.shape = (1, config.d_model)
        self._size = config.image_size
        self._params = params
        self._encode = jax.jit(lambda params, pixels: vit.encode(params, config, pixels).pooled)

    def __call__(self, image: np.ndarray) -> np.ndarray:
        """Returns the features of a screen uint8 [H, W, 3] of any size."""
        return self.batch([image])[0]

    def batch(self, images: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the features [N, 1, D] of N screens."""
        features = np.zeros((len(images), *self.shape), np.float32)
        for start in range(0, len(images), BATCHES[-1]):
            part = images[start : start + BATCHES[-1]]
            size = next(size for size in BATCHES if size >= len(part))
            pixels = np.zeros((size, self._size, self._size, 3), np.float32)
            for row, image in enumerate(part):
                pixels[row] = preprocess(image, self._size)
            pooled = jax.device_get(self._encode(self._params, pixels))
            features[start : start + len(part), 0] = pooled[: len(part)]
        return features


def preprocess(image: np.ndarray, size: int) -> np.ndarray:
    """Returns what the vision tower takes for a screen uint8 [H, W, 3]: float32 [size, size, 3].

    As BLIP-2's processor: squeezed to a square, whatever its shape, with nothing cut off; then
    normalised as CLIP's training images.
    """
    square = Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC)
    return (np.asarray(square, np.float32) / 255 - MEAN) / STD


def load(folder: Path | str, dtype: str = "float32") -> tuple[ViTConfig, Params]:
    """Reads the vision tower of a folder with config.json and safetensors, sharded or not.

    Args:
      folder: Holds a Blip2VisionModel or a whole BLIP-2, of which only the tower is read.
      dtype: Of matrix products and of the parameters, float32 or bfloat16.

    Returns:
      Its config, and the parameters on JAX's default device.

    Raises:
      ConfigError: A file is missing or unreadable, it is no BLIP-2, its images are processed in
        another way, or tensors are missing or of another shape, all of which are named.
    """
    folder = Path(folder)
    config = read_config(folder, dtype)
    _check_processor(folder / "preprocessor_config.json", config.image_size)
    with LazyTensors(folder) as tensors:
        return config, convert(config, tensors, folder)


def read_config(folder: Path, dtype: str = "float32") -> ViTConfig:
    """Returns the vision tower's shape from config.json; ConfigError if it is no BLIP-2's."""
    settings = read_json(folder / "config.json")
    kind = settings.get("model_type")
    if kind not in ("blip-2", "blip_2_vision_model"):
        raise ConfigError(f"{folder / 'config.json'} is for a model of type {kind!r}, not blip-2.")
    if kind == "blip-2":
        settings = settings.get("vision_config") or {}  # what is left out is as in ViT-g
    if settings.get("hidden_act", "gelu") != "gelu":
        raise ConfigError(f"hidden_act is {settings['hidden_act']!r}; only 'gelu' is known.")
    given = {ours: settings[theirs] for ours, theirs in _FIELDS.items() if theirs in settings}
    return ViTConfig(**given, dtype=dtype)


def _check_processor(path: Path, image_size: int) -> None:
    """Raises ConfigError if the folder asks for other pixels than `preprocess` makes."""
    if not path.exists():
        return
    settings = read_json(path)
    for name, value in {
        "do_resize": True,
        "size": {"height": image_size, "width": image_size},
        "resample": int(Image.Resampling.BICUBIC),
        "do_center_crop": False,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": MEAN.tolist(),
        "image_std": STD.tolist(),
    }.items():
        found = settings.get(name)
        close = isinstance(value, list | float) and np.allclose(found or 0, value)
        if not (found is None or found == value or close):
            raise ConfigError(f"{path}: {name} is {found}; only {value} is supported.")


def convert(config: ViTConfig, tensors: LazyTensors, folder: Path) -> Params:
    """Returns the parameters out of a checkpoint's tensors; see `load` for what it raises."""
    prefix = _PREFIX if any(name.startswith(_PREFIX) for name in tensors.names) else ""
    shapes = jax.eval_shape(lambda: vit.init(config, jax.random.key(0)))
    leaves, structure = jax.tree_util.tree_flatten_with_path(shapes)
    names = [prefix + _their_name(path) for path, _ in leaves]
    problems = []
    for name, (path, leaf) in zip(names, leaves, strict=True):
        expected = _their_shape(path, leaf.shape, config)
        if name not in tensors.names:
            problems.append(f"{name} is missing")
        elif tensors.shape(name) != expected:
            problems.append(f"{name} is {list(tensors.shape(name))}, not {list(expected)}")
    if problems:
        raise ConfigError(f"The tensors in {folder} do not fit: {'; '.join(problems)}.")
    dtype = jnp.dtype(config.dtype)
    # Tensor by tensor: of ViT-g's 4 GB, no more than one is in memory twice.
    return jax.tree.unflatten(
        structure,
        [
            jnp.asarray(_ours(path, tensors.read(name), dtype))
            for name, (path, _) in zip(names, leaves, strict=True)
        ],
    )


def _their_name(path: KeyPath) -> str:
    return ".".join(
        _NAMES.get(key.key, key.key.replace("layer_", "encoder.layers.")) for key in path
    )


def _their_shape(path: KeyPath, shape: tuple[int, ...], config: ViTConfig) -> tuple[int, ...]:
    if path[0].key == "patches" and len(shape) == 2:
        return (config.d_model, 3, config.patch_size, config.patch_size)
    return shape[::-1] if path[-1].key == "kernel" else shape


def _ours(path: KeyPath, tensor: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Returns torch's tensor as our parameter: matrices transposed, the convolution as one."""
    if tensor.ndim == 4:
        tensor = tensor.transpose(0, 2, 3, 1).reshape(len(tensor), -1)
    return np.ascontiguousarray(tensor.T if path[-1].key == "kernel" else tensor, dtype)

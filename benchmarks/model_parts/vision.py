"""BLIP-2's vision tower at full size, one image, next to transformers' on the same weights."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
from transformers import Blip2VisionConfig, Blip2VisionModel

from common.models import blip2, vit

REPEATS = 5


class _StateDict:
    """A torch model's tensors, as `blip2` reads them from a folder."""

    def __init__(self, model: torch.nn.Module):
        self._tensors = model.state_dict()
        self.names = self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name].shape)

    def read(self, name: str) -> np.ndarray:
        return self._tensors[name].numpy()


def run(**size: int) -> Iterator[dict[str, Any]]:
    """Yields the row `vision`; `size` replaces settings of ViT-g, for a try on a small machine."""
    threads = len(os.sched_getaffinity(0))  # XLA's number, too
    torch.set_num_threads(threads)
    model = _random_model(Blip2VisionConfig(**size))
    config = vit.ViTConfig(
        layers=model.config.num_hidden_layers,
        d_model=model.config.hidden_size,
        d_ff=model.config.intermediate_size,
        num_heads=model.config.num_attention_heads,
    )
    params = blip2.convert(config, _StateDict(model), Path("memory"))
    image = np.random.default_rng(0).integers(0, 256, (2400, 1080, 3)).astype(np.uint8)
    pixels = blip2.preprocess(image, config.image_size)[None]
    theirs = torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy())
    encode = jax.jit(lambda params, pixels: vit.encode(params, config, pixels).pooled)

    def in_torch() -> np.ndarray:
        with torch.inference_mode():
            return model(theirs).pooler_output.numpy()

    def in_jax() -> np.ndarray:
        return np.asarray(encode(params, pixels))

    difference = np.abs(in_torch() - in_jax()).max()  # both are warm now
    times: dict[Callable[[], np.ndarray], list[float]] = {in_torch: [], in_jax: []}
    for _ in range(REPEATS):
        for measured, taken in times.items():
            began = time.perf_counter()
            measured()
            taken.append(time.perf_counter() - began)
    torch_s, jax_s = (statistics.median(taken) for taken in times.values())
    yield {
        "name": "vision",
        "ratio": round(jax_s / torch_s, 3),
        "jax_s": round(jax_s, 3),
        "torch_s": round(torch_s, 3),
        "jax_gflops": round(_gflop(config) / jax_s, 1),
        "layers": config.layers,
        "threads": threads,
        "max_abs": float(difference),
        "preprocess_s": round(_seconds(lambda: blip2.preprocess(image, config.image_size)), 4),
    }


def _random_model(config: Blip2VisionConfig) -> Blip2VisionModel:
    """Weights that let every product pass on about as much as it was given."""
    with torch.device("meta"):
        model = Blip2VisionModel(config)
    model = model.to_empty(device="cpu").eval()
    torch.manual_seed(0)
    for name, tensor in model.named_parameters():
        if "norm" in name:
            torch.nn.init.constant_(tensor, float(name.endswith("weight")))
        else:
            bound = 3**0.5 * (tensor[0].numel() ** -0.5 if tensor.ndim in (2, 4) else 0.1)
            torch.nn.init.uniform_(tensor, -bound, bound)
    return model


def _gflop(config: vit.ViTConfig) -> float:
    """Of the products of all layers for one image, in 10^9 operations."""
    positions, width = config.patches + 1, config.d_model
    weights = 4 * width * width + 2 * width * config.d_ff
    return 2e-9 * config.layers * positions * (weights + 2 * positions * width)


def _seconds(measured: Callable[[], object]) -> float:
    began = time.perf_counter()
    measured()
    return time.perf_counter() - began

"""Decoding and training of a T5-small next to transformers' in PyTorch, in one run.

Ours has Auto-UI's fusion on top, which theirs is spared. Threads are equal. The floor is what the
products of matrices alone would take at the best rate that this machine showed for them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from transformers import T5Config, T5ForConditionalGeneration

from benchmarks.model_parts.timing import medians, threads
from common.models import autoui
from common.models.distribution import SamplingConfig
from common.models.sampling import sampler
from learner import sharding
from learner.demonstrations import Steps
from learner.update import UpdateConfig, make_updates

SOURCE, TARGET = 128, 32  # tokens
ROUNDS = 5
SMALL = dataclasses.replace(
    autoui.PRESETS["small"], prompt_length=SOURCE, action_length=TARGET, image_tokens=1
)


def run() -> Iterator[dict[str, Any]]:
    """Yields decode_b1, decode_b8 and train_step; `ratio` is to PyTorch in float32."""
    torch.set_num_threads(threads())
    rate = gemm_gflops()
    for batch in (1, 8):
        yield _row(f"decode_b{batch}", _decoding(batch), decode_gflop(SMALL, batch), rate)
    yield _row("train_step", _training(8), train_gflop(SMALL, 8), rate)


def _row(
    name: str, ways: dict[str, Callable[[], Any]], gflop: float, rate: float
) -> dict[str, Any]:
    seconds = medians(ways, ROUNDS)
    floor_s = gflop / rate
    return {
        "name": name,
        "ratio": round(seconds["jax"] / seconds["torch"], 3),
        "ratio_bf16": round(seconds["jax"] / seconds["torch_bf16"], 3),
        **{f"{way}_ms": round(1000 * taken, 1) for way, taken in seconds.items()},
        "gemm_gflops": round(rate, 1),
        "jax_over_floor": round(seconds["jax"] / floor_s, 2),
        "torch_over_floor": round(seconds["torch"] / floor_s, 2),
        "threads": threads(),
    }


def _decoding(batch: int) -> dict[str, Callable[[], Any]]:
    """Greedy, the encoder included, to the last of the tokens."""
    params = autoui.init(SMALL, jax.random.key(0))
    sample = sampler(SMALL, SamplingConfig(temperature=0.0))
    inputs = _prompts(batch), np.ones((batch, 1, SMALL.image_dim), np.float32), jax.random.key(0)
    written = np.asarray(sample(params, *inputs)[0])
    assert (written > 1).all(), "random parameters ended an action early; take another seed"
    model = _torch_model().eval()
    ids = torch.from_numpy(_prompts(batch).astype(np.int64))

    half = _torch_model().eval().to(torch.bfloat16)

    def generate(model: T5ForConditionalGeneration) -> None:
        with torch.inference_mode():
            out = model.generate(
                ids, do_sample=False, min_new_tokens=TARGET, max_new_tokens=TARGET, use_cache=True
            )
        assert out.shape[1] == TARGET + 1

    return {
        "jax": lambda: jax.block_until_ready(sample(params, *inputs)),
        "torch": lambda: generate(model),
        "torch_bf16": lambda: generate(half),
    }


def _training(batch: int) -> dict[str, Callable[[], Any]]:
    """Forward, backward and Adam of maximum likelihood on whole targets."""
    mesh = sharding.make_mesh()
    updates = make_updates(SMALL, UpdateConfig(), SamplingConfig(), mesh)
    state = [updates.init(jax.random.key(0))]
    targets = _prompts(batch)[:, :TARGET]
    steps = Steps(
        _prompts(batch),
        np.ones((batch, 1, SMALL.image_dim), np.float32),
        targets,
        np.full(batch, -1),
    )
    model = _torch_model().train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    ids, labels = (torch.from_numpy(x.astype(np.int64)) for x in (steps.prompt_ids, targets))

    def in_jax() -> None:
        state[0], report = updates.imitate(state[0], steps)
        jax.block_until_ready((state[0].params, report))

    def in_torch() -> None:
        optimizer.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()

    def in_torch_bf16() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()

    return {"jax": in_jax, "torch": in_torch, "torch_bf16": in_torch_bf16}


def _torch_model() -> T5ForConditionalGeneration:
    torch.manual_seed(0)
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=SMALL.vocab_size,
            d_model=SMALL.d_model,
            num_heads=SMALL.num_heads,
            d_kv=SMALL.d_kv,
            d_ff=SMALL.d_ff,
            num_layers=SMALL.encoder_layers,
            num_decoder_layers=SMALL.decoder_layers,
            feed_forward_proj="gated-gelu",
            tie_word_embeddings=False,
            dropout_rate=0.0,
            decoder_start_token_id=0,
        )
    )


def _prompts(batch: int) -> np.ndarray:
    return np.random.default_rng(0).integers(2, SMALL.vocab_size, (batch, SOURCE)).astype(np.int32)


def gemm_gflops(size: int = 1536) -> float:
    """Returns the best rate of a float32 product of square matrices by XLA or PyTorch."""
    a = np.random.default_rng(0).normal(size=(size, size)).astype(np.float32)
    ours, theirs = jnp.asarray(a), torch.from_numpy(a)
    product = jax.jit(jnp.matmul)
    ways = {
        "jax": lambda: jax.block_until_ready(product(ours, ours)),
        "torch": lambda: theirs @ theirs,
    }
    return 2 * size**3 / 1e9 / min(medians(ways, 10).values())


def decode_gflop(config: autoui.AutoUIConfig, batch: int) -> float:
    """Products with parameters and with keys and values, of the encoder and of all tokens."""
    encoder, decoder, head = _layer_parameters(config)
    source = batch * SOURCE
    inner = config.num_heads * config.d_kv
    attended = config.encoder_layers * 2 * SOURCE * inner * source
    attended += config.decoder_layers * 2 * (SOURCE + TARGET // 2) * inner * batch * TARGET
    memory = config.decoder_layers * 2 * config.d_model * inner
    tokens = batch * TARGET
    return 2 * (source * (encoder + memory) + tokens * (decoder + head) + attended) / 1e9


def train_gflop(config: autoui.AutoUIConfig, batch: int) -> float:
    """Three times the forward products: backward has two for each."""
    return 3 * decode_gflop(config, batch)


def _layer_parameters(config: autoui.AutoUIConfig) -> tuple[int, int, int]:
    """Multiplications a token: in the encoder, in the decoder (its own and q, o across), head."""
    attention = 2 * config.d_model * config.num_heads * config.d_kv  # two matrices
    wide = 3 * config.d_model * config.d_ff
    encoder = config.encoder_layers * (2 * attention + wide)
    decoder = config.decoder_layers * (3 * attention + wide)
    return encoder, decoder, config.d_model * config.vocab_size

"""Draws actions from the policy, token by token with a cache."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from common.models.autoui import AutoUI, AutoUIConfig, Params
from common.models.t5 import KeysValues
from common.types import EOS_ID, PAD_ID

Sampler = Callable[
    [Params, jax.Array, jax.Array, jax.Array, jax.Array | float], tuple[jax.Array, jax.Array]
]


class _State(NamedTuple):
    position: jax.Array  # of the token to draw
    token_ids: jax.Array  # [B], drawn last
    done: jax.Array  # [B] bool
    caches: list[KeysValues]
    key: jax.Array
    action_ids: jax.Array  # [B, A]
    log_probs: jax.Array  # [B, A]


@functools.cache
def sampler(config: AutoUIConfig) -> Sampler:
    """Returns a compiled sampler; the same one for the same config.

    It maps (params, prompt_ids [B, S], features [B, N, C], key, temperature) to
    (action_ids int32 [B, A], log_probs float32 [B, A]). Log-probabilities are those of the
    distribution that was sampled: `token_stats` at the same temperature recomputes them.
    Temperature 0 takes the likeliest token and gives its log-probability at temperature 1.
    An action ends with the end token, with a padding token (which `token_stats` cannot tell from
    padding, so that it counts 0), or at A tokens; 0 follows in both results.
    """
    model = AutoUI(config)

    @jax.jit
    def sample(params, prompt_ids, features, key, temperature):
        apply: Callable[..., Any] = functools.partial(model.apply, {"params": params})
        fixed = apply(prompt_ids, features, config.action_length, method=AutoUI.begin)

        def step(state: _State) -> _State:
            logits, caches = apply(
                state.token_ids, *fixed, state.caches, state.position, method=AutoUI.step
            )
            key, draw_key = jax.random.split(state.key)
            drawn, log_prob = _draw(draw_key, logits, temperature)
            token_ids = jnp.where(state.done, PAD_ID, drawn)
            ended = token_ids == PAD_ID
            log_prob = jnp.where(ended, 0.0, log_prob)
            return _State(
                state.position + 1,
                token_ids,
                ended | (token_ids == EOS_ID),
                caches,
                key,
                state.action_ids.at[:, state.position].set(token_ids),
                state.log_probs.at[:, state.position].set(log_prob),
            )

        def unfinished(state: _State) -> jax.Array:
            return (state.position < config.action_length) & ~state.done.all()

        last = lax.while_loop(unfinished, step, _first_state(config, prompt_ids.shape[0], key))
        return last.action_ids, last.log_probs

    return sample


def _draw(
    key: jax.Array, logits: jax.Array, temperature: jax.Array | float
) -> tuple[jax.Array, jax.Array]:
    """Returns a token [B] for logits [B, V] and its log-probability [B]."""
    greedy = temperature == 0
    log_probs = jax.nn.log_softmax(logits / jnp.where(greedy, 1.0, temperature), axis=-1)
    drawn = jnp.where(
        greedy, jnp.argmax(logits, axis=-1), jax.random.categorical(key, log_probs, axis=-1)
    ).astype(jnp.int32)
    return drawn, jnp.take_along_axis(log_probs, drawn[:, None], axis=-1)[:, 0]


def _first_state(config: AutoUIConfig, batch: int, key: jax.Array) -> _State:
    cache = jnp.zeros((batch, config.num_heads, config.action_length, config.d_kv), config.dtype)
    return _State(
        position=jnp.int32(0),
        token_ids=jnp.full(batch, PAD_ID, jnp.int32),
        done=jnp.zeros(batch, bool),
        caches=[(cache, cache) for _ in range(config.decoder_layers)],
        key=key,
        action_ids=jnp.full((batch, config.action_length), PAD_ID, jnp.int32),
        log_probs=jnp.zeros((batch, config.action_length), jnp.float32),
    )

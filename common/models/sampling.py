"""Draws actions from the policy, token by token with a cache."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from common.models.automaton import START, Automaton
from common.models.autoui import AutoUI, AutoUIConfig, Params
from common.models.distribution import FREE, SamplingConfig, restrict
from common.models.t5 import KeysValues
from common.types import EOS_ID, PAD_ID

Sampler = Callable[[Params, jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


@functools.cache
def sampler(
    config: AutoUIConfig, sampling: SamplingConfig = FREE, automaton: Automaton | None = None
) -> Sampler:
    """Returns a compiled sampler; the same one for the same arguments.

    It maps (params, prompt_ids [B, S], features [B, N, C], key) to (action_ids int32 [B, A],
    log_probs float32 [B, A]). Log-probabilities are those of the distribution that was sampled:
    `token_stats` with the same settings recomputes them.

    With an automaton every action is one of the grammar, and tokens that must follow are not drawn:
    they go into the decoder with the one before them, and their log-probability is 0. Without it an
    action ends with the end token, with a padding token (which `token_stats` cannot tell from
    padding, so that it counts 0), or at A tokens. 0 follows in both results.
    """
    decode = _decode_freely if automaton is None else functools.partial(_decode, automaton)
    return jax.jit(functools.partial(decode, config, sampling))


class _State(NamedTuple):
    position: jax.Array  # of the token to draw
    token_ids: jax.Array  # [B], drawn last
    done: jax.Array  # [B] bool
    caches: list[KeysValues]
    key: jax.Array
    action_ids: jax.Array  # [B, A]
    log_probs: jax.Array  # [B, A]


def _decode_freely(config, sampling, params, prompt_ids, features, key):
    batch, length = prompt_ids.shape[0], config.action_length
    apply: Callable[..., Any] = functools.partial(AutoUI(config).apply, {"params": params})
    fixed = apply(prompt_ids, features, length, method=AutoUI.begin)

    def step(state: _State) -> _State:
        logits, caches = apply(
            state.token_ids, *fixed, state.caches, state.position, method=AutoUI.step
        )
        key, draw_key = jax.random.split(state.key)
        drawn, log_prob = _draw(draw_key, restrict(logits, sampling), sampling)
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
        return (state.position < length) & ~state.done.all()

    first = _State(
        position=jnp.int32(0),
        token_ids=jnp.full(batch, PAD_ID, jnp.int32),
        done=jnp.zeros(batch, bool),
        caches=_empty_caches(config, batch, length),
        key=key,
        action_ids=jnp.full((batch, length), PAD_ID, jnp.int32),
        log_probs=jnp.zeros((batch, length), jnp.float32),
    )
    last = lax.while_loop(unfinished, step, first)
    return last.action_ids, last.log_probs


class _Blocks(NamedTuple):
    """Rows that are decoded side by side, each as far as it is."""

    position: jax.Array  # [B], of the first token that the decoder has not seen
    token_ids: jax.Array  # [B, 1 + F], the known ones from there on: drawn last, then forced
    count: jax.Array  # [B], how many they are
    state: jax.Array  # [B], of the automaton, after them
    caches: list[KeysValues]
    inputs: jax.Array  # [B, A + 1 + F], all known tokens, as the decoder sees them
    log_probs: jax.Array  # [B, A]


def _decode(automaton, config, sampling, params, prompt_ids, features, key):
    batch, length = prompt_ids.shape[0], config.action_length
    reach = length + automaton.block - 1  # of a block at the last position
    apply: Callable[..., Any] = functools.partial(AutoUI(config).apply, {"params": params})
    fixed = apply(prompt_ids, features, reach, method=AutoUI.begin)
    rows = jnp.arange(batch)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, rows)
    forced, forced_count, forced_end = map(
        jnp.asarray, (automaton.forced, automaton.forced_count, automaton.forced_end)
    )

    def active(blocks: _Blocks) -> jax.Array:
        room = length - blocks.position - blocks.count
        return (blocks.state != automaton.done) & (room >= 0)

    def step(size: int, blocks: _Blocks) -> _Blocks:
        """Shows the decoder the known tokens, at most `size` a row, and draws one more."""
        logits, caches = apply(
            blocks.token_ids[:, :size],
            jnp.minimum(blocks.count, size),
            *fixed,
            blocks.caches,
            blocks.position,
            method=AutoUI.step_block,
        )
        position = blocks.position + blocks.count  # of the token that is drawn
        allowed = automaton.allowed(blocks.state, length + 1 - position)
        drawn, log_prob = jax.vmap(functools.partial(_draw, sampling=sampling))(
            jax.vmap(jax.random.fold_in)(keys, position), restrict(logits, sampling, allowed)
        )
        state = automaton.after(blocks.state, drawn)
        token_ids = jnp.concatenate([drawn[:, None], forced[state]], axis=1)
        after = _Blocks(
            position,
            token_ids,
            1 + forced_count[state],
            forced_end[state],
            [],
            jax.vmap(lax.dynamic_update_slice)(blocks.inputs, token_ids, position[:, None]),
            blocks.log_probs.at[rows, position - 1].set(log_prob),
        )
        going = active(blocks)

        def choose(old: jax.Array, new: jax.Array) -> jax.Array:
            return jnp.where(going.reshape(-1, *[1] * (old.ndim - 1)), new, old)

        chosen = jax.tree.map(choose, blocks._replace(caches=[]), after)
        return chosen._replace(caches=caches)

    def unfinished(blocks: _Blocks) -> jax.Array:
        return active(blocks).any()

    def single(blocks: _Blocks) -> jax.Array:
        return unfinished(blocks) & ~(active(blocks) & (blocks.count > 1)).any()

    def block_and_singles(blocks: _Blocks) -> _Blocks:
        blocks = step(automaton.block, blocks)
        return lax.while_loop(single, functools.partial(step, 1), blocks)

    begin = jnp.pad(forced[START], (1, 0), constant_values=PAD_ID)
    token_ids = jnp.broadcast_to(begin, (batch, len(begin)))
    first = _Blocks(
        position=jnp.zeros(batch, jnp.int32),
        token_ids=token_ids,
        count=jnp.full(batch, 1 + automaton.forced_count[START]),
        state=jnp.full(batch, automaton.forced_end[START]),
        caches=_empty_caches(config, batch, reach),
        inputs=jnp.pad(token_ids, ((0, 0), (0, length))),
        log_probs=jnp.zeros((batch, length), jnp.float32),
    )
    last = lax.while_loop(unfinished, block_and_singles, first)
    return last.inputs[:, 1 : length + 1], last.log_probs


def _draw(
    key: jax.Array, logits: jax.Array, sampling: SamplingConfig
) -> tuple[jax.Array, jax.Array]:
    """Returns a token [...] for restricted logits [..., V] and its log-probability."""
    log_probs = jax.nn.log_softmax(logits, axis=-1)
    if sampling.temperature == 0:
        drawn = jnp.argmax(logits, axis=-1)
    else:
        drawn = jax.random.categorical(key, log_probs, axis=-1)
    log_prob = jnp.take_along_axis(log_probs, drawn[..., None], axis=-1)[..., 0]
    return drawn.astype(jnp.int32), log_prob


def _empty_caches(config: AutoUIConfig, batch: int, length: int) -> list[KeysValues]:
    cache = jnp.zeros((batch, config.num_heads, length, config.d_kv), config.dtype)
    return [(cache, cache) for _ in range(config.decoder_layers)]

"""The language of actions in tokens: what may be drawn next, and what must be.

An action is segmented as the tokenizer itself does it: between two places of the text stand the
tokens that it uses there in any of `grammar.samples`. So fixed text has one segmentation, while
those of numbers may mix. Within a typed text any token may stand whose bytes may.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from common.errors import ConfigError
from common.models import grammar
from common.models.distribution import SamplingConfig
from common.models.text import Tokenizer
from common.types import EOS_ID, PAD_ID

OFF, START = 0, 1  # OFF: the tokens so far begin no action
_FAR = 1 << 14  # tokens; more than any action has
_BLOCK = 16  # tokens: on two CPU cores these cost about two single ones at batch 1

Edges = dict[tuple[int, int], int]  # (state, token) to state


@dataclasses.dataclass(frozen=True, eq=False)
class Automaton:
    """Tokens of the same effect in all states form a class, of which there are few hundred.

    Attributes:
      next_state: Int16 [states, classes].
      token_class: Int16 [V].
      tokens_left: Int16 [states], the fewest tokens to the end, the end token included.
      forced: Int32 [states, F], the tokens that must follow; padding after them. Where they don't
        end the action they are cut to fit a block, and the next draw has one token to choose from.
      forced_count: Int32 [states], how many they are.
      forced_end: Int16 [states], the state after them.
      done: The state after the end token.
      block: The most tokens that go into the decoder at once: one drawn and those forced by it.
    """

    next_state: np.ndarray
    token_class: np.ndarray
    tokens_left: np.ndarray
    forced: np.ndarray
    forced_count: np.ndarray
    forced_end: np.ndarray
    done: int
    block: int

    def after(self, state: jax.Array, token_ids: jax.Array) -> jax.Array:
        """Returns the states after one more token each."""
        return jnp.asarray(self.next_state)[state, jnp.asarray(self.token_class)[token_ids]]

    def allowed(self, state: jax.Array, room: jax.Array) -> jax.Array:
        """Returns which tokens may be drawn.

        Args:
          state: [...].
          room: How many tokens there may still be, this one included, [...]; what cannot be brought
            to an end within them is not begun.

        Returns:
          Bool [..., V]; all for a state that is OFF, which only tokens drawn otherwise lead to.
        """
        left = jnp.asarray(self.tokens_left)[jnp.asarray(self.next_state)[state]]
        classes = (left < room[..., None]) | (state == OFF)[..., None]
        return jnp.take(classes, jnp.asarray(self.token_class), axis=-1)

    def allowed_along(self, action_ids: jax.Array) -> jax.Array:
        """Returns which tokens might have been drawn in the place of each of these, [B, A, V]."""
        batch, length = action_ids.shape

        def step(state: jax.Array, token_ids: jax.Array) -> tuple[jax.Array, jax.Array]:
            return self.after(state, token_ids), state

        start = jnp.full(batch, START, self.next_state.dtype)
        _, states = lax.scan(step, start, action_ids.T)
        return self.allowed(states.T, length - jnp.arange(length))


def automaton_for(
    sampling: SamplingConfig, tokenizer: Tokenizer, vocab_size: int, action_length: int
) -> Automaton | None:
    """Returns what these settings need of a model: None without grammar.

    Raises:
      ConfigError: The tokenizer cannot write the grammar, or no action fits the length.
    """
    if not sampling.grammar:
        return None
    automaton = build(tokenizer, vocab_size)
    if (needed := int(automaton.tokens_left[START])) > action_length:
        raise ConfigError(
            f"action_length is {action_length}, and the shortest action has {needed} tokens."
        )
    return automaton


@functools.lru_cache(maxsize=4)
def build(tokenizer: Tokenizer, vocab_size: int) -> Automaton:
    """Returns the automaton of a tokenizer, for logits of a vocabulary that may be larger.

    Raises:
      ConfigError: The tokenizer cannot write the grammar.
    """
    language, pieces = grammar.language(), tokenizer.pieces()
    edges = _sampled_edges(language, tokenizer, pieces)
    edges |= _typed_edges(language, pieces, {place for place, _ in edges})
    return _tabulate(edges, language.end, vocab_size)


def _sampled_edges(language: grammar.Language, tokenizer: Tokenizer, pieces: list[bytes]) -> Edges:
    """Returns the tokens by which the tokenizer goes from place to place."""
    following = language.following.tolist()
    edges: Edges = {}
    for text in grammar.samples():
        place = grammar.START
        for token in tokenizer.encode(text):
            to = edges.get((place, token))
            if to is None:
                to = place
                for byte in pieces[token]:
                    to = following[to][byte]
                edges[place, token] = to
            place = to
        if place != language.end:
            raise ConfigError(f"The tokenizer cannot write {text!r}; sampling.grammar needs that.")
    return edges


def _typed_edges(language: grammar.Language, pieces: list[bytes], places: set[int]) -> Edges:
    """Returns the tokens that go into, within and out of a typed text."""
    lengths = np.array([len(piece) for piece in pieces])
    spelt = np.zeros((len(pieces), lengths.max()), np.uint8)
    for row, piece in zip(spelt, pieces, strict=True):
        row[: len(piece)] = np.frombuffer(piece, np.uint8)
    edges: Edges = {}
    for start in sorted(places | set(np.flatnonzero(language.typed).tolist())):
        place = np.full(len(pieces), start)
        typed = language.typed[place]
        for index in range(spelt.shape[1]):
            lasting = index < lengths
            place = np.where(lasting, language.following[place, spelt[:, index]], place)
            typed |= language.typed[place]
            if not place[lasting].any():
                break
        for token in np.flatnonzero(typed & (place != grammar.NOWHERE) & (lengths > 0)).tolist():
            edges[start, token] = int(place[token])
    return edges


def _tabulate(edges: Edges, end: int, vocab_size: int) -> Automaton:
    """Numbers the places that can be reached, and groups the tokens."""
    places = _reachable(edges)
    state = {place: START + index for index, place in enumerate(places)}
    done = START + len(places)
    table = np.zeros((done + 1, vocab_size), np.int16)
    for (place, token), to in edges.items():
        if place in state:
            table[state[place], token] = state[to]
    table[state[end], EOS_ID] = done
    columns, token_of_class, token_class, sizes = np.unique(
        table, axis=1, return_index=True, return_inverse=True, return_counts=True
    )
    left = np.full(done + 1, _FAR, np.int16)
    left[done] = 0
    for _ in range(done):  # no shortest way is longer
        left = np.minimum(left, 1 + left[columns].min(1))
    live = left[columns] < _FAR
    choices, first = live @ sizes, live.argmax(1)
    chains, ends = [], np.arange(done + 1, dtype=np.int16)
    for start in range(done + 1):
        chain, at = [], start
        while choices[at] == 1:
            chain.append(int(token_of_class[first[at]]))
            at = columns[at, first[at]]
            if at == done or len(chain) < _BLOCK:
                ends[start] = at
        chains.append(chain if at == done else chain[: _BLOCK - 1])
    count = np.array([len(chain) for chain in chains], np.int32)
    forced = np.full((done + 1, count.max()), PAD_ID, np.int32)
    for row, chain in zip(forced, chains, strict=True):
        row[: len(chain)] = chain
    return Automaton(
        next_state=columns,
        token_class=token_class.reshape(-1).astype(np.int16),
        tokens_left=left,
        forced=forced,
        forced_count=count,
        forced_end=ends,
        done=done,
        block=1 + int(count[ends != done].max()),
    )


def _reachable(edges: Edges) -> list[int]:
    """Returns the places to which edges lead from the start, the start first."""
    ways: dict[int, set[int]] = {}
    for (place, _), to in edges.items():
        ways.setdefault(place, set()).add(to)
    found = [grammar.START]
    for place in found:  # grows on the way
        found.extend(sorted(ways.get(place, set()) - set(found)))
    return found

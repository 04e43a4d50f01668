"""Decoding by the grammar against free decoding of the same tap: tokens, calls of the model, time.

A bonus on the logits of a script's tokens makes both write the same text, whatever the parameters.
"""

from __future__ import annotations

if __name__ == "__main__":
    import pathlib
    import sys

    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[2])

import dataclasses
import json
import pathlib
import sysconfig
import time
from collections.abc import Iterator
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from benchmarks.model_parts.timing import medians, threads
from common import actions
from common.models import automaton, autoui, sampling
from common.models.distribution import SamplingConfig
from common.models.text import Tokenizer, grammar_corpus

TAP = actions.render(
    actions.Action(actions.ActionType.DUAL_POINT, (0.8497, 0.5964), (0.8497, 0.5964))
)
PROMPT = actions.prompt("Open the Clock app", actions.decision(TAP))
ROUNDS = 15
BONUS = 1e4


def run() -> Iterator[dict]:
    """Yields a row for the tiny model with its own tokenizer and one for T5-small with pieces."""
    small = dataclasses.replace(autoui.PRESETS["small"], prompt_length=128)
    yield {"name": "grammar_decode", "model": "small", **compare(small, word_pieces())}
    tiny = autoui.PRESETS["tiny"]
    yield {
        "name": "grammar_decode_tiny",
        "model": "tiny",
        **compare(tiny, Tokenizer.train(grammar_corpus(), tiny.vocab_size)),
    }


def word_pieces(size_bytes: int = 500_000, vocab_size: int = 8000) -> Tokenizer:
    """Stands in for T5's: Unigram over words, trained on the standard library's text."""
    backend = tokenizers.Tokenizer(models.Unigram())
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    files = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    text = "\n".join(file.read_text(encoding="utf-8") for file in files[:60])[:size_bytes]
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size,
        special_tokens=["<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    backend.train_from_iterator((" ".join(line.split()) for line in text.splitlines()), trainer)
    return Tokenizer(backend)


def compare(config: autoui.AutoUIConfig, tokenizer: Tokenizer) -> dict:
    """Times both ways in turn; greedy, batch 1, the encoder included."""
    began = time.perf_counter()
    made = automaton.build(tokenizer, config.vocab_size)
    build_s = time.perf_counter() - began
    script = tokenizer.encode_action(TAP, config.action_length)
    prompt_ids = tokenizer.encode_prompt(PROMPT, config.prompt_length)[None]
    features = np.ones((1, config.image_tokens, config.image_dim), config.features_dtype)
    inputs = autoui.init(config, jax.random.key(0)), prompt_ids, features, jax.random.key(0)
    ways = {}
    with mock.patch.object(sampling, "AutoUI", scripted(script)):
        for name, how in (("free", None), ("grammar", made)):
            settings = SamplingConfig(temperature=0.0, grammar=how is not None)
            ways[name] = sampling.sampler.__wrapped__(config, settings, how)  # not for others
            action_ids, _ = ways[name](*inputs)
            np.testing.assert_array_equal(action_ids[0], script)
    seconds = medians(
        {
            name: lambda sample=sample: jax.block_until_ready(sample(*inputs))
            for name, sample in ways.items()
        },
        ROUNDS,
    )
    tokens = int(np.count_nonzero(script))
    return {
        "ratio": round(seconds["grammar"] / seconds["free"], 3),
        "tokens": tokens,
        "calls_free": tokens,
        "calls_grammar": calls(made, script),
        "free_ms": round(1000 * seconds["free"], 2),
        "grammar_ms": round(1000 * seconds["grammar"], 2),
        "build_s": round(build_s, 2),
        "tables_kib": round(
            sum(x.nbytes for x in vars(made).values() if isinstance(x, np.ndarray)) / 1024
        ),
        "threads": threads(),
    }


def scripted(script: np.ndarray) -> type[autoui.AutoUI]:
    """Returns a model that likes the script's token at each position best."""
    wanted = jnp.asarray(script)

    class Scripted(autoui.AutoUI):
        def step(self, token_ids, bias, memory, memory_bias, caches, position):
            logits, caches = super().step(token_ids, bias, memory, memory_bias, caches, position)
            return logits.at[:, wanted[position]].add(BONUS), caches

        def step_block(self, token_ids, lengths, bias, memory, memory_bias, caches, positions):
            logits, caches = super().step_block(
                token_ids, lengths, bias, memory, memory_bias, caches, positions
            )
            rows = jnp.arange(len(positions))
            return logits.at[rows, wanted[positions + lengths - 1]].add(BONUS), caches

    return Scripted


def calls(made: automaton.Automaton, ids: np.ndarray) -> int:
    """Returns how often the sampler calls the decoder to write these tokens, batch 1."""
    index, state, count = made.forced_count[automaton.START], made.forced_end[automaton.START], 0
    while state != made.done:
        after = made.next_state[state, made.token_class[ids[index]]]
        index += 1 + made.forced_count[after]
        state = made.forced_end[after]
        count += 1
    return count


if __name__ == "__main__":
    for row in run():
        print(json.dumps(row), flush=True)

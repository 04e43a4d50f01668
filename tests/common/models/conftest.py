import dataclasses
import random

import jax
import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from common.models import automaton, autoui
from common.models.text import Tokenizer, grammar_corpus


@pytest.fixture(scope="session")
def config():
    """A model that compiles fast; its vocabulary is so small that random actions end early."""
    return dataclasses.replace(
        autoui.PRESETS["tiny"],
        vocab_size=24,
        d_model=32,
        d_kv=16,
        d_ff=64,
        encoder_layers=1,
        image_dim=12,
        image_tokens=6,
        image_grid=(3, 2),
        prompt_length=10,
        action_length=8,
    )


@pytest.fixture(scope="session")
def params(config):
    return autoui.init(config, jax.random.key(0))


def sentence_pieces(corpus, vocab_size):
    """A tokenizer of T5's kind: Unigram over words that begin with a space."""
    backend = tokenizers.Tokenizer(models.Unigram())
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size,
        special_tokens=["<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    backend.train_from_iterator(corpus, trainer)
    return Tokenizer(backend)


def english():
    """Words, numbers and signs, some of which stand together in an action, too."""
    rng = random.Random(0)
    words = "Action Plan action type touch point text Decision the clock open STATUS DUAL TYPE"
    for _ in range(400):
        yield " ".join(rng.choices(words.split(), k=5))
        yield f'"{rng.choice(words.split())}": {rng.random():.4f}, [{rng.random():.2f}]'
        yield "".join(rng.choices([chr(code) for code in range(33, 127) if code != 92], k=8))


@pytest.fixture
def train_pieces():
    return sentence_pieces


@pytest.fixture(scope="session")
def tokenizers_of_both_kinds():
    return {
        "bpe": Tokenizer.train(grammar_corpus(), 600),
        "pieces": sentence_pieces(english(), 400),
    }


@pytest.fixture(scope="session", params=["bpe", "pieces"])
def tokenizer(request, tokenizers_of_both_kinds):
    return tokenizers_of_both_kinds[request.param]


@pytest.fixture(scope="session")
def actions_automaton(tokenizer):
    return automaton.build(tokenizer, 640)

"""RoBERTa against transformers on random weights, padding and positions included."""

import jax
import numpy as np
import pytest

from common.models import roberta

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

PAD, START, END = 1, 0, 2


def ragged(rng, vocab, lengths, width):
    ids = rng.integers(3, vocab, (len(lengths), width))
    ids[:, 0] = START
    for row, length in zip(ids, lengths, strict=True):
        row[length - 1], row[length:] = END, PAD
    return ids


def compare(folder, config, lengths, bound):
    torch.manual_seed(0)
    theirs = transformers.RobertaModel(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():  # biases and scales start at 0 and 1
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    theirs.save_pretrained(folder)
    ids = ragged(np.random.default_rng(0), config.vocab_size, lengths, max(lengths))
    with torch.no_grad():
        mask = torch.tensor(ids != PAD)
        states = theirs(input_ids=torch.tensor(ids), attention_mask=mask).last_hidden_state
    ours = jax.jit(roberta.encode, static_argnums=1)
    shape, params = roberta.load(folder)
    assert shape.max_tokens >= max(lengths)
    real = ids != PAD
    np.testing.assert_allclose(
        ours(params, shape, ids.astype(np.int32))[real], states.numpy()[real], atol=bound
    )


def test_a_small_encoder_agrees_past_128_positions(tmp_path):
    config = transformers.RobertaConfig(
        vocab_size=300,
        hidden_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=514,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        initializer_range=0.1,
    )
    compare(tmp_path, config, (512, 200, 130, 17, 2), 2e-5)


def test_one_layer_of_roberta_base_agrees(tmp_path):
    config = transformers.RobertaConfig(  # roberta-base's, but for its depth and vocabulary
        vocab_size=1000,
        num_hidden_layers=1,
        max_position_embeddings=514,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
    )
    compare(tmp_path, config, (140, 33), 2e-5)

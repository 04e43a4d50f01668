"""The policy on an actor says what it sampled, and how likely that was."""

import dataclasses
import mmap

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from actors.policy import EXPERT_VERSION, Policy
from common import actions, weights
from common.errors import ConfigError
from common.models import autoui
from common.models.distribution import FREE, SamplingConfig

IMAGE = np.random.default_rng(0).integers(0, 256, (64, 36, 3), np.uint8)
PROMPT = "Previous Actions:  Goal: Open the clock"


def policy(config, tokenizer, params, seed: int = 0, sampling: SamplingConfig = FREE) -> Policy:
    made = Policy(config, tokenizer, seed, sampling)
    made.set_params(params, 5)
    return made


def test_the_recorded_log_probs_are_those_of_the_recorded_tokens(config, tokenizer, params):
    sampling = SamplingConfig(0.7)
    decision = policy(config, tokenizer, params, sampling=sampling).act(PROMPT, IMAGE)
    again = jax.jit(autoui.token_stats, static_argnums=(1, 5))(
        params,
        config,
        decision.prompt_ids[None],
        decision.features[None],
        decision.action_ids[None],
        sampling,
    )
    np.testing.assert_allclose(decision.log_probs, again.log_probs[0], atol=1e-5)
    assert decision.text == tokenizer.decode(decision.action_ids)
    assert decision.version == 5
    assert [x.dtype for x in decision[1:5]] == [np.int32, np.uint8, np.int32, np.float32]


def test_the_seed_decides_and_draws_differ(config, tokenizer, params):
    first, second = (policy(config, tokenizer, params, seed=3) for _ in range(2))
    a, b, c = first.act(PROMPT, IMAGE), second.act(PROMPT, IMAGE), second.act(PROMPT, IMAGE)
    assert a.text == b.text != c.text


def test_temperature_0_is_greedy(config, tokenizer, params):
    greedy = SamplingConfig(0.0)
    policies = [policy(config, tokenizer, params, seed, greedy) for seed in range(3)]
    assert len({one.act(PROMPT, IMAGE).text for one in policies}) == 1


def test_with_grammar_every_action_can_be_read(config, tokenizer, params):
    made = policy(config, tokenizer, params, sampling=SamplingConfig(2.0, grammar=True))
    texts = {made.act(PROMPT, IMAGE).text for _ in range(20)}
    assert len(texts) > 1
    assert all(isinstance(actions.parse(text), actions.Action) for text in texts)


def test_a_label_is_the_expert_s_text(config, tokenizer, params):
    text = "Action Plan: [TYPE] ; Action Decision: "
    decision = policy(config, tokenizer, params).label(PROMPT, IMAGE, text)
    assert tokenizer.decode(decision.action_ids) == text
    assert decision.version == EXPERT_VERSION
    assert not decision.log_probs.any()


def test_a_label_that_does_not_fit_is_refused(config, tokenizer, params):
    with pytest.raises(ConfigError, match="action_length"):
        policy(config, tokenizer, params).label(PROMPT, IMAGE, "x9" * 40)


def test_a_model_of_an_image_encoder_s_features_needs_the_encoder(config, tokenizer):
    model = dataclasses.replace(config, image_grid=None, image_tokens=1, image_dim=3)
    with pytest.raises(ConfigError, match="with --vision-folder"):
        Policy(model, tokenizer, 0)
    found = Policy(model, tokenizer, 0, extract=lambda image: np.full((1, 3), 0.5, np.float32))
    decision = found.label(PROMPT, IMAGE, "")
    np.testing.assert_array_equal(decision.features, [[0.5, 0.5, 0.5]])


def test_mapped_parameters_are_computed_on_without_a_copy(config, tokenizer, params, tmp_path):
    leaves = {"/".join(path): x for path, x in flatten_dict(jax.device_get(params)).items()}
    with (tmp_path / "blob").open("w+b") as file:
        tensors = weights.write(file, leaves.items())
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    views = weights.views(mapped, tensors)
    made = policy(config, tokenizer, weights.tree(views))
    for path, leaf in flatten_dict(made._params).items():
        assert leaf.unsafe_buffer_pointer() == views["/".join(path)].ctypes.data
    assert made.act(PROMPT, IMAGE).text == policy(config, tokenizer, params).act(PROMPT, IMAGE).text

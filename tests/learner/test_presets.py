"""Presets are configurations and nothing else; an ablation changes what it names."""

import dataclasses

import pytest

from common.errors import ConfigError
from learner import presets
from learner.build import configure
from learner.config import LearnerConfig, quick
from learner.priorities import PriorityConfig


@pytest.mark.parametrize("base", [LearnerConfig(), quick()], ids=["default", "quick"])
@pytest.mark.parametrize("name", presets.PRESETS)
def test_every_preset_is_valid_and_keeps_what_is_shared(name, base):
    config = presets.PRESETS[name](base)
    for field in ("model", "warm_start", "horizon", "sampling", "minutes", "mesh"):
        assert getattr(config, field) == getattr(base, field)
    assert config.update.policy_lr == base.update.policy_lr
    assert config.reinforce.replay_episodes == base.reinforce.replay_episodes


def test_presets_differ():
    made = [preset(quick()) for preset in presets.PRESETS.values()]
    assert len({repr(config) for config in made}) == len(made)


def test_only_digirl_and_reinforce_wait_for_each_other():
    waiting = {n for n, preset in presets.PRESETS.items() if preset(quick()).reinforce.synchronous}
    assert waiting == {"digirl", "reinforce"}


@pytest.mark.parametrize("algorithm", ["distrl", "filtered-bc"])
def test_an_ablation_changes_its_part_alone(algorithm):
    whole = configure("quick", algorithm, {})
    uniform = configure("quick", algorithm, {}, ["dper"]).priority
    assert (uniform.td, uniform.rho, uniform.entropy, uniform.base) == (0, 0, 0, 1)
    assert uniform.surprise == whole.priority.surprise
    assert uniform.successes_only == whole.priority.successes_only
    assert configure("quick", algorithm, {}, ["retrace"]).update == dataclasses.replace(
        whole.update, lambda_=0.0
    )
    assert configure("quick", algorithm, {}, ["penalty"]).update.loss.penalty == "none"
    assert configure("quick", algorithm, {}, ["entropy"]).update.loss.entropy == 0
    uniform = configure("quick", algorithm, {}, ["curriculum"])
    assert uniform.priority == dataclasses.replace(whole.priority, surprise=0.0)
    assert uniform.curriculum.kind == "uniform" != whole.curriculum.kind  # of actors' tasks


def test_settings_have_the_last_word():
    assert (
        configure("quick", "distrl", {"update.lambda_": "0.5"}, ["retrace"]).update.lambda_ == 0.5
    )


def test_a_share_out_of_range_is_refused():
    with pytest.raises(ConfigError, match="top_share"):
        PriorityConfig(top_share=0.0)

"""A run starts from a policy that something else made."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from common.errors import ConfigError
from common.models import pretrained
from learner import build
from learner.checkpoint import load_policy, save_policy
from learner.config import ReinforceConfig, WarmStartConfig
from tests import t5_folder

ADDRESS = "tcp://127.0.0.1:0"


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """The checkpoint of a policy that came from a Hugging Face folder, and what is in it."""
    loaded = pretrained.load(t5_folder.GATED, prompt_length=12, action_length=10)
    meta = {
        "model": loaded.config.to_dict(),
        "tokenizer": t5_folder.tokenizer_json(),
        "origin": loaded.origin.to_dict(),
    }
    path = tmp_path_factory.mktemp("policy")
    save_policy(path, loaded.params, meta)
    return path, loaded, meta


def _config(init="", rank=0):
    settings = {"init": str(init), "update.lora.rank": rank}
    config = build.configure("quick", "filtered-bc", settings)
    return dataclasses.replace(
        config,
        warm_start=WarmStartConfig(demonstrations=0, batch=4),
        reinforce=ReinforceConfig(batch_steps=20, critic_steps=20),
    )


def _run(workdir, config):
    """Starts a learner and stops it at once; returns its lineage and what it saved."""
    with build.learner(
        workdir=workdir, listen=ADDRESS, config=config, seed=3, insecure=False
    ) as learner:
        learner.run(lambda: True)
    return learner.progress.lineage, *load_policy(workdir / "checkpoints")


@pytest.mark.parametrize("rank", [0, 2])  # of adapters
def test_a_run_starts_from_a_policy_and_goes_on(policy, rank, tmp_path):
    path, loaded, meta = policy
    for lineage in (1, 2):  # the second one restores the first
        began, params, found = _run(tmp_path / "run", _config(path, rank))
        assert began == lineage
        jax.tree.map(np.testing.assert_array_equal, params, loaded.params)
        assert {name: found[name] for name in meta} == json.loads(json.dumps(meta))
    with pytest.raises(ConfigError, match="holds a run of another model"):
        _run(tmp_path / "run", _config())


def test_a_policy_is_no_run_that_could_go_on(policy, tmp_path):
    _, loaded, meta = policy
    (tmp_path / "run").mkdir()
    save_policy(tmp_path / "run" / "checkpoints", loaded.params, meta)
    with pytest.raises(ConfigError, match=r"holds a policy and no run .* with --init"):
        _run(tmp_path / "run", _config())


def test_a_policy_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"There is no checkpoint folder .*nowhere"):
        _run(tmp_path / "run", _config(tmp_path / "nowhere"))

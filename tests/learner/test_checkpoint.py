"""What was saved comes back, onto any mesh; what can't is refused in a sentence."""

import dataclasses

import jax
import numpy as np
import pytest

from common.errors import ConfigError
from common.models.distribution import FREE
from learner import sharding
from learner.checkpoint import POLICY_META, Checkpoints, load_policy
from learner.update import UpdateConfig, make_updates
from tests.learner.test_update import MODEL


def make_state(model=MODEL, key=0):
    updates = make_updates(model, UpdateConfig(), FREE, sharding.make_mesh())
    return updates.init(jax.random.key(key))


def assert_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(a), jax.device_get(b))


META = dict.fromkeys(POLICY_META, "x")


def test_a_round_trip_is_bitwise(tmp_path):
    state = make_state()
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.latest_meta() is None
        checkpoints.save(7, state, {"progress": {"version": 3}, "big": 2**100})
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.latest_meta() == {"progress": {"version": 3}, "big": 2**100}
        assert_equal(checkpoints.restore(make_state(key=1)), state)


def test_the_newest_are_kept_and_the_pinned(tmp_path):
    state = make_state()
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        checkpoints.pin(1)
        for step in range(5):
            checkpoints.save(step, state, {})
        checkpoints.wait()
    kept = sorted(int(path.name) for path in tmp_path.iterdir() if path.name.isdecimal())
    assert kept == [1, 3, 4]


def test_the_policy_alone_is_loaded_from_a_run_or_a_step(tmp_path):
    states = [make_state(key=key) for key in range(2)]
    with Checkpoints(tmp_path) as checkpoints:
        for step, state in enumerate(states):
            checkpoints.save(step, state, META)
    for path, number in ((tmp_path, 1), (tmp_path / "0", 0)):
        params, meta = load_policy(path)
        assert meta == META | {"step": number}
        assert_equal(params, states[number].params)


def test_a_checkpoint_that_says_too_little_of_its_policy_is_refused(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(3, make_state(), {"model": "x", "tokenizer": "x"})
    with pytest.raises(ConfigError, match=r"3 does not say its policy's horizon, sampling"):
        load_policy(tmp_path, (*POLICY_META, "horizon", "sampling"))


def test_missing_and_empty_folders_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"no checkpoint folder .*nowhere"):
        load_policy(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="no finished checkpoint"):
        load_policy(tmp_path)
    (tmp_path / "12").mkdir()
    with pytest.raises(ConfigError, match="no finished checkpoint"):
        load_policy(tmp_path / "12")


def test_another_model_is_refused(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, make_state(), {})
    wider = dataclasses.replace(MODEL, d_ff=64)
    with (
        Checkpoints(tmp_path) as checkpoints,
        pytest.raises(ConfigError, match="is of another policy"),
    ):
        checkpoints.restore(make_state(wider))

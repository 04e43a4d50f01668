"""The learner with adapters: what moves, what is saved, what comes back, on any mesh."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import traverse_util

from common.errors import ConfigError
from common.models import autoui, lora
from common.models.distribution import FREE
from common.models.lora import LoraConfig
from learner import checkpoint, sharding
from learner.checkpoint import POLICY_META, Checkpoints, load_policy
from learner.critic import CriticConfig
from learner.demonstrations import Steps
from learner.update import UpdateConfig, make_updates
from tests.episodes import episode
from tests.learner.test_update import MODEL, batch

ROOT = Path(__file__).parents[2]
LORA = LoraConfig(rank=2, alpha=4.0)
META = {**dict.fromkeys(POLICY_META, "x"), "lora": LORA.__dict__}
CONFIG = UpdateConfig(
    policy_lr=1e-2, policy_warmup=1, imitation_lr=1e-2, lora=LORA, critic=CriticConfig("t5")
)


@pytest.fixture(scope="module")
def updates():
    return make_updates(MODEL, CONFIG, FREE, sharding.make_mesh())


@pytest.fixture
def state(updates):
    return updates.init(jax.random.key(0))


def steps(length):
    path = episode(length).trajectory
    return Steps(path.prompt_ids, path.features, path.action_ids, np.full(len(path.reward), -1))


def paths(tree):
    return set(traverse_util.flatten_dict(tree))


def assert_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(a), jax.device_get(b))


def merged(state):
    return lora.merge(lora.union(state.frozen, lora.scaled(state.params, LORA)))


def test_a_given_policy_is_the_start(updates):
    params = autoui.init(MODEL, jax.random.key(7))
    assert_equal(merged(updates.init(jax.random.key(0), params)), params)


def test_only_adapters_and_image_parts_have_moments_and_move(updates, state):
    frozen, before = state.frozen, jax.device_get(state.params)
    adam = next(x for x in jax.tree.leaves(state.opt_state, is_leaf=_is_adam) if _is_adam(x))
    assert paths(adam.mu) == paths(adam.nu) == paths(state.params)
    for _ in range(2):  # B is 0 at first, and then A has no gradient
        state, _ = updates.imitate(state, steps(4))
        state, _ = updates.improve(state, batch(episode(4)))
    state, _ = updates.improve_critic(state, batch(episode(4)))
    state = updates.restart_policy_optimizer(state)
    assert jax.tree.leaves(state.frozen)[0] is jax.tree.leaves(frozen)[0]  # and was not donated
    after = traverse_util.flatten_dict(jax.device_get(state.params))
    for name, leaf in traverse_util.flatten_dict(before).items():
        assert np.abs(after[name] - leaf).max() > 0, name


def _is_adam(node):
    return hasattr(node, "mu")


def test_a_checkpoint_holds_adapters_and_the_base_is_beside_it_once(tmp_path, updates, state):
    meta = META
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state, meta)
        written = (tmp_path / checkpoint.BASE).stat().st_mtime_ns
        state, _ = updates.improve(state, batch(episode(4)))
        checkpoints.save(2, state, meta)
    with Checkpoints(tmp_path) as checkpoints:
        like = updates.init(jax.random.key(1))
        restored = checkpoints.restore(like)
        assert_equal(restored, state)
        restored, _ = updates.improve(restored, batch(episode(4)))
        checkpoints.save(3, restored, meta)
    assert (tmp_path / checkpoint.BASE).stat().st_mtime_ns == written
    for step, expected in ((2, state), (3, restored)):
        params, loaded = load_policy(tmp_path / str(step))
        assert paths(params) == paths(autoui.init(MODEL, jax.random.key(0)))
        assert loaded["step"] == step
        for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(merged(expected)), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)


def test_the_base_of_another_run_is_refused(tmp_path, updates, state):
    for name, key in (("one", 0), ("other", 1)):
        with Checkpoints(tmp_path / name) as checkpoints:
            checkpoints.save(1, updates.init(jax.random.key(key)), META)
    base = tmp_path / "one" / checkpoint.BASE
    base.rename(tmp_path / "away")
    (tmp_path / "other" / checkpoint.BASE).rename(base)
    with pytest.raises(ConfigError, match="is not the base of the checkpoints"):
        load_policy(tmp_path / "one")
    with (
        Checkpoints(tmp_path / "one") as checkpoints,
        pytest.raises(ConfigError, match="is not the base of the checkpoints"),
    ):
        checkpoints.restore(state)


def test_a_base_without_its_first_checkpoint_is_replaced(tmp_path, updates, state):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, updates.init(jax.random.key(1)), META)
        checkpoints.wait()
    (tmp_path / "1").rename(tmp_path / "1.orbax-checkpoint-tmp")
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state, META)
    assert_equal(load_policy(tmp_path)[0], merged(state))


SHARDED = """
import sys
import jax, numpy as np
from common.models.distribution import FREE
from learner import sharding
from learner.update import make_updates
from tests.episodes import episode
from tests.learner.test_adapters import CONFIG, MODEL
from tests.learner.test_update import batch

rows = batch(episode(4), episode(5, seq=1, success=False))
one = sharding.make_mesh()
fresh = jax.device_get(make_updates(MODEL, CONFIG, FREE, one).init(jax.random.key(0)))

def run(mesh):
    updates, state, losses = make_updates(MODEL, CONFIG, FREE, mesh), fresh, []
    for _ in range(2):
        state, report = updates.improve(state, rows)
        losses.append([float(report.scalars["loss/policy"]), *np.asarray(report.td)])
    return losses, state

losses, state = run(one)
found, other = run(sharding.make_mesh(*map(int, sys.argv[1:])))
np.testing.assert_allclose(found, losses, atol=1e-5)
for part in ("params", "critic_params"):
    both = zip(*(jax.tree.leaves(getattr(s, part)) for s in (other, state)), strict=True)
    for ours, theirs in both:
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
spec = other.params["fusion"]["k"].sharding.spec
assert spec == jax.sharding.PartitionSpec("fsdp", None), spec
print("compared", len(jax.devices()))
"""


@pytest.mark.parametrize(
    "mesh",
    [
        (2, 2, 2),
        pytest.param((8, 1, 1), marks=pytest.mark.slow),
        pytest.param((1, 4, 2), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_step_on_eight_devices_is_that_on_one(mesh):
    flags = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", SHARDED, *map(str, mesh)],
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "compared 8\n"

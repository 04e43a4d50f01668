"""Sharding changes where numbers are computed, not which."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import optax
import pytest
from jax.sharding import PartitionSpec as P

from common.errors import ConfigError
from common.models import autoui
from learner import sharding

ROOT = Path(__file__).parents[2]

COMPARE = """
import dataclasses, functools, sys
import jax, jax.numpy as jnp, numpy as np, optax
from common.models import autoui, distribution
from learner import sharding

config = dataclasses.replace(
    autoui.PRESETS["tiny"], vocab_size=64, d_model=32, num_heads=4, d_kv=8, d_ff=32,
    encoder_layers=1, decoder_layers=1, image_tokens=6, image_grid=(3, 2), image_dim=12,
)
rng = np.random.default_rng(0)
prompt_ids = rng.integers(2, 64, (16, 10)).astype(np.int32)
prompt_ids[::2, 7:] = 0
action_ids = rng.integers(2, 64, (16, 6)).astype(np.int32)
action_ids[1::3, 4:] = 0
batch = prompt_ids, rng.integers(0, 256, (16, 6, 12)).astype(np.uint8), action_ids
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))

params = autoui.init(config, jax.random.key(0))
fresh = jax.device_get((params, optimizer.init(params)))

def run(mesh):
    def step(state, batch):
        def loss(params):
            log_probs, entropy, _ = autoui.token_stats(
                params, config, *batch, distribution.SamplingConfig(0.7)
            )
            return jnp.mean(log_probs.sum(-1)) + entropy.mean()
        with sharding.activations(mesh):
            value, gradient = jax.value_and_grad(loss)(state[0])
        changes, moments = optimizer.update(gradient, state[1])
        return (optax.apply_updates(state[0], changes), moments), value, gradient

    where = sharding.state_sharding(fresh, config, mesh)
    rows, whole = sharding.batch_sharding(mesh), sharding.replicated(mesh)
    step = jax.jit(
        step, in_shardings=(where, rows), out_shardings=(where, whole, where[0]), donate_argnums=0
    )
    state = jax.device_put(fresh, where)
    results = []
    for _ in range(2):  # the second loss depends on Adam's state
        state, value, gradient = step(state, jax.device_put(batch, rows))
        assert gradient["t5"]["embedding"].sharding.spec == where[0]["t5"]["embedding"].spec
        results.append(jax.device_get((value, gradient)))
    return results

expected = run(sharding.make_mesh())
for shape in ((8, 1, 1), (1, 2, 4), (2, 2, 2)):
    for (value, gradient), (one, other) in zip(run(sharding.make_mesh(*shape)), expected):
        np.testing.assert_allclose(value, one, rtol=1e-5)
        jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-4), gradient, other)
print("compared", len(jax.devices()))
"""


def test_three_meshes_agree_with_one_device():
    flags = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", COMPARE],
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "compared 8\n"
    assert "rematerialization" not in result.stderr


def test_every_parameter_and_moment_has_its_place():
    config, mesh = autoui.PRESETS["tiny"], sharding.make_mesh()
    shapes = jax.eval_shape(lambda key: autoui.init(config, key), jax.random.key(0))
    where = sharding.params_shardings(config, mesh)
    assert jax.tree.structure(where) == jax.tree.structure(shapes)
    assert where["t5"]["embedding"].spec == P("tensor", None)
    assert where["t5"]["head"].spec == P("fsdp", "tensor")
    assert where["t5"]["encoder_0"]["attention"]["o"]["kernel"].spec == P("tensor", "fsdp")
    state = jax.eval_shape(optax.adam(1e-3).init, shapes)
    placed = sharding.state_sharding({"params": shapes, "optimizer": state}, config, mesh)
    assert placed["params"] == where
    assert placed["optimizer"][0].mu == placed["optimizer"][0].nu == where
    assert placed["optimizer"][0].count.spec == P()


def test_a_mesh_that_does_not_fit_is_refused_with_a_sentence():
    with pytest.raises(ConfigError, match="needs 1000 devices"):
        sharding.make_mesh(1000)
    mesh = jax.sharding.AbstractMesh((1, 2, 4), sharding.AXES)
    with pytest.raises(ConfigError, match="num_heads is 6, which tensor = 4 does not divide"):
        sharding.validate(autoui.PRESETS["small"], mesh)
    with pytest.raises(ConfigError, match="batch size is 3, which data \\* fsdp = 2"):
        sharding.validate(autoui.PRESETS["base"], mesh, batch_size=3)
    sharding.validate(autoui.PRESETS["base"], mesh, batch_size=4)

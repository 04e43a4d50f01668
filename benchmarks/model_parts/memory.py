"""What an actor with the base model holds in memory beyond the interpreter and XLA."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

# In a process of its own, because a peak never falls. Parameters are zeros that were written, as a
# download would leave them: pages that nobody touched cost nothing.
_SCRIPT = """
import json
import jax, numpy as np
from common.models import autoui
from common.models.distribution import SamplingConfig
from common.models.sampling import sampler

def peak():
    status = open("/proc/self/status").read()  # ru_maxrss would be the parent's, if larger
    return int(status.split("VmHWM:")[1].split()[0]) / 2**20

config = autoui.PRESETS["base"]
prompt = np.full((1, 128), 5, np.int32)
prompt[:, -1] = 1
features = np.ones((1, config.image_tokens, config.image_dim), np.float32)
tiny = autoui.AutoUIConfig(image_grid=None, image_tokens=1)
sample = sampler(tiny, SamplingConfig())
sample(autoui.init(tiny, jax.random.key(0)), prompt, features[..., :108], jax.random.key(0))
before = peak()
shapes = jax.eval_shape(lambda: autoui.init(config, jax.random.key(0)))
params = jax.tree.map(lambda x: np.full(x.shape, 1e-3, x.dtype), shapes)
params = jax.device_put(params)
sample = sampler(config, SamplingConfig())
jax.block_until_ready(sample(params, prompt, features, jax.random.key(0)))
print(json.dumps({"before_gib": before, "peak_gib": peak(),
    "parameters_gib": sum(x.nbytes for x in jax.tree.leaves(params)) / 2**30}))
"""


def run() -> Iterator[dict[str, Any]]:
    """Yields actor_memory; `gib` is the peak less what a tiny model's actor needs."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    measured = json.loads(done.stdout.splitlines()[-1])
    gib = measured["peak_gib"] - measured["before_gib"]
    yield {
        "name": "actor_memory",
        "model": "base",
        "gib": round(gib, 2),
        **{name: round(value, 2) for name, value in measured.items()},
    }

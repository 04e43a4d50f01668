"""What an actor with the base model holds in memory beyond the interpreter and XLA.

It fetches its parameters as actors do, over sockets and through the cache on disk, acts, fetches
the next version, and acts again. Mapped pages count, although other actors of the host share them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

_LEARNER = """
import sys
import jax, numpy as np
from common.models import autoui, lora
from common.types import Version
from learner.publish import Publisher

config = autoui.PRESETS["base"]
shapes = jax.eval_shape(lambda: autoui.init(config, jax.random.key(0)))
params = jax.tree.map(lambda x: np.full(x.shape, 1e-3, x.dtype), shapes)
with Publisher("tcp://127.0.0.1:0").start() as publisher:
    if sys.argv[1] == "lora":
        params, frozen = lora.split(params, lora.LoraConfig(rank=16), jax.random.key(0))
        publisher.publish_base(frozen, 1)
        del frozen
    for step in (1, 2):
        params = jax.tree.map(lambda x: np.asarray(x) * np.float32(1.5), params)
        publisher.publish(params, Version(1, step))
        if step == 1:
            del shapes
        print(publisher.port, sum(x.nbytes for x in jax.tree.leaves(params)), flush=True)
        sys.stdin.readline()
"""

# In a process of its own, because a peak never falls.
_ACTOR = """
import functools, json, pathlib, sys, time
import jax, numpy as np
from actors.cache import Cache
from actors.download import ParameterReader
from actors.policy import Policy
from common import channel
from common.models import autoui
from common.models.text import Tokenizer, grammar_corpus

def memory(field):
    status = open("/proc/self/status").read()  # ru_maxrss would be the parent's, if larger
    return int(status.split(field + ":")[1].split()[0]) / 2**20

def policy(preset):
    config = autoui.PRESETS[preset]
    features = np.ones((config.image_tokens, config.image_dim), np.float32)
    return Policy(config, tokenizer, 0, extract=lambda screen: features)

tokenizer = Tokenizer.train(grammar_corpus())
screen = np.zeros((512, 256, 3), np.uint8)
tiny = policy("tiny")
tiny.set_params(autoui.init(autoui.PRESETS["tiny"], jax.random.key(0)), 0)
tiny.act("goal", screen)
print(flush=True)
address = sys.stdin.readline().strip()
connect = functools.partial(channel.dealer, channel.context())
reader = ParameterReader(connect, address, Cache(pathlib.Path(sys.argv[1])))
before = memory("VmHWM")
actor, known, seconds = policy("base"), None, []
for _ in range(2):
    began = time.monotonic()
    known, params = reader.fetch(known, "float32", 600, lambda: None)
    seconds.append(round(time.monotonic() - began, 2))
    actor.set_params(params, known.step)
    size = sum(x.nbytes for x in jax.tree.leaves(params)) / 2**30
    del params
    actor.act("goal", screen)
    print(flush=True)
    sys.stdin.readline()
print(json.dumps({"before_gib": before, "peak_gib": memory("VmHWM"), "anonymous_gib":
    memory("RssAnon"), "parameters_gib": size, "fetch_s": seconds}))
"""


def run() -> Iterator[dict[str, Any]]:
    """Yields actor_memory; `gib` is the peak less what a tiny model's actor needs."""
    for trained in ("whole", "lora"):
        measured = _measure(trained)
        numbers = {
            name: round(value, 2) for name, value in measured.items() if name.endswith("_gib")
        }
        yield {
            "name": "actor_memory",
            "model": "base",
            "trained": trained,
            "gib": round(measured["peak_gib"] - measured["before_gib"], 2),
            **numbers,
            "published_mb": measured["published_mb"],  # a version, as float32
            "fetch_s": measured["fetch_s"],
        }


def _measure(trained: str) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory() as cache,
        _process(_LEARNER, trained) as learner,
        _process(_ACTOR, cache) as actor,
    ):
        port, published = _line(learner).split()
        _line(actor)  # it has compiled
        _tell(actor, f"tcp://127.0.0.1:{port}")
        _line(actor)  # it has acted
        _tell(learner, "next")
        _line(learner)
        _tell(actor, "next")
        _line(actor)
        _tell(actor, "end")
        measured: dict[str, Any] = json.loads(_line(actor))
    return measured | {"published_mb": round(int(published) / 1e6, 1)}


def _process(script: str, argument: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, argument],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"A process ended with exit code {process.wait()}.")
    return line.strip()

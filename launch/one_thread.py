"""Keeps JAX to one CPU thread: many actors share a machine, and each is a small job."""

from __future__ import annotations

import os
import pathlib
import sys

_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "JAX_COMPILATION_CACHE_DIR": str(pathlib.Path("~/.cache/distrl/jax").expanduser()),
}


def configure() -> None:
    """Sets what JAX reads when it is imported; what the environment says already stays."""
    if "jax" in sys.modules:
        raise RuntimeError("JAX was imported before one_thread.configure()")
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)

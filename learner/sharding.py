"""Where arrays live: a mesh (data, fsdp, tensor), and logical axes that map to it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from common.errors import ConfigError
from common.models import autoui
from common.models.autoui import AutoUIConfig

AXES = ("data", "fsdp", "tensor")

# Logical axes that are not named here are replicated. One of them is the width of the embedding
# table: P("tensor", None) spares XLA the involuntary rematerialisation of every lookup.
RULES = (
    ("batch", ("data", "fsdp")),
    ("vocab", "tensor"),
    ("mlp", "tensor"),
    ("heads", "tensor"),
    ("embed", "fsdp"),
)


def make_mesh(data: int = 1, fsdp: int = 1, tensor: int = 1) -> Mesh:
    """Returns a mesh of the first data * fsdp * tensor devices; one device is a mesh, too.

    Raises:
      ConfigError: There are not so many.
    """
    shape = (data, fsdp, tensor)
    wanted, devices = math.prod(shape), jax.devices()
    if min(shape) < 1 or wanted > len(devices):
        raise ConfigError(
            f"A mesh of data={data}, fsdp={fsdp}, tensor={tensor} needs {wanted} devices, "
            f"and JAX sees {len(devices)}."
        )
    return jax.make_mesh(shape, AXES, (AxisType.Auto,) * 3, devices=devices[:wanted])


def validate(config: AutoUIConfig, mesh: Mesh, batch_size: int | None = None) -> None:
    """Raises ConfigError if the model, or a batch, does not divide over the mesh."""
    rows = mesh.shape["data"] * mesh.shape["fsdp"]
    for axis, by, name, size in (
        ("tensor", mesh.shape["tensor"], "num_heads", config.num_heads),
        ("tensor", mesh.shape["tensor"], "d_ff", config.d_ff),
        ("tensor", mesh.shape["tensor"], "vocab_size", config.vocab_size),
        ("fsdp", mesh.shape["fsdp"], "d_model", config.d_model),
        ("data * fsdp", rows, "the batch size", rows if batch_size is None else batch_size),
    ):
        if size % by:
            raise ConfigError(
                f"{name} is {size}, which {axis} = {by} does not divide: choose another mesh."
            )


def params_shardings(config: AutoUIConfig, mesh: Mesh) -> Any:
    """Returns a NamedSharding for each parameter, in the structure of `autoui.init`.

    Raises:
      ConfigError: The model does not divide over the mesh.
    """
    validate(config, mesh)
    boxed = jax.eval_shape(lambda key: autoui.boxed_init(config, key), jax.random.key(0))
    return nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, RULES)


def state_sharding(state: Any, config: AutoUIConfig, mesh: Mesh) -> Any:
    """Returns a NamedSharding for each leaf of a state that holds parameters somewhere.

    What has a parameter's path and shape lies as the parameter does, as an optimizer's moments;
    all else is replicated. Without this, jit would put a fresh optimizer state on one device.

    Args:
      state: Arrays or their shapes.
      config: Of the policy whose parameters are in it.
      mesh: From `make_mesh`.
    """
    shapes = jax.eval_shape(lambda key: autoui.init(config, key), jax.random.key(0))
    known = jax.tree.map(
        lambda leaf, where: (leaf.shape, where), shapes, params_shardings(config, mesh)
    )
    flat = dict(jax.tree_util.tree_leaves_with_path(known, is_leaf=lambda x: isinstance(x, tuple)))
    whole = replicated(mesh)

    def where(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
        for start in range(len(path)):
            shape, sharding = flat.get(path[start:], (None, whole))
            if shape == leaf.shape:
                return sharding
        return whole

    return jax.tree_util.tree_map_with_path(where, state)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """For arrays whose first axis is the batch."""
    return NamedSharding(mesh, PartitionSpec(("data", "fsdp")))


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())


@contextlib.contextmanager
def activations(mesh: Mesh) -> Iterator[None]:
    """What jit traces inside keeps the model's residual stream split over the batch.

    Without the constraint XLA gathers activations about three times as often.
    """
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh), nn.logical_axis_rules(RULES):
        yield

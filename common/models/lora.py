"""Low-rank adapters: a few trained numbers beside each attention matrix of a frozen T5.

Hu et al., "LoRA" (2021): y = x W + (alpha / rank) (x A) B, on q, k, v and o of every attention
layer, without dropout. The parameters are then two trees without a common leaf, and both have the
names of the model: `trained` holds A and B as "lora_a" and "lora_b" where the kernel would be, and
the parts of Auto-UI that are no T5; `frozen` holds the rest. Their union is what the model takes.

The learner works on the union: a merged kernel would need its whole gradient, which costs as much
as training it. Actors and evaluation merge, once for each version, and decode as without adapters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from flax import traverse_util

from common.errors import ConfigError

Tree = dict[str, Any]

_A, _B = "lora_a", "lora_b"
_BLOCKS, _MATRICES = ("attention", "cross"), ("q", "k", "v", "o")


@dataclasses.dataclass(frozen=True)
class LoraConfig:
    """What is trained of a policy.

    Attributes:
      rank: Columns of A and rows of B; 0 trains the whole policy.
      alpha: Over the rank it is the scale of A B. DistRL: 32 at rank 16.
      whole: The parts of the policy that are trained as they are.
    """

    rank: int = 0
    alpha: float = 32.0
    whole: tuple[str, ...] = ("fusion", "image")

    def __post_init__(self) -> None:
        if self.rank < 0 or not self.alpha > 0:
            raise ConfigError(
                f"lora: rank must be 0 or more and alpha above 0, not {self.rank}, {self.alpha}."
            )
        object.__setattr__(self, "whole", tuple(self.whole))  # JSON makes it a list
        if not set(self.whole) <= {"fusion", "image"}:
            raise ConfigError(f"lora.whole may name fusion and image, not {list(self.whole)}.")


def split(params: Tree, config: LoraConfig, key: jax.Array) -> tuple[Tree, Tree]:
    """Divides a policy's parameters and adds the adapters, which change nothing at first.

    A is drawn as in the paper's code, and B is 0.

    Returns:
      (trained, frozen); with rank 0 all is trained and `frozen` is empty.
    """
    if not config.rank:
        return params, {}
    frozen = traverse_util.flatten_dict(params)
    trained = {path: frozen.pop(path) for path in list(frozen) if path[0] in config.whole}
    for number, path in enumerate(sorted(frozen)):
        if path[-1] == "kernel" and path[-3] in _BLOCKS and path[-2] in _MATRICES:
            inputs, outputs = frozen[path].shape
            bound = inputs**-0.5  # kaiming_uniform(a = sqrt(5))
            trained[*path[:-1], _A] = jax.random.uniform(
                jax.random.fold_in(key, number), (inputs, config.rank), jnp.float32, -bound, bound
            )
            trained[*path[:-1], _B] = jnp.zeros((config.rank, outputs), jnp.float32)
    return traverse_util.unflatten_dict(trained), traverse_util.unflatten_dict(frozen)


def scaled(trained: Tree, config: LoraConfig) -> Tree:
    """Returns `trained` with alpha / rank multiplied into A, as the model and the wire have it."""
    if not config.rank:
        return trained

    def scale(path: tuple[Any, ...], leaf: Any) -> Any:
        return leaf * (config.alpha / config.rank) if path[-1].key == _A else leaf

    return jax.tree_util.tree_map_with_path(scale, trained)


def union(frozen: Tree, trained: Tree) -> Tree:
    """Returns the tree with the leaves of both."""
    both = {**frozen, **trained}
    for name in frozen.keys() & trained.keys():
        both[name] = union(frozen[name], trained[name])
    return both


def merge(params: Tree) -> Tree:
    """Returns a union, scaled, with kernel + A B for each kernel: a policy without adapters."""
    if _A in params:
        kernel = params["kernel"] + params[_A] @ params[_B]
        return {k: v for k, v in params.items() if k not in (_A, _B)} | {"kernel": kernel}
    return {k: merge(v) if isinstance(v, dict) else v for k, v in params.items()}


def merged_leaves(
    trained: Iterable[tuple[str, Any]], kernel: Callable[[str], Any]
) -> Iterator[tuple[str, Any]]:
    """Yields what `merge` makes of a trained tree, one leaf at a time.

    Args:
      trained: Paths such as "encoder/0/q/lora_a" and leaves, scaled, in the order of the paths.
      kernel: Returns the frozen leaf of a path.

    Raises:
      KeyError: There is no such kernel.
      ValueError: An adapter's size is not its kernel's.
    """
    a = None
    for path, leaf in trained:
        parent, _, name = path.rpartition("/")
        if name == _A:
            a = leaf
        elif name == _B:
            yield f"{parent}/kernel", kernel(f"{parent}/kernel") + a @ leaf
        else:
            yield path, leaf

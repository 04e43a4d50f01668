"""Checkpoints of the whole learner, by Orbax."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers

from common import weights
from common.errors import ConfigError
from common.models import lora
from learner.state import LearnerState

BASE = "base"  # folder of what is frozen
POLICY_META = ("model", "tokenizer")  # of a policy that others can go on from


class PinnedSteps(checkpoint_managers.PreservationPolicy):
    """Preserves the steps that were pinned, whenever that was."""

    def __init__(self) -> None:
        self.steps: set[int] = set()

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        return [checkpoint.step in self.steps for checkpoint in checkpoints]


class Checkpoints:
    """Saves in the background and keeps the newest few, and those that are pinned for good.

    Each holds three items: `params` (what is trained of the policy), `rest` (optimizers and critic)
    and `meta` (JSON: model, tokenizer, progress, random state). What is frozen of the policy is
    saved once, beside the first of them, and each names it by its digest.
    """

    def __init__(self, folder: pathlib.Path, keep: int = 2):
        self._pinned = PinnedSteps()
        self._folder = folder.absolute()
        self._base = ""  # its digest, once it was saved or restored
        for unfinished in folder.glob("*.orbax-checkpoint-tmp*"):
            shutil.rmtree(unfinished)  # of a learner that was killed while it saved
        self._manager = ocp.CheckpointManager(
            self._folder,
            item_handlers=_handlers(),
            options=ocp.CheckpointManagerOptions(
                preservation_policy=checkpoint_managers.AnyPreservationPolicy(
                    [checkpoint_managers.LatestN(keep), self._pinned]
                ),
            ),
        )

    def pin(self, step: int) -> None:
        """Keeps the checkpoint of `step`, saved or yet to be saved, for good."""
        self._pinned.steps.add(step)

    def save(self, step: int, state: LearnerState, meta: Mapping[str, Any]) -> None:
        """Starts to save; returns once the state has been copied, so it may be donated at once."""
        if step in self._manager.all_steps():
            return
        if state.frozen:
            meta = {**meta, "base": self._save_base(state.frozen)}
        self._manager.save(
            step,
            args=ocp.args.Composite(
                params=ocp.args.StandardSave(state.params),
                rest=ocp.args.StandardSave(_rest(state)),
                meta=ocp.args.JsonSave(dict(meta)),
            ),
            force=True,
        )

    def _save_base(self, frozen: Any) -> str:
        if not self._base:
            # One that is there already is of a learner that was killed before its first step.
            with ocp.StandardCheckpointer() as checkpointer:
                checkpointer.save(self._folder / BASE, frozen, force=True)
            self._base = weights.digest(jax.device_get(frozen))
        return self._base

    def latest_meta(self) -> dict[str, Any] | None:
        """The newest checkpoint's metadata, or None where nothing was saved."""
        step = self._manager.latest_step()
        if step is None:
            return None
        return self._manager.restore(step, args=ocp.args.Composite(meta=ocp.args.JsonRestore()))[
            "meta"
        ]

    def restore(self, like: LearnerState) -> LearnerState:
        """Restores the newest state onto the shapes and shardings of `like`.

        Args:
          like: Arrays or ShapeDtypeStructs with a sharding; any mesh.
        """
        step = self._manager.latest_step()
        if step is None:
            raise ConfigError("There is no checkpoint to restore.")
        target = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        self._check(step, "policy", "params", target.params)
        self._check(step, "critic", "rest", target.critic_params)
        restored = self._manager.restore(
            step,
            args=ocp.args.Composite(
                params=ocp.args.StandardRestore(target.params),
                rest=ocp.args.StandardRestore(_rest(target)),
                meta=ocp.args.JsonRestore(),
            ),
        )
        frozen = {}
        if target.frozen:
            self._base = restored["meta"]["base"]
            frozen = _restore_base(self._folder, target.frozen, self._base)
        return LearnerState(**restored["rest"], frozen=frozen)._replace(params=restored["params"])

    def _check(self, step: int, name: str, item: str, params: Any) -> None:
        """Raises ConfigError if the saved parameters have other names or shapes."""
        metadata = self._manager.item_metadata(step)[item]
        saved = _shapes(metadata if item == "params" else metadata["critic_params"])
        wanted = _shapes(params)
        if saved != wanted:
            different = sorted({name for name, _ in set(saved.items()) ^ set(wanted.items())})
            raise ConfigError(
                f"Checkpoint {step} in {self._manager.directory} is of another {name}; "
                f"{len(different)} parameters differ, the first is {different[0]}."
            )

    def wait(self) -> None:
        self._manager.wait_until_finished()

    def close(self) -> None:
        self._manager.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def save_policy(folder: pathlib.Path, params: Any, meta: Mapping[str, Any]) -> None:
    """Saves a policy that no learner made, as step 0 of an empty folder; `load_policy` reads it."""
    with ocp.CheckpointManager(folder.absolute(), item_handlers=_handlers()) as manager:
        manager.save(
            0,
            args=ocp.args.Composite(
                params=ocp.args.StandardSave(params), meta=ocp.args.JsonSave(dict(meta))
            ),
        )


def load_policy(
    path: pathlib.Path, needs: Sequence[str] = POLICY_META
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Loads a policy's parameters, adapters merged, as NumPy arrays on any machine; and metadata.

    Args:
      path: A run's `checkpoints` folder (its newest is taken) or one step's folder in it.
      needs: What the metadata must hold.

    Raises:
      ConfigError: where there is no such checkpoint, or one that says too little of its policy.
    """
    path = path.absolute()
    if not path.is_dir():
        raise ConfigError(f"There is no checkpoint folder {path}.")
    folder = path.parent if path.name.isdecimal() else path
    found = [
        int(p.name) for p in folder.iterdir() if p.name.isdecimal() and (p / "params").is_dir()
    ]
    wanted = int(path.name) if path.name.isdecimal() else max(found, default=None)
    if wanted not in found:
        raise ConfigError(
            f"{path} holds no finished checkpoint; give a run's checkpoints folder or a step in it."
        )
    options = ocp.CheckpointManagerOptions(read_only=True)
    with ocp.CheckpointManager(folder, item_handlers=_handlers(), options=options) as manager:
        target = _on_one_device(manager.item_metadata(wanted)["params"])
        restored = manager.restore(
            wanted,
            args=ocp.args.Composite(
                params=ocp.args.StandardRestore(target), meta=ocp.args.JsonRestore()
            ),
        )
    params, meta = restored["params"], restored["meta"]
    if missing := [name for name in needs if name not in meta]:
        raise ConfigError(
            f"The checkpoint {folder / str(wanted)} does not say its policy's "
            f"{', '.join(missing)}: another version of distrl wrote it. Train it anew."
        )
    if "base" in meta:
        with ocp.StandardCheckpointer() as checkpointer:
            saved = checkpointer.metadata(folder / BASE).item_metadata
        frozen = _restore_base(folder, _on_one_device(saved), meta["base"])
        adapters = lora.scaled(params, lora.LoraConfig(**meta["lora"]))
        params = lora.merge(lora.union(frozen, adapters))
    return jax.device_get(params), {**meta, "step": wanted}


def _on_one_device(tree: Any) -> Any:
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree
    )


def _restore_base(folder: pathlib.Path, target: Any, digest: str) -> Any:
    """Restores what is frozen; ConfigError if it is not what the checkpoint was trained on."""
    with ocp.StandardCheckpointer() as checkpointer:
        frozen = checkpointer.restore(folder / BASE, target)
    if weights.digest(jax.device_get(frozen)) != digest:
        raise ConfigError(f"{folder / BASE} is not the base of the checkpoints beside it.")
    return frozen


def _rest(state: LearnerState) -> dict[str, Any]:
    rest = state._replace(params=None)._asdict()
    del rest["frozen"]
    return rest


def _handlers() -> dict[str, Any]:
    return {
        "params": ocp.StandardCheckpointHandler(),
        "rest": ocp.StandardCheckpointHandler(),
        "meta": ocp.JsonCheckpointHandler(),
    }


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): tuple(leaf.shape) for path, leaf in leaves}

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

from common.errors import ConfigError
from learner.update import LearnerState


class PinnedSteps(checkpoint_managers.PreservationPolicy):
    """Preserves the steps that were pinned, whenever that was."""

    def __init__(self) -> None:
        self.steps: set[int] = set()

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        return [checkpoint.step in self.steps for checkpoint in checkpoints]


class Checkpoints:
    """Saves in the background and keeps the newest few, and those that are pinned for good.

    Each holds three items: `params` (the policy alone, for actors and evaluation), `rest`
    (optimizers and critic) and `meta` (JSON: model, tokenizer, progress, random state).
    """

    def __init__(self, folder: pathlib.Path, keep: int = 2):
        self._pinned = PinnedSteps()
        for unfinished in folder.glob("*.orbax-checkpoint-tmp*"):
            shutil.rmtree(unfinished)  # of a learner that was killed while it saved
        self._manager = ocp.CheckpointManager(
            folder.absolute(),
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
        self._manager.save(
            step,
            args=ocp.args.Composite(
                params=ocp.args.StandardSave(state.params),
                rest=ocp.args.StandardSave(state._replace(params=None)._asdict()),
                meta=ocp.args.JsonSave(dict(meta)),
            ),
            force=True,
        )

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
        self._check(step, target.params)
        restored = self._manager.restore(
            step,
            args=ocp.args.Composite(
                params=ocp.args.StandardRestore(target.params),
                rest=ocp.args.StandardRestore(target._replace(params=None)._asdict()),
            ),
        )
        return LearnerState(**restored["rest"])._replace(params=restored["params"])

    def _check(self, step: int, params: Any) -> None:
        """Raises ConfigError if the saved parameters have other names or shapes."""
        saved = _shapes(self._manager.item_metadata(step)["params"])
        wanted = _shapes(params)
        if saved != wanted:
            different = sorted({name for name, _ in set(saved.items()) ^ set(wanted.items())})
            raise ConfigError(
                f"Checkpoint {step} in {self._manager.directory} is of another model; "
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


def load_policy(path: pathlib.Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Loads a policy's parameters as NumPy arrays on any machine, with the metadata.

    Args:
      path: A run's `checkpoints` folder (its newest is taken) or one step's folder in it.

    Raises:
      ConfigError: where there is no such checkpoint.
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
        sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        target = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
            manager.item_metadata(wanted)["params"],
        )
        restored = manager.restore(
            wanted,
            args=ocp.args.Composite(
                params=ocp.args.StandardRestore(target), meta=ocp.args.JsonRestore()
            ),
        )
    return jax.device_get(restored["params"]), {**restored["meta"], "step": wanted}


def _handlers() -> dict[str, Any]:
    return {
        "params": ocp.StandardCheckpointHandler(),
        "rest": ocp.StandardCheckpointHandler(),
        "meta": ocp.JsonCheckpointHandler(),
    }


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): tuple(leaf.shape) for path, leaf in leaves}

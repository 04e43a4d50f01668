"""Checkpoints of the whole learner, by Orbax."""

from __future__ import annotations

import pathlib
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
        self._manager = ocp.CheckpointManager(
            folder.absolute(),
            options=ocp.CheckpointManagerOptions(
                preservation_policy=checkpoint_managers.AnyPreservationPolicy(
                    [checkpoint_managers.LatestN(keep), self._pinned]
                ),
                cleanup_tmp_directories=True,
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
        try:
            restored = self._manager.restore(
                step,
                args=ocp.args.Composite(
                    params=ocp.args.StandardRestore(target.params),
                    rest=ocp.args.StandardRestore(target._replace(params=None)._asdict()),
                ),
            )
        except ValueError as error:
            raise ConfigError(
                f"Checkpoint {step} in {self._manager.directory} is of another model: {error}"
            ) from error
        return LearnerState(**restored["rest"])._replace(params=restored["params"])

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


def load_policy(path: pathlib.Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Loads a policy's parameters as NumPy arrays on any machine, with the metadata.

    Args:
      path: A run's `checkpoints` folder (its newest is taken) or one step's folder in it.

    Raises:
      ConfigError: where there is no such checkpoint, with what there is.
    """
    path = path.absolute()
    if not path.is_dir():
        raise ConfigError(f"There is no checkpoint folder {path}.")
    if path.name.isdecimal():
        folder, step = path.parent, int(path.name)
    else:
        folder, step = path, None
    options = ocp.CheckpointManagerOptions(read_only=True)
    with ocp.CheckpointManager(folder, options=options) as manager:
        if step is None:
            step = manager.latest_step()
        if step is None or step not in manager.all_steps():
            raise ConfigError(
                f"{path} holds no finished checkpoint; "
                "give a run's checkpoints folder or a step in it."
            )
        meta = manager.restore(step, args=ocp.args.Composite(meta=ocp.args.JsonRestore()))["meta"]
        shapes = manager.item_metadata(step)["params"]
        target = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), shapes)
        sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        target = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), target
        )
        params = manager.restore(
            step, args=ocp.args.Composite(params=ocp.args.StandardRestore(target))
        )["params"]
    return jax.device_get(params), {**meta, "step": step}

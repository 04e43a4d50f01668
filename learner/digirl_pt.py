"""Reads the trajectory lists that DigiRL and DistRL write with torch.save, without running them.

Such a file is a pickle, which can name any function to be called. PyTorch's restricted reader
(weights_only) makes nothing but containers, numbers, texts and tensors, and what is pickled as
NumPy's becomes the plain classes below, which check it; a file that names anything else is refused
before it is read. Needs the torch extra.
"""

from __future__ import annotations

import dataclasses
import pathlib
import pickle
import struct
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from common import actions
from common.actions import Action, ActionType
from common.codec import LARGEST_FEATURE, MAX_STEPS, EpisodeSpec
from common.errors import ConfigError
from common.models.text import Tokenizer
from common.types import Ending, Episode, Trajectory

DTYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "b1")
UNREADABLE = (  # what readers of pickles raise at a damaged one
    OSError, RuntimeError, EOFError, ValueError, TypeError, LookupError, AttributeError,
    AssertionError, MemoryError, OverflowError, struct.error,
)  # fmt: skip
# Both projects' keys. What stands behind the second group follows from the rest, or names files of
# the machine that wrote it.
KEPT = ("observation", "action", "reward", "done", "task", "image_features", "next_image_features")
DROPPED = (
    "next_observation", "image_path", "video_path", "mc_return", "trajectory_reward",
    "penalty", "log_prob", "next_log_prob", "entropy", "trainer_time_index",
)  # fmt: skip
END = "</s>"  # DigiRL writes it out at the end of a prompt, and the tokenizer would once more
MAX_REPEATS = 255


class UnusableError(ValueError):
    """One trajectory can't become an episode; the others may."""


def read_trajectories(path: pathlib.Path) -> list[list[dict[str, Any]]]:
    """Returns the trajectories of a file: lists of steps by DigiRL's names, arrays as NumPy's.

    Raises:
      ConfigError: torch is missing, or the file is unreadable, or holds anything else.
    """
    try:
        import torch
    except ImportError as error:
        raise ConfigError(f"{path} must be read by torch: `pip install .[torch]`.") from error
    serialization = torch.serialization
    try:
        with serialization.safe_globals(_numpy_globals()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if foreign := sorted(serialization.get_unsafe_globals_in_checkpoint(path)):
                raise ConfigError(
                    f"{path} holds {', '.join(foreign)}; only texts, numbers, arrays and tensors "
                    "are read."
                )
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reason = str(error).rpartition("WeightsUnpickler error: ")[2].strip().partition("\n")[0]
        raise ConfigError(f"{path} is refused: {reason}") from error
    except UNREADABLE as error:
        raise ConfigError(f"Cannot read {path}: {error!r}.") from error
    if not isinstance(content, list):
        raise ConfigError(f"{path} holds a {type(content).__name__}, not a list of trajectories.")
    return [_steps(f"{path}, trajectory {i}", steps) for i, steps in enumerate(content)]


class _DType:
    """What is pickled as a NumPy dtype: of numbers, in this machine's order of bytes."""

    def __init__(self, name: str = "", *_: Any):
        if name not in DTYPES:
            raise pickle.UnpicklingError(f"It holds an array of the type {name!r}.")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: Any) -> None:
        if state[1] not in ("<", "|"):
            raise pickle.UnpicklingError("It holds an array in another order of bytes.")


class _Array:
    """What is pickled as a NumPy array."""

    def __init__(self) -> None:
        self.array = np.zeros(0)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, is_fortran, data = state
        flat = np.frombuffer(data, dtype.dtype)
        self.array = flat.reshape(shape, order="F" if is_fortran else "C")


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _scalar(dtype: _DType, data: bytes) -> np.generic:
    (value,) = np.frombuffer(data, dtype.dtype)
    return value


def _numpy_globals() -> list[Callable[..., Any] | tuple[Callable[..., Any], str]]:
    """What stands for the names of NumPy in a pickle, the old ones and the new ones."""
    functions: dict[str, Callable[..., Any]] = {"_reconstruct": _reconstruct, "scalar": _scalar}
    return [
        (_Array, "numpy.ndarray"),
        (_DType, "numpy.dtype"),
        *(
            (function, f"numpy.{core}.multiarray.{name}")
            for name, function in functions.items()
            for core in ("core", "_core")
        ),
    ]


def _steps(where: str, steps: Any) -> list[dict[str, Any]]:
    """Checks the form of a trajectory; ConfigError names what is not as it has to be."""
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise ConfigError(f"{where} is no list of steps with names.")
    return [_step(f"{where}, step {i}", step) for i, step in enumerate(steps)]


def _step(where: str, step: Mapping[Any, Any]) -> dict[str, Any]:
    for name in step:
        if name not in KEPT + DROPPED:
            raise ConfigError(f"{where} holds {name!r}; known are {', '.join(KEPT + DROPPED)}.")
    found: dict[str, Any] = {}
    for name, kind in (("observation", str), ("action", str), ("task", str)):
        found[name] = step.get(name, "" if name == "task" else None)
        if not isinstance(found[name], kind):
            raise ConfigError(f"{where}: {name} is a {type(found[name]).__name__}, no text.")
    for name in ("reward", "done"):
        value = _array(where, name, step.get(name))
        if value is None or value.size != 1:
            raise ConfigError(f"{where}: {name} is no number.")
        found[name] = float(value.reshape(()))
    for name in ("image_features", "next_image_features"):
        found[name] = _array(where, name, step.get(name))
    return found


def _array(where: str, name: str, value: Any) -> np.ndarray | None:
    """Returns a number, an array or a tensor as a finite array; None stays None."""
    if value is None:
        return None
    if isinstance(value, _Array):
        value = value.array
    if hasattr(value, "detach"):
        value = value.detach().float().numpy()
    if not isinstance(value, bool | int | float | np.ndarray | np.generic):
        raise ConfigError(f"{where}: {name} is a {type(value).__name__}, no number or array.")
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise ConfigError(f"{where}: {name} holds what is no finite number.")
    return array


@dataclasses.dataclass
class Converter:
    """Makes episodes of trajectories, for the model whose shapes and tokenizer it is given."""

    spec: EpisodeSpec
    tokenizer: Tokenizer
    name: str  # of the source, in the episodes' records
    suite: str = "general"

    def __call__(self, number: int, steps: Sequence[Mapping[str, Any]]) -> Episode:
        """Returns the episode of one trajectory.

        Its log-probabilities are not kept: DigiRL writes none, and DistRL's are of an action in
        all, tokenised again and clamped. So the ratio of its policy to ours is taken as 1.

        Raises:
          UnusableError: It has no steps or too many, no features of the model's shape, an action
            that the tokenizer can't write, or ends before its last step.
        """
        if not 1 <= len(steps) <= MAX_STEPS:
            raise UnusableError(f"{len(steps)} steps")
        if any(step["done"] for step in steps[:-1]):
            raise UnusableError("done before the last step")
        ending = _ending(steps[-1])
        if ending is Ending.TRUNCATED and len(steps) == 1:
            raise UnusableError("one step without an outcome")
        goal = steps[0]["task"] or _goal(steps[0]["observation"])
        prompts = tuple(_prompt(step["observation"]) for step in steps)
        texts = tuple(step["action"] for step in steps)
        features = np.stack([self._features(step["image_features"]) for step in steps])
        length = len(steps)
        reward, discount = np.zeros(length, np.float32), np.ones(length, np.float32)
        mask = np.ones(length, np.uint8)
        cut_off = ending is Ending.TRUNCATED
        reward[-1], discount[-1], mask[-1] = ending is Ending.SUCCESS, cut_off, not cut_off
        trajectory = Trajectory(
            prompt_ids=np.stack(
                [self.tokenizer.encode_prompt(p, self.spec.prompt_length) for p in prompts]
            ),
            features=features,
            action_ids=np.stack([self._action_ids(text) for text in texts]),
            behaviour_log_probs=np.zeros((length, self.spec.action_length), np.float32),
            reward=reward,
            discount=discount,
            invalid=np.array([_is_invalid(step) for step in steps], np.uint8),
            repeats=_repeats(texts),
            mask=mask,
            version=np.full(length, -1, np.int64),
        )
        return Episode(
            trajectory=trajectory,
            actor="digirl-pt",
            boot=self.name,
            seq=number,
            source="recorded",
            task_id=goal[:256],
            template="digirl-pt",
            family="digirl-pt",
            suite=self.suite,
            goal=goal,
            seed=0,
            ending=ending,
            cause="the recording ends here" if cut_off else "",
            verdict={"status": "success" if ending is Ending.SUCCESS else "failure"},
            lineage=0,
            temperature=1.0,
            duration_s=0.0,
            prompts=prompts,
            actions=texts,
        )

    def _features(self, array: np.ndarray | None) -> np.ndarray:
        """The newest frame's features; a stack of frames has it last."""
        size = self.spec.image_tokens * self.spec.image_dim
        if array is None or array.size % size or not array.size:
            found = "no features" if array is None else f"{array.size} features"
            raise UnusableError(f"{found}, and the model takes {size}")
        if np.abs(array).max() > LARGEST_FEATURE:
            raise UnusableError("features too large")
        newest = array.reshape(-1)[-size:]
        return newest.reshape(self.spec.image_tokens, self.spec.image_dim).astype(
            self.spec.features_dtype
        )

    def _action_ids(self, text: str) -> np.ndarray:
        try:
            return self.tokenizer.encode_action(text, self.spec.action_length)
        except ConfigError as error:
            raise UnusableError("an action that the tokenizer can't write") from error


def _prompt(observation: str) -> str:
    return observation.removesuffix(END)


def _goal(observation: str) -> str:
    return _prompt(observation).rpartition("Goal: ")[2].strip()


def _ending(last: Mapping[str, Any]) -> Ending:
    """Both projects end an episode at a reward of 1; one that goes on nowhere was cut off."""
    if last["reward"] >= 1:
        return Ending.SUCCESS
    if not last["done"]:
        return Ending.TRUNCATED
    action = actions.parse(last["action"])
    gave_up = isinstance(action, Action) and action.is_status
    return Ending.GAVE_UP if gave_up else Ending.HORIZON


def _is_invalid(step: Mapping[str, Any]) -> bool:
    """As in the actors' environment; the screen is compared by its features."""
    action = actions.parse(step["action"])
    if not isinstance(action, Action):
        return True
    if action.type is ActionType.TYPE and not action.text:
        return True
    before, after = step["image_features"], step["next_image_features"]
    if action.is_status or step["reward"] >= 1 or before is None or after is None:
        return False
    size = min(before.size, after.size)
    return np.array_equal(before.reshape(-1)[-size:], after.reshape(-1)[-size:])


def _repeats(texts: Sequence[str]) -> np.ndarray:
    """How often in a row each decision had been taken before, [T] uint8."""
    repeats: list[int] = []
    previous = ""
    for text in texts:
        decision = actions.decision(text) if isinstance(actions.parse(text), Action) else ""
        again = bool(decision) and decision == previous
        repeats.append(min(repeats[-1] + 1, MAX_REPEATS) if again else 0)
        previous = decision
    return np.array(repeats, np.uint8)

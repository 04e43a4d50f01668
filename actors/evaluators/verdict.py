"""What every judge is asked and what it answers."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from common.errors import DistRLError
from common.tasks import Task


class JudgeError(DistRLError):
    """Judging can't go on: too many answers are missing, or the budget is spent."""


class Status(enum.StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"
    UNKNOWN = "unknown"  # the judge itself failed; never a failure of the policy


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A judge's answer.

    Attributes:
      status: Whether the task is done.
      reason: A sentence of why.
      source: The kind of judge: "state", "model" or "human".
      model: The model that was asked, for a model.
      latency_s: How long it took.
      error: For UNKNOWN, a short name of what failed.
      answered_by: The model that answered, as it names itself.
      prompt_hash: Of all text that the model was shown.
      image_hashes: Of the pictures that it was shown.
      attempts: How often it was asked.
      tokens_in: Tokens of the questions, as the service counts them.
      tokens_out: Tokens of the answers.
      cost_usd: What they cost, by the prices that were configured.
      cached: The answer is one that was given before.
      raw: The answer as it came.
    """

    status: Status
    reason: str
    source: str
    model: str = ""
    latency_s: float = 0.0
    error: str = ""
    answered_by: str = ""
    prompt_hash: str = ""
    image_hashes: tuple[str, ...] = ()
    attempts: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    cached: bool = False
    raw: str = ""

    def record(self) -> dict[str, Any]:
        """Returns what is set of it, as plain data."""
        values = {k: v for k, v in dataclasses.asdict(self).items() if v not in ("", 0, False, ())}
        values |= {"status": str(self.status), "reason": self.reason}
        if self.image_hashes:
            values["image_hashes"] = list(self.image_hashes)
        return values

    @classmethod
    def from_record(cls, values: dict[str, Any]) -> Verdict:
        """Reads a record back; KeyError, TypeError or ValueError if it is none."""
        hashes = tuple(values.get("image_hashes", ()))
        return cls(**values | {"status": Status(values["status"]), "image_hashes": hashes})


def unknown(reason: str, source: str, error: str) -> Verdict:
    return Verdict(Status.UNKNOWN, reason, source, error=error)


@dataclasses.dataclass(frozen=True)
class Request:
    """What a judge may look at.

    Attributes:
      task: Goal and checks.
      shell: Runs a command on the phone: (stdout, stderr, exit code).
      image: The screen now, [H, W, 3] uint8.
      decisions: The decisions of the policy so far, oldest first.
      earlier: The screens before, oldest first.
    """

    task: Task
    shell: Callable[[str], tuple[str, str, int]]
    image: np.ndarray
    decisions: tuple[str, ...] = ()
    earlier: tuple[np.ndarray, ...] = ()

    def key(self) -> str:
        """Names the question, whoever is asked: goal, screen and the last two decisions."""
        text = "\n".join((self.task.goal, *self.decisions[-2:], image_hash(self.image)))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


class Judge(Protocol):
    """Says whether a task is done; its own trouble is UNKNOWN, the phone's a DeviceError."""

    def judge(self, request: Request) -> Verdict: ...


def image_hash(image: np.ndarray) -> str:
    """Names a picture by its pixels."""
    head = f"{image.shape} {image.dtype} ".encode()
    return hashlib.sha256(head + np.ascontiguousarray(image).tobytes()).hexdigest()[:32]

"""What every judge is asked and what it answers."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from common.tasks import Task


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
      model: The model that answered, for a model.
      latency_s: How long it took.
      error: For UNKNOWN, a short name of what failed.
    """

    status: Status
    reason: str
    source: str
    model: str = ""
    latency_s: float = 0.0
    error: str = ""

    def record(self) -> dict[str, Any]:
        """Returns it as plain data."""
        return {**dataclasses.asdict(self), "status": str(self.status)}


@dataclasses.dataclass(frozen=True)
class Request:
    """What a judge may look at.

    Attributes:
      task: Goal and checks.
      shell: Runs a command on the phone: (stdout, stderr, exit code).
      image: The screen now, [H, W, 3] uint8.
      decisions: The decisions of the policy so far, oldest first.
    """

    task: Task
    shell: Callable[[str], tuple[str, str, int]]
    image: np.ndarray
    decisions: tuple[str, ...] = ()


class Judge(Protocol):
    """Says whether a task is done; its own trouble is UNKNOWN, the phone's a DeviceError."""

    def judge(self, request: Request) -> Verdict: ...

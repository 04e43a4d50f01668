"""What the learner knows of an actor."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass
class ActorStatus:
    """What is known of an actor; of several starts under one name, the one heard last."""

    actor: str
    boot: str
    device: str
    can_demonstrate: bool
    last_seen: float  # monotonic clock
    state: str = "new"
    detail: str = ""
    version: tuple[int, int] | None = None  # lineage and step of its parameters
    episodes: int = 0  # delivered, as the actor counts them
    spooled: int = 0  # in its spool
    dead: int = 0  # refused for good, as the actor counts them
    refused: dict[str, int] = dataclasses.field(default_factory=dict)  # by code, of this connection

    def to_dict(self, now: float) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        fields["last_seen_s"] = round(now - fields.pop("last_seen"), 3)
        return fields

"""The learner's answer to HELLO."""

from __future__ import annotations

import dataclasses
from typing import Any

from common import messages
from common.channel import Pulse


@dataclasses.dataclass(frozen=True)
class Welcome:
    """Everything that an actor needs to know of the run."""

    run: str
    life: str  # one start of the learner
    config_id: str  # changes with settings or body
    params_address: str
    heartbeat_s: float
    settings: dict[str, Any]
    body: bytes
    generation: int  # how many lives of the learner this client has seen before

    @classmethod
    def from_message(
        cls, header: messages.Header, body: bytes, host: str, before: Welcome | None
    ) -> Welcome:
        """Reads a WELCOME of the learner on `host`; `before` is the one that came before it."""
        pulse = Pulse.from_header(header)
        generation = 0
        if before is not None:
            generation = before.generation + (pulse.life != before.life)
        return cls(
            run=pulse.run,
            life=pulse.life,
            config_id=pulse.config_id,
            params_address=f"tcp://{host}:{header.integer('params_port', 1, 65535)}",
            heartbeat_s=header.number("heartbeat_s", low=0.01, high=600.0),
            settings=header.get("settings", dict),
            body=body,
            generation=generation,
        )

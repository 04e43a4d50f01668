"""Which actors are alive: each word of an actor renews its lease, and its end is reported."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from common.channel import LEASE_S

logger = logging.getLogger(__name__)


class Leases:
    """Follows the actors by what the data socket knows of them."""

    def __init__(self) -> None:
        self._lost: set[str] = set()

    def update(self, actors: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Reports who was lost and who is back, once each.

        Args:
          actors: By name, with `last_seen_s`, as in `Ingest.actors`.

        Returns:
          How many there are of either, as metrics.
        """
        lost = {name for name, actor in actors.items() if actor["last_seen_s"] > LEASE_S}
        for name in sorted(lost - self._lost):
            actor = actors[name]
            logger.warning(
                "Actor %s on %s is lost: silent for over %.0f s. Its last words: %s. %s",
                name,
                actor["device"],
                LEASE_S,
                actor["state"],
                actor["detail"],
            )
        for name in sorted((self._lost - lost) & actors.keys()):
            logger.info("Actor %s is back.", name)
        self._lost = lost
        return {"actors/live": len(actors) - len(lost), "actors/lost": len(lost)}

"""How much may wait for the learner, and how much of that an actor may have under way."""

from __future__ import annotations

import collections

UNDER_WAY_BYTES = 128 * 1024**2  # of all actors together: it is in memory, not in the journal
MOST_CREDIT = 16  # episodes: enough to hide a commit's time, little enough to be resent


class Budget:
    """Bounds what is in the journal and was not read by the learner yet."""

    def __init__(self, episodes: int, size_bytes: int, waiting: int = 0):
        """Of the `waiting` episodes of an earlier life, sizes are not known and not counted."""
        self._episodes, self._bytes = episodes, size_bytes
        self._sizes = collections.deque([0] * waiting)
        self._used = 0

    def __len__(self) -> int:
        """How many episodes wait."""
        return len(self._sizes)

    def add(self, size: int) -> None:
        self._sizes.append(size)
        self._used += size

    def remove(self, count: int) -> None:
        """The learner has read the oldest `count`."""
        for _ in range(count):
            self._used -= self._sizes.popleft()

    def has_room(self, count: int, size: int) -> bool:
        """Whether one more fits, with `count` that are on their way; `size` is of all of these.

        A lone one always does.
        """
        waiting = len(self._sizes) + count
        return waiting == 0 or (waiting < self._episodes and self._used + size <= self._bytes)

    def credit(self, actors: int) -> dict[str, int]:
        """Returns the share of one of so many actors, as fields of a message; never nothing.

        What is granted to all may be passed together, as it is not taken back: what comes beyond
        the budget is answered by RETRY_AFTER.
        """
        episodes = (self._episodes - len(self._sizes)) // max(actors, 1)
        size = min(self._bytes - self._used, UNDER_WAY_BYTES) // max(actors, 1)
        return {
            "credit_episodes": min(max(episodes, 1), MOST_CREDIT),
            "credit_bytes": max(size, 1),
        }

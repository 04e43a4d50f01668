"""Offline evaluation: how often predicted actions match recorded ones by AitW's rule.

Rawles et al., "Android in the Wild" (2023), section 4.3: an episode's partial score is the share of
its steps that match, its complete score whether all do.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from common import actions
from common.actions import Action


class Step(NamedTuple):
    """A recorded step.

    Attributes:
      action: Text of what was done.
      prediction: Text of what an agent would do.
      boxes: Elements of the screen, (y, x, height, width) fractions each.
    """

    action: str
    prediction: str
    boxes: Sequence[Sequence[float]] = ()


@dataclasses.dataclass(frozen=True)
class Score:
    """How predictions match.

    Attributes:
      steps: That have a reference.
      matched: Steps whose prediction is the same action.
      unparsable: Steps whose prediction has no meaning; they don't match.
      no_reference: Steps whose recorded action has none; they are left out.
      episodes: With at least one step.
      complete: Episodes of which all steps match.
      partial: Mean over episodes of the share that matches.
      types: (matched, steps) by the recorded action's type.
    """

    steps: int
    matched: int
    unparsable: int
    no_reference: int
    episodes: int
    complete: int
    partial: float
    types: dict[str, tuple[int, int]]

    def record(self) -> dict[str, Any]:
        shares = {"step_share": self.matched / max(self.steps, 1)}
        return dataclasses.asdict(self) | shares


def score(episodes: Iterable[Sequence[Step]]) -> Score:
    """Scores the predictions of whole episodes."""
    types: dict[str, list[bool]] = collections.defaultdict(list)
    shares: list[float] = []
    unparsable = no_reference = 0
    for episode in episodes:
        matches = []
        for step in episode:
            recorded, predicted = actions.parse(step.action), actions.parse(step.prediction)
            if not isinstance(recorded, Action):
                no_reference += 1
                continue
            same = isinstance(predicted, Action) and actions.matches(
                recorded, predicted, step.boxes
            )
            unparsable += not isinstance(predicted, Action)
            matches.append(same)
            types[recorded.type].append(same)
        if matches:
            shares.append(sum(matches) / len(matches))
    done = [same for matches in types.values() for same in matches]
    return Score(
        steps=len(done),
        matched=sum(done),
        unparsable=unparsable,
        no_reference=no_reference,
        episodes=len(shares),
        complete=sum(share == 1 for share in shares),
        partial=sum(shares) / len(shares) if shares else 0.0,
        types={name: (sum(same), len(same)) for name, same in sorted(types.items())},
    )

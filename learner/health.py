"""Signs that a run is going wrong, each with what to try."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from common.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class HealthConfig:
    """When to speak, and whether to stop."""

    then: str = "warn"  # or "stop"
    invalid_share: float = 0.9  # of the newest actions
    episodes_without_success: int = 500  # of the policy, online
    entropy: float = 1e-4  # nats a token: below it nothing new is tried
    lost_success: float = 0.5  # share of the best success so far that is left

    def __post_init__(self) -> None:
        if self.then not in ("warn", "stop"):
            raise ConfigError(f"health.then must be warn or stop, not {self.then!r}.")


class Health:
    """Watches a run's metrics; a sign is told once, and again only after it had gone."""

    def __init__(self, config: HealthConfig):
        self._config = config
        self._told: set[str] = set()
        self._best = 0.0
        self._success_at = 0  # the episode count when an episode last succeeded

    def check(self, episodes: int, metrics: Mapping[str, float]) -> list[str]:
        """Returns new signs, a sentence each.

        Args:
          episodes: Of the policy in the online phase, so far.
          metrics: By the names of docs/metrics.md.
        """
        signs = dict(self._signs(episodes, metrics))
        fresh = [sentence for name, sentence in signs.items() if name not in self._told]
        self._told = set(signs)
        return fresh

    def _signs(self, episodes: int, metrics: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        config, success = self._config, metrics["actors/success"]
        if not episodes:
            return
        if success > 0 or self._success_at == 0:
            self._success_at = episodes
        if metrics["actors/invalid_share"] > config.invalid_share:
            yield (
                "invalid",
                f"{metrics['actors/invalid_share']:.0%} of the newest actions are invalid: the "
                "policy writes no actions any more, or the phone takes none. Look at an episode's "
                "screens; try --set sampling.grammar true, or a lower update.policy_lr.",
            )
        without = episodes - self._success_at
        if without >= config.episodes_without_success:
            yield (
                "success",
                f"No success in the last {without} episodes: there is nothing to learn from. Try "
                "more --demonstrations, a higher warm_start.success, or easier --tasks.",
            )
        if metrics.get("policy/entropy_nats", 1.0) < config.entropy:
            yield (
                "entropy",
                f"The entropy is {metrics['policy/entropy_nats']:.1e} nats a token: nothing new is "
                "tried any more. Try --set update.loss.entropy 0.01, or a higher temperature.",
            )
        if success < config.lost_success * self._best:
            yield (
                "collapse",
                f"Success fell to {success:.2f} from {self._best:.2f}: the policy has collapsed. "
                "Go on from an earlier checkpoint with --init and a lower update.policy_lr, or a "
                "lower update.loss.negative_clip.",
            )
        self._best = max(self._best, success)

"""What a run that goes wrong is told, and when."""

import pytest

from common.errors import ConfigError
from learner.health import Health, HealthConfig

WELL = {"actors/success": 0.6, "actors/invalid_share": 0.1, "policy/entropy_nats": 0.05}


def test_a_healthy_run_hears_nothing():
    health = Health(HealthConfig())
    assert not any(health.check(episodes, WELL) for episodes in range(0, 5000, 100))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"actors/invalid_share": 0.95}, "95% of the newest actions are invalid"),
        ({"policy/entropy_nats": 1e-6}, "nothing new is tried"),
        ({"actors/success": 0.2}, "fell to 0.20 from 0.60"),
    ],
)
def test_a_sign_is_told_once_and_again_after_it_had_gone(change, sentence):
    health = Health(HealthConfig())
    assert health.check(100, WELL) == []
    (told,) = health.check(200, WELL | change)
    assert sentence in told
    assert health.check(300, WELL | change) == []
    assert health.check(400, WELL) == []
    assert len(health.check(500, WELL | change)) == 1


def test_no_success_for_many_episodes():
    health = Health(HealthConfig(episodes_without_success=50))
    never = WELL | {"actors/success": 0.0}
    assert health.check(10, never) == []
    assert health.check(59, never) == []
    (told,) = health.check(60, never)
    assert "No success in the last 50 episodes" in told


def test_nothing_is_said_before_the_online_phase():
    assert (
        Health(HealthConfig()).check(0, {"actors/success": 0.0, "actors/invalid_share": 1.0}) == []
    )


def test_an_unknown_reaction_is_refused():
    with pytest.raises(ConfigError, match=r"health\.then"):
        HealthConfig(then="shout")

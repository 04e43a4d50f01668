"""Actors on phones that fail now and then: the account adds up, and nothing hangs."""

import pytest

from benchmarks.soak import soak


@pytest.mark.slow
def test_every_episode_of_a_soak_is_accounted_for():
    account = soak(episodes=80, count=4, rate=0.04)
    assert account["accounted"] and account["retries_accounted"]
    assert account["delivered"] >= 80
    assert account["hung_threads"] == 0 and not account["ended_actors"]
    assert account["failures"] and account["retried"]

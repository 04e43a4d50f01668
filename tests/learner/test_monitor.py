"""What is told of the newest episodes."""

import dataclasses

import pytest

from common.types import Ending
from learner.monitor import Monitor
from tests.episodes import episode


def monitor(*outcomes, **changes):
    """Returns a monitor that has seen these (family, success)."""
    watched = Monitor()
    for seq, (family, success) in enumerate(outcomes):
        one = episode(2, seq=seq, success=success)
        watched.add(dataclasses.replace(one, family=family, **changes))
    return watched


def test_success_is_the_mean_of_the_families_however_often_each_is_played():
    status = monitor(("site", True), *[("open", False)] * 9).status(version=1)
    assert (status["success"], status["measured"]) == (0.5, 10)


def test_the_weaker_half_of_the_families_is_measured():
    easy = [("site", True)] * 6 + [("tab", True)] * 3
    hard = [("alarm", True), ("alarm", False), ("open", False)]
    assert monitor(*easy, *hard).weaker_success(12) == pytest.approx((0 + 0.5) / 2)
    assert monitor(*easy, *hard, ("odd", False)).weaker_success(13) == pytest.approx(0.5 / 3)


def test_one_family_is_its_own_weaker_half():
    assert monitor(("a", True), ("a", False)).weaker_success(2) == 0.5


def test_only_the_newest_count_and_too_few_are_no_measurement():
    watched = monitor(("a", False), ("a", True), ("a", True))
    assert watched.weaker_success(2) == 1.0
    assert watched.weaker_success(4) is None


def test_demonstrations_and_failing_phones_are_not_the_policys():
    assert monitor(("a", True), source="expert").weaker_success(1) is None
    watched = Monitor()
    watched.add(episode(2, ending=Ending.TRUNCATED))
    assert watched.weaker_success(1) is None
    assert watched.metrics(1)["actors/success"] == 0.0

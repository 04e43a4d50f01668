"""What a phone's failures are answered with, on a clock of the test's."""

import pytest

from actors.supervise import Budget, Supervisor
from common.errors import DeviceError
from tests.actors.fakes import FakePhone


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def supervised(budget: Budget | None = None) -> tuple[Supervisor, FakePhone, Clock]:
    phone, clock = FakePhone(), Clock()
    return Supervisor(phone, budget or Budget(), clock, clock.sleep), phone, clock


def error(cause: str = "hung") -> DeviceError:
    return DeviceError("no", cause)


def test_a_failure_is_answered_with_a_recovery_and_counted():
    supervisor, phone, _ = supervised()
    supervisor.failed(error("hung"))
    supervisor.worked()
    supervisor.failed(error("cut"))
    assert phone.recoveries == [False, False]
    assert supervisor.failures == {"hung": 1, "cut": 1}
    assert supervisor.metrics()["device/failures_hung"] == 1


@pytest.mark.parametrize("cause", ["emulator", "snapshot", "dialog", "offline", "not_ready"])
def test_what_a_phone_does_not_get_over_is_answered_with_a_start(cause):
    supervisor, phone, _ = supervised()
    supervisor.failed(error(cause))
    assert phone.recoveries == [True]


def test_recoveries_that_fail_back_off_twice_as_long_each():
    supervisor, phone, clock = supervised(Budget(in_a_row=5, backoff_s=1.0))
    phone.fails = [error("gone")] * 4
    supervisor.failed(error())
    assert phone.recoveries == [False, False, True, True, True]
    assert clock.now == pytest.approx(1 + 2 + 4 + 8, abs=0.5)
    assert supervisor.down_s == clock.now


def test_the_budget_in_a_row_is_kept():
    supervisor, phone, _ = supervised(Budget(in_a_row=3, backoff_s=0.0))
    phone.fails = [error("gone")] * 9
    with pytest.raises(DeviceError, match="4 times in a row, last with: no") as caught:
        supervisor.failed(error())
    assert caught.value.cause == "gone"
    assert len(phone.recoveries) == 3


def test_the_budget_of_an_hour_slides():
    supervisor, _, clock = supervised(Budget(an_hour=3))
    for _ in range(3):
        supervisor.failed(error())
        supervisor.worked()
        clock.now += 1500
    supervisor.failed(error())  # the first is over an hour ago
    supervisor.worked()
    with pytest.raises(DeviceError, match="4 times in an hour"):
        supervisor.failed(error())


def test_a_wait_can_be_ended():
    supervisor, phone, _ = supervised()
    phone.fails = [error()] * 9

    def stop() -> None:
        if len(phone.recoveries) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        supervisor.failed(error(), stop)


def test_the_first_start_has_the_same_budget():
    supervisor, phone, _ = supervised(Budget(in_a_row=2, backoff_s=0.0))
    phone.fails = [error("emulator")]
    supervisor.bring_up()
    assert phone.recoveries == [False, True]

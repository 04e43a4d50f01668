"""Episodes on a phone that counts taps."""

import re

import pytest

from actors.environment import PhoneEnvironment, screen_changed
from actors.evaluators.state import StateJudge
from actors.evaluators.verdict import Status, Verdict
from common import actions
from common.actions import Action, ActionType
from common.tasks import Check, Task
from common.types import Ending
from tests.actors.fakes import COMPLETE, NOTHING, TAP, FakeDevice, task


def environment(device: FakeDevice, horizon: int = 5, judge=None) -> PhoneEnvironment:
    return PhoneEnvironment(device, judge or StateJudge(), {"general": horizon})


def play(count: int, texts: list[str], device: FakeDevice | None = None, **options) -> list:
    env = environment(device or FakeDevice(), **options)
    env.reset(task(count), seed=7)
    return [env.step(text) for text in texts]


def test_success_ends_the_episode_at_once_with_reward_1():
    steps = play(2, [TAP, TAP])
    assert [step.reward for step in steps] == [0, 1]
    assert [step.ending for step in steps] == [None, Ending.SUCCESS]
    assert steps[-1].verdict.status is Status.SUCCESS


def test_a_claim_of_success_is_no_success():
    (step,) = play(2, [COMPLETE])
    assert (step.reward, step.ending, step.invalid) == (0, Ending.GAVE_UP, "")


def test_the_horizon_ends_an_episode():
    steps = play(9, [TAP] * 3, horizon=3)
    assert [step.ending for step in steps] == [None, None, Ending.HORIZON]


def test_reset_prepares_the_task_and_the_layout():
    device = FakeDevice()
    env = environment(device)
    prepared = Task("t", "g", (Check("count", "^9$"),), setup=("settings put x", "y"))
    observation = env.reset(prepared, seed=7)
    assert device.calls[0] == (
        "shell",
        "am broadcast -a org.simphone.RESET --ei seed 7 && settings put x && y",
    )
    assert observation.prompt == actions.prompt("g", "")
    assert not env.already_done


def test_a_task_that_is_done_at_the_start_gives_no_reward():
    env = environment(FakeDevice())
    env.reset(task(0), seed=0)
    assert env.already_done
    assert env.step(NOTHING).reward == 0


def type_(text: str) -> str:
    return actions.render(Action(ActionType.TYPE, text=text))


@pytest.mark.parametrize(
    ("text", "invalid"),
    [
        (TAP, ""),
        (NOTHING, "no_change"),
        (type_("hi"), ""),
        (type_(""), "empty_text"),
        (type_("é"), "untypable_text"),
        ("nonsense", "no_decision"),
        ('Action Decision: "action_type": "JUMP"', "bad_type"),
        (COMPLETE, ""),
    ],
)
def test_invalid_actions_are_named(text, invalid):
    device = FakeDevice()
    (step,) = play(9, [text], device)
    assert step.invalid == invalid
    executed = [call for call in device.calls if call[0] not in ("shell",)]
    assert bool(executed) == (invalid in ("", "no_change") and text != COMPLETE)


def test_what_completes_the_task_is_valid_even_if_nothing_is_seen():
    class Lamp(FakeDevice):
        def shell(self, command: str) -> tuple[str, str, int]:
            on = ("tap", (0.8, 0.5)) in self.calls
            return super().shell(command)[0].replace("0", "1" if on else "0"), "", 0

    (step,) = play(1, [NOTHING], Lamp())
    assert (step.ending, step.invalid) == (Ending.SUCCESS, "")


def test_the_status_bar_is_not_the_screen():
    device = FakeDevice()
    before, after = device.screenshot().image, device.screenshot().image
    assert (before != after).any()
    assert not screen_changed(before, after)


def test_repeats_count_the_same_decision_in_a_row():
    garbage = "Action Decision: ?"
    texts = [TAP, TAP, TAP, NOTHING, TAP, garbage, garbage]
    assert [s.repeats for s in play(99, texts, horizon=9)] == [0, 1, 2, 0, 0, 0, 0]


def test_the_prompt_holds_the_last_decision_that_meant_something():
    steps = play(9, [TAP, "garbage"])
    assert steps[0].observation.prompt == actions.prompt("Count to 9", actions.decision(TAP))
    assert steps[1].observation.prompt == actions.prompt("Count to 9", "")


def test_a_swipe_is_a_swipe():
    device = FakeDevice()
    text = actions.render(Action(ActionType.DUAL_POINT, (0.8, 0.5), (0.2, 0.5)))
    play(9, [text], device)
    assert ("swipe", (0.8, 0.5), (0.2, 0.5)) in device.calls


def test_a_device_that_fails_truncates_the_episode():
    device = FakeDevice()
    env = environment(device)
    env.reset(task(9), seed=0)
    device.fail_at = 0
    step = env.step(TAP)
    assert step.ending is Ending.TRUNCATED
    assert re.search("device.*gone", step.cause)


class BrokenJudge:
    def judge(self, request):
        return Verdict(Status.UNKNOWN, "no answer", "model", error="timeout")


def test_an_unknown_verdict_is_never_a_failure():
    steps = play(9, [TAP, COMPLETE], judge=BrokenJudge())
    assert [step.ending for step in steps] == [None, Ending.TRUNCATED]
    assert steps[-1].cause == "judge: timeout"


def test_another_phone_is_sent_home_and_its_app_ended():
    device = FakeDevice()
    device.simulated = False
    apps = iter(["com.app", "com.launcher"])
    device.foreground = lambda: next(apps)
    PhoneEnvironment(device, StateJudge(), {"general": 5}, settle_s=0).reset(task(9), seed=0)
    assert device.calls[:2] == [("key", "HOME"), ("shell", "am force-stop com.app")]

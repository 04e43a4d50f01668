"""Phones of people are asked for once, and keep what they have."""

import pytest

from actors.device.safety import Rules, confirm, is_emulated
from actors.environment import PhoneEnvironment
from actors.evaluators.state import StateJudge
from common import actions
from common.actions import Action, ActionType
from common.errors import ConfigError
from common.tasks import Check, Task
from tests.actors.fakes import TAP, FakeDevice, task


class Owned:
    """A phone that says what it is."""

    def __init__(self, serial: str = "R58M12", **properties: str):
        self.serial = serial
        self._properties = {"ro.hardware": "qcom", "ro.serialno": "R58M12", **properties}

    def getprop(self, name: str) -> str:
        return self._properties.get(name, "")


def test_a_phone_of_a_person_is_confirmed_once(tmp_path):
    record = tmp_path / "distrl" / "confirmed"
    with pytest.raises(ConfigError, match=r"is no emulator.*--confirm-phone=R58M12"):
        confirm(Owned(), record)
    with pytest.raises(ConfigError, match="is no emulator"):
        confirm(Owned(), record, confirmed="other")
    confirm(Owned(), record, confirmed="R58M12")
    confirm(Owned(), record)
    confirm(Owned("192.168.1.20:5555"), record)  # the same phone by another way
    with pytest.raises(ConfigError, match="is no emulator"):
        confirm(Owned("R58M12", **{"ro.serialno": "OTHER"}), record)  # another one at its address
    assert record.read_text() == "R58M12\n"


@pytest.mark.parametrize(
    "properties",
    [{"ro.hardware": "ranchu"}, {"ro.hardware": "simphone"}, {"ro.boot.qemu": "1"}],
)
def test_an_emulator_needs_no_word(tmp_path, properties):
    device = Owned("emulator-5554", **properties)
    assert is_emulated(device)
    confirm(device, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_serial_like_an_emulator_s_is_no_proof():
    assert not is_emulated(Owned("emulator-5554"))


@pytest.mark.parametrize(
    "command",
    [
        "pm clear com.android.chrome",
        "am force-stop x && pm uninstall x",
        "rm -rf /sdcard/DCIM",
        "content delete --uri content://com.android.contacts",
        "am broadcast -a android.intent.action.MASTER_CLEAR",
        "settings reset global",
    ],
)
def test_a_task_that_wipes_is_refused_where_data_is_kept(command):
    wiping = Task("t", "g", (Check("a", "b"),), setup=("true", command))
    Rules().check(wiping)
    with pytest.raises(ConfigError, match=r"'t' runs .* which can wipe data"):
        Rules(keeps_data=True).check(wiping)


@pytest.mark.parametrize("command", ["am force-stop x", "settings put system a 1", "pm path x"])
def test_other_preparations_are_fine(command):
    Rules(keeps_data=True).check(Task("t", "g", (Check("a", "b"),), setup=(command,)))


def test_denied_actions_are_not_carried_out():
    device = FakeDevice()
    rules = Rules(actions=frozenset({ActionType.TYPE}))
    env = PhoneEnvironment(device, StateJudge(), {"general": 5}, rules=rules)
    env.reset(task(9), seed=0)
    step = env.step(actions.render(Action(ActionType.TYPE, text="hello")))
    assert step.invalid == "denied_action"
    assert not any(call[0] == "type" for call in device.calls)


def test_a_denied_app_is_left_at_once():
    device = FakeDevice()
    device.foreground = lambda: "com.android.dialer"
    rules = Rules(packages=frozenset({"com.android.dialer"}))
    env = PhoneEnvironment(device, StateJudge(), {"general": 5}, rules=rules)
    env.reset(task(9), seed=0)
    step = env.step(TAP)
    assert step.invalid == "denied_app"
    assert device.calls[-2:] == [("key", "HOME"), ("shell", "count; echo; echo __end_of_check__")]

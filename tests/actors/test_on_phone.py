"""The actor's parts on a simulated phone behind a real adb server."""

import socket

import numpy as np
import pytest

from actors.demonstrator import Demonstrator
from actors.device import emulator, health, program
from actors.device.adb import AdbDevice, connect
from actors.device.emulator import SimulatedPhone, opened
from actors.environment import PhoneEnvironment
from actors.evaluators.state import StateJudge
from actors.evaluators.verdict import Request, Status
from actors.policy import EXPERT_VERSION, Decision
from actors.rollout import Signature, run_episode
from common import actions, ports
from common.actions import Action, ActionType
from common.errors import ConfigError, DeviceError
from common.tasks import Check, Task, load_tasks
from tests.conftest import wait_for

HORIZON = {"general": 15, "webshop": 20}
FAMILIES = {task.family: task for task in load_tasks("all-test")}


@pytest.fixture
def device(adb_server, phone_server) -> AdbDevice:
    device = connect(phone_server.serial, adb_server.port)
    health.wait_ready(device, 10)
    return device


class Labels:
    """Labels without a model."""

    def label(self, prompt, image, text) -> Decision:
        ids, pixels, numbers = np.zeros(1, np.int32), np.zeros(1, np.uint8), np.zeros(1, np.float32)
        return Decision(text, ids, pixels, ids, numbers, EXPERT_VERSION)


def test_the_expert_solves_a_task_of_each_family(device):
    environment = PhoneEnvironment(device, StateJudge(), HORIZON)
    agent = Demonstrator(device, Labels(), epsilon=0.0)
    for seed, task in enumerate(FAMILIES.values()):
        episode = run_episode(environment, agent, task, seed, Signature("a", "b", 0))
        assert episode is not None and episode.success, task.goal
        assert not episode.trajectory.invalid.any(), task.goal


def test_a_screenshot_is_what_the_phone_shows(device, phone_server):
    image = np.asarray(phone_server.android.phone.render())
    np.testing.assert_array_equal(device.screenshot().image, image)


def test_typing_without_a_field_changes_nothing(device):
    environment = PhoneEnvironment(device, StateJudge(), HORIZON)
    environment.reset(FAMILIES["open"], 3)
    step = environment.step(actions.render(Action(ActionType.TYPE, text="hello")))
    assert step.invalid == "no_field"


def test_a_reset_brings_the_seed_s_layout(device):
    environment = PhoneEnvironment(device, StateJudge(), HORIZON)
    frames = [environment.reset(FAMILIES["open"], seed).frame.png for seed in (1, 2, 1)]
    assert frames[0] == frames[2] != frames[1]


def test_all_checks_are_read_at_once_and_all_must_hold(device):
    def judge(*checks: Check) -> Status:
        calls = []

        def shell(command):
            calls.append(command)
            return device.shell(command)

        image = device.screenshot().image
        verdict = StateJudge().judge(Request(Task("t", "g", checks), shell, image))
        assert len(calls) == 1
        return verdict.status

    brand = Check("getprop ro.product.model", "^SimPhone$")
    silent = Check("true", "^$")
    failing = Check("false", "x")
    assert judge(brand, silent, brand) is Status.SUCCESS
    assert judge(brand, failing) is Status.FAILURE
    assert judge(failing, brand) is Status.FAILURE


def test_a_phone_that_hangs_up_is_a_device_error(device, phone_server):
    phone_server.call(phone_server.servers[0].close())
    with pytest.raises(DeviceError, match=device.serial):
        device.screenshot(timeout_s=2)


def test_an_unknown_serial_lists_this_phone(adb_server, phone_server):
    with pytest.raises(ConfigError, match=rf"'emulator-1' is not attached.*{phone_server.serial}"):
        connect("emulator-1", adb_server.port)


def test_a_phone_of_one_s_own_ends_with_its_owner(adb_server):
    with opened("phone", adb_server.port) as device:
        assert device.simulated
        assert device.screenshot().image.ndim == 3
        serial = device.serial
    wait_for(lambda: serial not in adb_server.serials(), f"{serial} to go")


def test_a_port_that_is_taken_costs_another_try(adb_server, monkeypatch):
    free = ports.phone_port(2)
    taken = free + 2
    offered = iter([taken, free])
    monkeypatch.setattr(program.ports, "emulator_port", lambda: next(offered))
    with (
        socket.create_server(("127.0.0.1", taken)),
        SimulatedPhone(adb_server.port) as phone,
    ):
        phone.recover()
        assert phone.device.serial == f"emulator-{free - 1}"
        assert phone.starts == 2


def test_a_phone_whose_start_fails_says_so(adb_server, monkeypatch, tmp_path):
    launcher = tmp_path / "phone.py"
    launcher.write_text("raise SystemExit('no luck')")
    monkeypatch.setattr(emulator, "_LAUNCHER", launcher)
    with (
        SimulatedPhone(adb_server.port) as phone,
        pytest.raises(DeviceError, match="exit code 1: no luck"),
    ):
        phone.recover()

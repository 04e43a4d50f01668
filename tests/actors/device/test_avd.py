"""Emulators of ours: real processes of a stand-in program, behind a real adb server."""

import os
import pathlib
import signal
import time

import pytest

from actors.device import console
from actors.device.avd import Avd, AvdOptions
from actors.supervise import Supervisor
from common.errors import ConfigError, DeviceError
from tests.actors.stand_in import StandIn
from tests.conftest import wait_for


@pytest.fixture
def stand_in(adb_server, tmp_path, monkeypatch):
    return StandIn(tmp_path, adb_server.port, monkeypatch)


def gone(pid: int) -> bool:
    return not pathlib.Path(f"/proc/{pid}").exists()


def test_an_emulator_is_launched_headless_from_its_snapshot_and_ended(stand_in):
    with stand_in.avd(flags=("-gpu", "swiftshader_indirect")) as phone:
        phone.recover()
        (start,) = stand_in.starts()
        pid, options = start["pid"], start["options"]
        assert phone.pid == pid
        assert {"-read-only", "-no-window", "-no-snapshot-save"} < options.keys()
        assert (options["-avd"], options["-snapshot"]) == ("test", "ready")
        console_port, adb_port = map(int, options["-ports"].split(","))
        assert phone.device.serial == f"emulator-{console_port}"
        assert adb_port == console_port + 1
        assert phone.device.screenshot().image.shape == (320, 180, 3)
    assert gone(pid)


def test_the_snapshot_comes_back_between_episodes_and_the_program_after_some(stand_in):
    with stand_in.avd(relaunch_every=2) as phone:
        phone.recover()
        first = phone.pid
        phone.restore()
        phone.device.must("settings put system dirt 1")
        phone.restore()
        assert phone.device.must("settings get system dirt").strip() == "null"
        assert phone.pid == first
        phone.restore()
        assert phone.pid != first
        assert gone(first)
        assert phone.starts == 2


def test_a_snapshot_that_does_not_load_costs_a_start(stand_in):
    with stand_in.avd() as phone:
        phone.recover()
        phone.restore()
        stand_in.goes_wrong("snapshot")
        with pytest.raises(DeviceError, match="KO: 'avd snapshot load ready' failed") as caught:
            phone.restore()
        assert caught.value.cause == "snapshot"
        phone.recover(hard=True)
        assert phone.starts == 2


def test_a_snapshot_that_is_not_there_is_an_error_of_the_user(stand_in):
    with (
        stand_in.avd(snapshot="nope") as phone,
        pytest.raises(ConfigError, match=r"'test' has no snapshot 'nope'.*avd snapshot save nope"),
    ):
        phone.recover()


def test_an_emulator_that_crashes_at_boot_names_the_signal(stand_in):
    stand_in.goes_wrong("segfault")
    with (
        stand_in.avd() as phone,
        pytest.raises(DeviceError, match=r"signal 11 .Segmentation fault") as caught,
    ):
        phone.recover()
    assert caught.value.cause == "emulator"


@pytest.mark.parametrize(("mode", "cause"), [("hang", "emulator"), ("boot", "not_ready")])
def test_an_emulator_that_never_gets_ready_is_given_up_in_time(stand_in, mode, cause):
    stand_in.goes_wrong(mode)
    with stand_in.avd(ready_timeout_s=2.5) as phone:
        start = time.monotonic()
        with pytest.raises(DeviceError) as caught:
            phone.recover()
        assert time.monotonic() - start < 8
        assert caught.value.cause == cause


def test_a_flag_that_the_program_does_not_know_is_quoted(stand_in):
    with (
        stand_in.avd(flags=("-grcp",)) as phone,
        pytest.raises(DeviceError, match="exit code 1: unknown option: -grcp"),
    ):
        phone.recover()


def test_39_a_killed_emulator_is_started_anew_and_another_on_its_avd_notices_nothing(stand_in):
    with stand_in.avd() as phone, stand_in.avd() as other:
        for each in (phone, other):
            each.recover()
        assert phone.device.serial != other.device.serial
        killed, kept = phone.pid, other.pid
        os.kill(killed, signal.SIGKILL)
        with pytest.raises(DeviceError, match=phone.device.serial) as caught:
            wait_for(lambda: not phone.device.screenshot(), "the loss to be noticed")
        Supervisor(phone).failed(caught.value)
        assert phone.device.screenshot().png
        assert phone.pid != killed
        assert (other.pid, other.starts) == (kept, 1)
        assert other.device.screenshot().png


def test_what_is_missing_is_said(stand_in, monkeypatch):
    monkeypatch.delenv("ANDROID_HOME", raising=False)
    monkeypatch.delenv("ANDROID_SDK_ROOT", raising=False)
    with pytest.raises(ConfigError, match=r"no AVD 'nope'.*It knows: test, other"):
        stand_in.avd("nope")
    with pytest.raises(ConfigError, match=r"no emulator program 'nowhere'.*sdkmanager emulator"):
        Avd("test", AvdOptions("nowhere"))


def test_nobody_at_the_console_is_an_error():
    with pytest.raises(DeviceError, match="console at port 1"):
        console.command(1, "kill")

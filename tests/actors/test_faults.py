"""Each known fault of real phones, switched on, ends as is right."""

import concurrent.futures
import signal
import socket
import threading
import time

import numpy as np
import pytest

from actors.device import health
from actors.device.adb import AdbDevice, connect
from actors.device.emulator import Attached
from actors.device.server import AdbServer, Channel
from actors.environment import PhoneEnvironment
from actors.evaluators.state import StateJudge
from actors.phone import ui
from common import actions, ports
from common.actions import Action, ActionType
from common.errors import ConfigError, DeviceError
from common.tasks import Check, Task, load_tasks
from common.types import Ending
from tests.conftest import wait_for

TASK = next(task for task in load_tasks("all-test") if task.family == "open")
NEVER = Task("never", "Do what can't be done", (Check("getprop x", "^y$"),), suite="general")
HORIZON = {"general": 15, "webshop": 20}
HOME = actions.render(Action(ActionType.PRESS_HOME))


@pytest.fixture
def phone(adb_server, phone_server):
    """A phone's device and its simulation."""
    device = connect(phone_server.serial, adb_server.port)
    health.wait_ready(device, 10)
    device.android = phone_server.android
    return device


def environment(device: AdbDevice) -> PhoneEnvironment:
    return PhoneEnvironment(device, StateJudge(), HORIZON)


def fails(cause: str, call, *arguments, within_s: float = 5.0) -> str:
    """Makes sure that a call fails with a cause, in time; returns what it says."""
    start = time.monotonic()
    with pytest.raises(DeviceError) as caught:
        call(*arguments)
    assert caught.value.cause == cause
    assert time.monotonic() - start < within_s
    return str(caught.value)


def open_browser(device: AdbDevice) -> None:
    device.must("am start -n com.android.chrome/com.google.android.apps.chrome.Main")
    bar = next(n for n in device.android.phone.nodes() if n.resource_id.endswith("url_bar"))
    (x0, y0, x1, y1), (width, height) = bar.bounds, device.android.phone.size
    device.tap(((y0 + y1) / 2 / height, (x0 + x1) / 2 / width))


def test_01_text_beyond_ascii_fails_by_name_or_goes_through_adb_keyboard(phone):
    open_browser(phone)
    assert phone.type_text("é") == "untypable_text"
    assert phone.android.phone.typed == ""
    phone.android.phone.install("com.android.adbkeyboard")
    assert phone.type_text("é") == ""
    assert phone.android.phone.typed == "é"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("100%sure %%s%s", id="02-percent-s"),
        pytest.param("1.2.3 a-b_c", id="03-no-escapes"),
        pytest.param('it\'s "q" $x `y` & | ; < > ( ) # * ~ \\', id="04-shell"),
        pytest.param("hello  world ", id="05-spaces"),
    ],
)
def test_02_03_04_05_typed_text_is_what_the_field_holds(phone, text):
    open_browser(phone)
    assert phone.type_text(text) == ""
    assert phone.android.phone.typed == text


def test_07_typing_appends_and_is_still_found(phone):
    open_browser(phone)
    assert phone.type_text("one") == phone.type_text(" two") == ""
    assert phone.android.phone.typed == "one two"


def test_01_to_05_lost_text_is_never_claimed(phone):
    env = environment(phone)
    env.reset(NEVER, 0)
    open_browser(phone)
    phone.android.switch("lost_text")
    step = env.step(actions.render(Action(ActionType.TYPE, text="hello")))
    assert step.invalid == "lost_text"


@pytest.mark.parametrize("fault", ["png_warning", "png_crlf"])
def test_08_09_a_picture_between_other_bytes_is_found(phone, fault):
    phone.android.switch(fault)
    image = np.asarray(phone.android.phone.render())
    np.testing.assert_array_equal(phone.screenshot().image, image)


@pytest.mark.parametrize(
    ("fault", "said"),
    [("png_cut", "cut after"), ("png_empty", "no PNG"), ("png_failed", "Capturing failed")],
)
def test_10_11_half_a_picture_is_tried_again_and_is_never_a_frame(phone, fault, said):
    phone.android.switch(f"{fault}=1")
    assert said in fails("screen", phone.screenshot)
    assert phone.android.faults.counts[fault] == 3
    phone.android.switch(f"{fault}=0.3")
    image = np.asarray(phone.android.phone.render())
    for _ in range(5):
        np.testing.assert_array_equal(phone.screenshot().image, image)


def test_15_16_with_an_override_taps_land_where_they_should(phone):
    phone.android.switch("override")
    icon = next(n for n in phone.android.phone.nodes() if n.text == "Clock")
    (x0, y0, x1, y1), (width, height) = icon.bounds, phone.android.phone.size
    phone.tap(((y0 + y1) / 2 / height, (x0 + x1) / 2 / width))
    assert "deskclock" in phone.foreground()
    phone.tap((1.0, 1.0))  # the last pixel; one more would be refused


def test_18_the_app_in_front_is_known_without_a_focus(phone):
    phone.android.switch("no_focus")
    phone.must("am start -n com.android.settings/.Settings")
    assert phone.foreground() == "com.android.settings"
    assert phone.dismiss_dialog() == ""


def test_20_an_app_that_hangs_is_waited_for_and_the_step_is_not_learned_from(phone):
    phone.android.switch("anr=1")
    env = environment(phone)
    env.reset(NEVER, 1)
    step = env.step(HOME)
    assert step.disturbed.startswith("Application Not Responding")
    assert (step.ending, step.invalid) == (None, "")
    phone.android.switch("anr=0")
    assert phone.dismiss_dialog() == "" and phone.android.phone.dialog == ""


def test_20_a_dialog_that_stays_ends_the_episode(phone):
    phone.android.switch("anr=1,anr_stuck")
    env = environment(phone)
    env.reset(NEVER, 1)
    step = env.step(HOME)
    assert step.ending is Ending.TRUNCATED
    assert step.cause.startswith("dialog: ")


def test_21_an_app_that_does_not_start_is_noticed_at_exit_code_0(phone):
    phone.android.switch("am_error")
    task = Task("t", "g", NEVER.checks, ("am start -n com.android.settings/.S",), suite="general")
    assert "does not exist" in fails("app", environment(phone).reset, task, 0)


def test_23_an_empty_view_tree_is_an_error_and_no_blank_screen(phone):
    phone.android.switch("no_views")
    fails("views", phone.dump)


def test_26_an_offline_phone_is_waited_for_in_bounds_and_alone(adb_server, serve_phones, phone):
    with serve_phones(1) as broken:
        device = connect(broken.serial, adb_server.port)
        broken.android.switch("offline")
        for connection in list(broken.servers[0]._connections):
            broken.call(aborted(connection))
        wait_for(lambda: device.server.devices().get(broken.serial) != "device", "it to go")
        owner = Attached(device, ready_timeout_s=0.5)
        with pytest.raises(DeviceError) as caught:
            owner.recover()
        assert caught.value.cause in ("offline", "gone")
        assert phone.screenshot().png  # the other one notices nothing
        broken.android.switch("")
        Attached(device, ready_timeout_s=20).recover(hard=True)


async def aborted(connection) -> None:
    connection.abort()


def test_28_a_server_of_another_version_is_left_alone(monkeypatch):
    """Adb's own client would kill it."""
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                asked.append(connection.recv(100))
                connection.sendall(b"OKAY00040020")

        thread = threading.Thread(target=serve)
        thread.start()
        AdbServer(port=listener.getsockname()[1]).ensure()
        thread.join()
    assert asked == [b"000chost:version"]


def test_29_many_actors_may_find_no_server_at_once(tmp_path, monkeypatch):
    for name, value in (("HOME", str(tmp_path)), ("ADB_MDNS", "0"), ("ADB_USB", "0")):
        monkeypatch.setenv(name, value)
    server = AdbServer(port=ports.free_port())
    try:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda _: server.ensure(), range(16)))  # none raises
        assert server.query("host:version")
    finally:
        with Channel(server, "host:kill", 5.0) as channel:
            channel.request("host:kill")


def test_30_a_command_goes_to_the_one_phone_that_is_meant(adb_server, serve_phones):
    with serve_phones(2) as phones:
        first, second = (AdbDevice(serial, port=adb_server.port) for serial in phones.serials)
        for device in (first, second):
            health.wait_ready(device, 10)
        first.must("settings put system mark 1")
        assert second.must("settings get system mark").strip() == "null"


def test_32_a_phone_that_does_not_trust_us_is_named_with_the_key(adb_server, serve_phones):
    with serve_phones(1) as phones:
        device = connect(phones.serial, adb_server.port)
        phones.android.switch("unauthorized")
        for connection in list(phones.servers[0]._connections):
            phones.call(aborted(connection))
        state = lambda: device.server.devices().get(phones.serial)  # noqa: E731
        wait_for(lambda: state() == "unauthorized", "the refusal")
        with pytest.raises(ConfigError, match=r"does not trust this machine.*adbkey\.pub"):
            connect(phones.serial, adb_server.port)
        with pytest.raises(DeviceError) as caught:
            health.wait_ready(device, 0.2)
        assert caught.value.cause == "unauthorized"


def test_33_a_command_that_hangs_ends_at_its_deadline(phone):
    phone.android.switch("hang")
    assert "took over 0.3 s" in fails("hung", phone.shell, "true", 0.3, within_s=1.0)
    assert "took over 0.3 s" in fails("hung", phone.screenshot, 0.3, within_s=1.0)


@pytest.mark.parametrize("fault", ["cut", "drop"])
def test_34_a_connection_that_ends_early_is_no_success(phone, fault):
    phone.android.switch(fault)
    fails("cut", phone.shell, "getprop")


def test_36_a_server_that_is_slow_to_answer_is_waited_for():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            time.sleep(1.0)
            connection, _ = listener.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"OKAY00040029")

        threading.Thread(target=serve, daemon=True).start()
        assert AdbServer(port=listener.getsockname()[1]).query("host:version") == "0029"


def test_27_the_end_of_adb_s_server_is_survived(serve_phones, tmp_path, monkeypatch):
    """kill -9 of a server of its own: the phone's owner starts another, and finds its phone."""
    from tests.conftest import AdbServer as Private

    server = Private(tmp_path)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.start()
    try:
        from tests.conftest import served

        with served(1, server) as phones:
            device = connect(phones.serial, server.port)
            owner = Attached(device, 20.0)
            owner.recover()
            server._process.send_signal(signal.SIGKILL)
            server._process.wait()
            fails("no_server", device.screenshot)
            owner.recover()
            assert device.screenshot().image.shape == (ui.HEIGHT, ui.WIDTH, 3)
    finally:
        server.adb(None, "kill-server")

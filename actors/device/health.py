"""Whether a phone is ready to be worked with."""

from __future__ import annotations

import time
from collections.abc import Callable

from actors.device.adb import AdbDevice
from actors.device.causes import Cause, of_state
from common.errors import DeviceError

POLL_S = 0.1
PROBE_S = 5.0  # for one question of many


def wait_ready(
    device: AdbDevice,
    timeout_s: float = 60.0,
    poll_s: float = POLL_S,
    on_wait: Callable[[], None] = lambda: None,
) -> None:
    """Waits until the phone is attached, has booted, runs its services and shows a frame.

    Args:
      device: The phone.
      timeout_s: How long.
      poll_s: Wait between looks.
      on_wait: Called after each look in vain; what it raises ends the wait.

    Raises:
      DeviceError: It did not within the time; cause and message say what was missing.
    """
    deadline = time.monotonic() + timeout_s
    while (missing := _missing(device, min(PROBE_S, timeout_s))) is not None:
        if time.monotonic() > deadline:
            said = f"{device.serial} is not ready after {timeout_s:g} s: {missing}"
            raise DeviceError(said, missing.cause) from missing
        on_wait()
        time.sleep(poll_s)


def _missing(device: AdbDevice, timeout_s: float) -> DeviceError | None:
    try:
        state = device.server.devices().get(device.serial, "")
        if state != "device":
            raise DeviceError(f"its state is {state or 'not attached'!r}", of_state(state))
        out, _, _ = device.shell(
            "getprop sys.boot_completed; getprop init.svc.bootanim; pm path android", timeout_s
        )
        booted, animation, *services = [*out.split("\n"), "", ""]
        if booted.strip() != "1" or animation.strip() == "running":
            raise DeviceError("it is still booting", Cause.NOT_READY)
        if not any(line.startswith("package:") for line in services):
            raise DeviceError("its package service does not answer", Cause.NOT_READY)
        device.screenshot(timeout_s)
    except DeviceError as error:
        return error
    return None

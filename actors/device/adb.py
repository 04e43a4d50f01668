"""A phone behind an adb server, whatever kind it is: emulator, hardware or simulated."""

from __future__ import annotations

import functools
import io
import re
import shlex
import time
from typing import NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError

from actors.device.server import DEFAULT_PORT, AdbServer
from common.errors import ConfigError, DeviceError

_PNG_START = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"IEND\xaeB`\x82"
_MAX_PIXELS = 64_000_000  # no phone has more; a decoder must not be led to allocate more
_TOP_ACTIVITY = re.compile(r"(?:topResumed|mResumed|Resumed)Activity[=:].*? (\S+/\S+)")


class Frame(NamedTuple):
    """What the screen shows."""

    png: bytes
    image: np.ndarray  # [H, W, 3] uint8


class AdbDevice:
    """Reads and drives one phone. Each call has a total deadline and raises DeviceError.

    Attributes:
      serial: The adb server's name for it.
      server: The adb server.
    """

    def __init__(self, serial: str, host: str = "127.0.0.1", port: int = DEFAULT_PORT):
        self.serial = serial
        self.server = AdbServer(host, port)
        self._frame = Frame(b"", np.zeros((0, 0, 3), np.uint8))

    def shell(self, command: str | list[str], timeout_s: float = 10.0) -> tuple[str, str, int]:
        """Runs a command; a list is quoted word by word.

        Returns:
          Standard output, standard error and the exit code.
        """
        line = command if isinstance(command, str) else shlex.join(command)
        out, err, code = self.server.shell(self.serial, line, timeout_s)
        return out.decode(errors="replace"), err.decode(errors="replace"), code

    def must(self, command: str | list[str], timeout_s: float = 10.0) -> str:
        """Runs a command whose failure is the device's failure; returns its standard output."""
        out, err, code = self.shell(command, timeout_s)
        if code:
            said = (err or out).strip()[:200]
            raise DeviceError(f"{self.serial}: {command!r} ended with code {code}: {said}")
        return out

    def screenshot(self, timeout_s: float = 10.0) -> Frame:
        """Returns the screen; never a made-up or half a picture."""
        out, err, code = self.server.shell(self.serial, "screencap -p", timeout_s)
        # Phones with several displays print a warning before the picture.
        start, end = out.find(_PNG_START), out.rfind(_PNG_END)
        if code or start < 0:
            said = (err or out[:200]).decode(errors="replace").strip()
            raise DeviceError(f"{self.serial}: screencap gave no PNG (code {code}): {said[:200]}")
        if end < start:
            raise DeviceError(f"{self.serial}: the screenshot is cut after {len(out)} bytes")
        png = out[start : end + len(_PNG_END)]
        if png != self._frame.png:
            self._frame = Frame(png, self._decode(png))
        return self._frame

    def _decode(self, png: bytes) -> np.ndarray:
        try:
            with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
                if image.width * image.height > _MAX_PIXELS:
                    raise DeviceError(f"{self.serial}: a screenshot of {image.size} pixels")
                return np.asarray(image.convert("RGB"))
        except (OSError, SyntaxError, ValueError, UnidentifiedImageError) as error:
            raise DeviceError(f"{self.serial}: the screenshot does not decode: {error}") from error

    def _pixel(self, point_yx: tuple[float, float]) -> tuple[int, int]:
        """Turns fractions into (x, y) pixels of the latest frame, inside the screen."""
        if not self._frame.png:
            self.screenshot()
        size = self._frame.image.shape[:2]
        y, x = (
            min(round(min(max(value, 0.0), 1.0) * pixels), pixels - 1)
            for value, pixels in zip(point_yx, size, strict=True)
        )
        return x, y

    def tap(self, point_yx: tuple[float, float]) -> None:
        x, y = self._pixel(point_yx)
        self.must(f"input tap {x} {y}")

    def swipe(
        self,
        touch_yx: tuple[float, float],
        lift_yx: tuple[float, float],
        duration_ms: int = 300,
    ) -> None:
        (x1, y1), (x2, y2) = self._pixel(touch_yx), self._pixel(lift_yx)
        self.must(f"input swipe {x1} {y1} {x2} {y2} {duration_ms}")

    def type_text(self, text: str) -> None:
        """Types into the focused field.

        Raises:
          ValueError: The text is empty or is not printable ASCII: `typable` says so beforehand.
        """
        if not typable(text):
            raise ValueError(f"This text can't be typed: {text!r}")
        # `input text` turns %s into a space, so the two characters go in separate calls.
        parts = text.replace("%s", "%\0s").split("\0")
        self.must(" && ".join(f"input text {shlex.quote(part)}" for part in parts))

    def key(self, name: str) -> None:
        """Presses a key by its Android name without KEYCODE_, such as HOME, BACK or ENTER."""
        self.must(f"input keyevent KEYCODE_{name}")

    def getprop(self, name: str) -> str:
        return self.must(["getprop", name]).strip()

    @functools.cached_property
    def simulated(self) -> bool:
        """Whether this is the simulated phone of `actors.phone`."""
        return self.getprop("ro.hardware") == "simphone"

    def dump(self) -> str:
        """Returns the screen's views as uiautomator's XML."""
        path = "/sdcard/window_dump.xml"
        out = self.must(f"rm -f {path}; uiautomator dump {path} > /dev/null && cat {path}")
        start = out.find("<hierarchy")
        if start < 0:
            raise DeviceError(f"{self.serial}: uiautomator dumped no views: {out.strip()[:200]!r}")
        return out[start:]

    def foreground(self) -> str:
        """Returns the package that has the screen, or '' if no activity is resumed."""
        found = _TOP_ACTIVITY.search(self.must("dumpsys activity activities"))
        return found[1].partition("/")[0] if found else ""

    def wait_ready(self, timeout_s: float = 60.0, poll_s: float = 0.1) -> None:
        """Waits until the phone is attached, has booted and shows a frame.

        Raises:
          DeviceError: It did not within the time; the message says what was missing.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                missing = self._missing()
            except DeviceError as error:
                missing = str(error)
            if not missing:
                return
            if time.monotonic() > deadline:
                raise DeviceError(f"{self.serial} is not ready after {timeout_s:g} s: {missing}")
            time.sleep(poll_s)

    def _missing(self) -> str:
        state = self.server.devices().get(self.serial, "not attached")
        if state != "device":
            return f"its state is {state!r}"
        if self.getprop("sys.boot_completed") != "1":
            return "it is still booting"
        self.screenshot()
        return ""


def typable(text: str) -> bool:
    """Whether `input text` can type it exactly: some printable ASCII."""
    return bool(text) and text.isascii() and text.isprintable()


def connect(emulator: str, port: int = DEFAULT_PORT, host: str = "127.0.0.1") -> AdbDevice:
    """Finds a running phone by serial, or by host:port, which the adb server then dials.

    Raises:
      ConfigError: It is not there or not usable; the message lists what is.
    """
    device = AdbDevice(emulator, host, port)
    device.server.ensure()
    said = ""
    if ":" in emulator and device.server.devices().get(emulator) != "device":
        try:
            said = f" (adb says: {device.server.dial(emulator).strip()})"
        except DeviceError as error:
            said = f" ({error})"
    devices = device.server.devices()
    state = devices.get(emulator)
    if state == "device":
        return device
    if state == "unauthorized":
        raise ConfigError(f"{emulator} does not trust this machine: accept the key on its screen.")
    attached = ", ".join(f"{name} ({state})" for name, state in sorted(devices.items()))
    what = f"is {state}" if state else "is not attached"
    raise ConfigError(
        f"The device {emulator!r} {what}{said}. "
        f"The adb server at {host}:{port} has: {attached or 'no devices'}."
    )

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

from actors.device import dialogs, keyboard
from actors.device.causes import Cause
from actors.device.server import DEFAULT_PORT, AdbServer
from common.errors import ConfigError, DeviceError

_PNG_START = b"\x89PNG\r\n\x1a\n"
_PNG_START_MANGLED = b"\x89PNG\r\r\n\x1a\r\n"  # a terminal was in between
_PNG_END = b"IEND\xaeB`\x82"
_MAX_PIXELS = 64_000_000  # no phone has more; a decoder must not be led to allocate more
_FRAME_TRIES = 3
TIMEOUT_S = 10.0
_TOP_ACTIVITY = re.compile(r"(?:topResumed|mResumed|Resumed)Activity[=:].*? (\S+/\S+)")
_SIZE = re.compile(r"(Physical|Override) size: (\d+)x(\d+)")
# am and input of many Androids say these and end with code 0.
_NO_APP = re.compile(r"^Error(?: type \d+$|: Activity )", re.MULTILINE)
_EXCEPTION = re.compile(r"^(?:Exception occurred|java\.lang\.|Error: )", re.MULTILINE)


class Frame(NamedTuple):
    """What the screen shows."""

    png: bytes
    image: np.ndarray  # [H, W, 3] uint8


class AdbDevice:
    """Reads and drives one phone. Each call has a total deadline and raises DeviceError.

    Attributes:
      serial: The adb server's name for it; its owner sets it anew if a restart changed it.
      server: The adb server.
      timeout_s: Deadline of a call, from its first byte to its last, if it is given no other.
    """

    def __init__(
        self,
        serial: str,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        timeout_s: float = TIMEOUT_S,
    ):
        self.serial = serial
        self.timeout_s = timeout_s
        self.server = AdbServer(host, port)
        self._frame = Frame(b"", np.zeros((0, 0, 3), np.uint8))
        self._input: tuple[tuple[int, int], tuple[int, int]] | None = None

    def shell(
        self, command: str | list[str], timeout_s: float | None = None
    ) -> tuple[str, str, int]:
        """Runs a command; a list is quoted word by word.

        Returns:
          Standard output, standard error and the exit code.
        """
        line = command if isinstance(command, str) else shlex.join(command)
        out, err, code = self.server.shell(self.serial, line, timeout_s or self.timeout_s)
        return out.decode(errors="replace"), err.decode(errors="replace"), code

    def must(self, command: str | list[str], timeout_s: float | None = None) -> str:
        """Runs a command whose failure is the device's failure; returns its standard output.

        A command that says that it failed has failed, whatever its exit code is.
        """
        out, err, code = self.shell(command, timeout_s)
        no_app = _NO_APP.search(err) or _NO_APP.search(out)
        if code or no_app or _EXCEPTION.search(err):
            said = (err or out).strip()[:200]
            raise DeviceError(
                f"{self.serial}: {command!r} ended with code {code}: {said}",
                Cause.APP if no_app else Cause.COMMAND,
            )
        return out

    def screenshot(self, timeout_s: float | None = None) -> Frame:
        """Returns the screen; never a made-up or half a picture.

        Half a picture is asked for again, a few times within the one deadline.
        """
        deadline = time.monotonic() + (timeout_s or self.timeout_s)
        for tries_left in reversed(range(_FRAME_TRIES)):
            left_s = max(deadline - time.monotonic(), 0.001)
            out, err, code = self.server.shell(self.serial, "screencap -p", left_s)
            try:
                png = self._png(out, err, code)
                if png != self._frame.png:
                    self._frame = Frame(png, self._decode(png))
                break
            except DeviceError:
                if not tries_left:
                    raise
        return self._frame

    def _png(self, out: bytes, err: bytes, code: int) -> bytes:
        """Cuts the picture out of what screencap printed."""
        if _PNG_START_MANGLED in out:
            out = out.replace(b"\r\n", b"\n")  # exact: each \n had got a \r
        # Phones with several displays print a warning before the picture.
        start, end = out.find(_PNG_START), out.rfind(_PNG_END)
        if code or start < 0:
            said = (err or out[:200]).decode(errors="replace").strip()
            raise DeviceError(
                f"{self.serial}: screencap gave no PNG (code {code}): {said[:200]}", Cause.SCREEN
            )
        if end < start:
            raise DeviceError(
                f"{self.serial}: the screenshot is cut after {len(out)} bytes", Cause.SCREEN
            )
        return out[start : end + len(_PNG_END)]

    def _decode(self, png: bytes) -> np.ndarray:
        try:
            with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
                if image.width * image.height > _MAX_PIXELS:
                    raise DeviceError(
                        f"{self.serial}: a screenshot of {image.size} pixels", Cause.SCREEN
                    )
                return np.asarray(image.convert("RGB"))
        except (OSError, SyntaxError, ValueError, UnidentifiedImageError) as error:
            raise DeviceError(
                f"{self.serial}: the screenshot does not decode: {error}", Cause.SCREEN
            ) from error

    def _pixel(self, point_yx: tuple[float, float]) -> tuple[int, int]:
        """Turns fractions into (x, y) pixels of what `input` takes, inside the screen."""
        y, x = (
            min(round(min(max(value, 0.0), 1.0) * pixels), pixels - 1)
            for value, pixels in zip(point_yx, self.input_size(), strict=True)
        )
        return x, y

    def input_size(self) -> tuple[int, int]:
        """Returns height and width that `input` counts in, as the latest frame is turned.

        With an override they are not always those of the picture. Asked for again whenever the
        frame's size changes.
        """
        if not self._frame.png:
            self.screenshot()
        height, width = self._frame.image.shape[:2]
        if self._input is None or self._input[0] != (height, width):
            sizes = {what: (int(x), int(y)) for what, x, y in _SIZE.findall(self.must("wm size"))}
            size = sizes.get("Override") or sizes.get("Physical")
            if size is None:
                raise DeviceError(f"{self.serial}: `wm size` names no size", Cause.COMMAND)
            short, long = sorted(size)
            taken = (short, long) if height < width else (long, short)
            self._input = (height, width), taken
        return self._input[1]

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

    def key(self, name: str) -> None:
        """Presses a key by its Android name without KEYCODE_, such as HOME, BACK or ENTER."""
        self.must(f"input keyevent KEYCODE_{name}")

    def type_text(self, text: str) -> str:
        """Types into the focused field; returns why it is not there, a short name, or ''."""
        # A simulated phone's `input` ends when the field shows it.
        return keyboard.type_text(self, text, 0.0 if self.simulated else keyboard.READ_BACK_S)

    def dismiss_dialog(self) -> str:
        """Answers the system dialog that covers the screen; returns which one, '' for none."""
        return dialogs.dismiss(self)

    def getprop(self, name: str) -> str:
        return self.must(["getprop", name]).strip()

    @functools.cached_property
    def simulated(self) -> bool:
        """Whether this is the simulated phone of `actors.phone`."""
        return self.getprop("ro.hardware") == "simphone"

    @functools.cached_property
    def has_dialogs(self) -> bool:
        """Whether dialogs of the system may appear: not on a simulated phone without faults."""
        return not self.simulated or bool(self.getprop("debug.simphone.faults"))

    def dump(self) -> str:
        """Returns the screen's views as uiautomator's XML; having none is a failure."""
        path = "/sdcard/window_dump.xml"
        out, err, _ = self.shell(f"rm -f {path}; uiautomator dump {path} >&2 && cat {path}")
        start = out.find("<hierarchy")
        if start < 0 or "<node" not in out:
            said = (err + out).strip()[:200]
            raise DeviceError(f"{self.serial}: uiautomator dumped no views: {said!r}", Cause.VIEWS)
        return out[start:]

    def foreground(self) -> str:
        """Returns the package that has the screen, or '' if no activity is resumed."""
        found = _TOP_ACTIVITY.search(self.must("dumpsys activity activities"))
        return found[1].partition("/")[0] if found else ""


def connect(emulator: str, port: int = DEFAULT_PORT, host: str = "127.0.0.1") -> AdbDevice:
    """Finds a running phone by serial, or by host:port, which the adb server then dials.

    Raises:
      ConfigError: It is not there, or does not trust us; the message lists what is.
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
    if state == "unauthorized":
        raise ConfigError(
            f"{emulator} does not trust this machine: accept the key of ~/.android/adbkey.pub "
            "on its screen."
        )
    if state is not None:  # it may be booting: whoever needs it waits for it
        return device
    attached = ", ".join(f"{name} ({state})" for name, state in sorted(devices.items()))
    raise ConfigError(
        f"The device {emulator!r} is not attached{said}. "
        f"The adb server at {host}:{port} has: {attached or 'no devices'}."
    )

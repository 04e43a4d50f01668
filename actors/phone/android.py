"""The Android around the phone's screen: files, properties and encoded frames.

`Phone` knows apps and their views; this is what adbd and its commands see of the rest.
"""

from __future__ import annotations

import io
import struct

from actors.phone.faults import Faults
from actors.phone.files import Files
from actors.phone.phone import Phone

NOW = 1_735_732_800  # 2025-01-01 12:00:00 UTC: the clock stands still, so that runs repeat
ADB_KEYBOARD = "com.android.adbkeyboard/.AdbIME"  # can be installed, and then types anything

_FORMAT_RGBA = 1
_COLORSPACE_SRGB = 1


class Android:
    """One phone as adb sees it."""

    def __init__(
        self,
        phone: Phone,
        serial: str = "emulator-5554",
        time_factor: float = 0.0,
        faults: Faults | None = None,
    ):
        """Wraps a phone.

        Args:
          phone: The phone, which this object owns from here on.
          serial: Its name in properties.
          time_factor: How long gestures, apps and pages take, in terms of a real phone; 0 is at
            once.
          faults: What goes wrong; nothing by default.
        """
        self.faults = faults or Faults()
        self.phone = phone
        self.serial = serial
        self.time_factor = time_factor
        self._frames: dict[str, tuple[int, bytes]] = {}  # format to (revision, encoded)
        self._start()

    def _start(self):
        self.now = NOW
        self.selected_at = -1  # revision of the screen at which Ctrl+A selected the field's text
        self.files = Files(NOW)
        self.properties = {
            "debug.simphone.faults": str(self.faults),
            "ro.build.version.release": "13",
            "ro.build.version.sdk": "33",
            "ro.hardware": "simphone",
            "ro.product.brand": "simphone",
            "ro.product.cpu.abi": "x86_64",
            "ro.product.cpu.abilist": "x86_64",
            "ro.product.device": "simphone",
            "ro.product.locale": "en-US",
            "ro.product.manufacturer": "SimPhone",
            "ro.product.model": "SimPhone",
            "ro.product.name": "simphone",
            "ro.serialno": self.serial,
            "sys.boot_completed": "1",
            "init.svc.bootanim": "stopped",
            "persist.sys.timezone": "UTC",
        }

    def reset(self, seed: int):
        """Returns everything to a fresh phone with the layout of a seed."""
        self.phone.reset(seed)
        self._start()

    def switch(self, switches: str):
        """Sets which faults happen from here on; ValueError for unknown ones."""
        self.faults.set(switches)
        self.properties["debug.simphone.faults"] = str(self.faults)

    @property
    def input_size(self) -> tuple[int, int]:
        """Width and height that `input` and `wm size` count in."""
        width, height = self.phone.size
        return (width // 2, height // 2) if "override" in self.faults.rates else (width, height)

    @property
    def types_anything(self) -> bool:
        """Whether ADBKeyBoard is the keyboard."""
        return self.phone.settings["secure"].get("default_input_method") == ADB_KEYBOARD

    @property
    def density(self) -> int:
        """Dots per inch: the screen is 360 density-independent pixels wide."""
        return round(self.phone.size[0] / 360 * 160)

    def png(self) -> bytes:
        """Returns the screen as an RGB PNG, encoded once for each revision of the screen."""
        return self._frame("png", self._encode_png)

    def raw(self) -> bytes:
        """Returns the screen as RGBA pixels, row by row."""
        return self._frame("raw", lambda: self.phone.render().convert("RGBA").tobytes())

    def raw_header(self) -> bytes:
        """Returns what `screencap` puts before raw pixels."""
        return struct.pack("<4I", *self.phone.size, _FORMAT_RGBA, _COLORSPACE_SRGB)

    def _frame(self, kind: str, encode) -> bytes:
        revision = self.phone.revision
        if self._frames.get(kind, (None, b""))[0] != revision:
            self._frames[kind] = (revision, encode())
        return self._frames[kind][1]

    def _encode_png(self) -> bytes:
        stream = io.BytesIO()
        self.phone.render().save(stream, "PNG", compress_level=1)
        return stream.getvalue()

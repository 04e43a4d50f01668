"""What real phones and adb do wrong, as switches with a rate: "png_cut=0.02,anr=1"."""

from __future__ import annotations

import collections
import random
from collections.abc import Mapping

FAULTS: Mapping[str, str] = {
    "am_error": "am start fails, and ends with code 0",
    "anr": "an app hangs after some input, and a dialog says so",
    "anr_stuck": "that dialog comes back whatever is tapped",
    "cut": "a command's stream ends before its exit code",
    "drop": "the connection to adb breaks during a command",
    "hang": "a command never ends",
    "lost_text": "typed text does not arrive",
    "no_focus": "dumpsys window names no focus, as on Android 10 and later",
    "no_views": "uiautomator finds no window",
    "offline": "adbd takes connections and says nothing",
    "override": "wm size has an override, and the picture keeps the physical size",
    "png_crlf": "the screenshot went through a terminal",
    "png_cut": "the screenshot ends half way",
    "png_empty": "the screenshot is empty",
    "png_failed": "screencap fails and says so",
    "png_warning": "a warning is printed before the screenshot",
    "slow_boot": "the system does not finish booting",
    "unauthorized": "adbd does not accept the host's key",
}


class Faults:
    """Which faults happen when.

    Attributes:
      rates: Chance of each fault whenever it could happen; whoever runs the phone may change it.
      counts: How often each happened.
    """

    def __init__(self, switches: str = "", seed: int = 0):
        """Takes switches such as "png_cut=0.02,anr=1"; ValueError for one that is unknown."""
        self.rates: dict[str, float] = {}
        self.counts: collections.Counter[str] = collections.Counter()
        self._random = random.Random(seed)
        self.set(switches)

    def set(self, switches: str) -> None:
        rates = {}
        for switch in filter(None, switches.split(",")):
            name, _, rate = switch.partition("=")
            if name not in FAULTS:
                raise ValueError(f"no fault {name!r}; there are {', '.join(FAULTS)}")
            rates[name] = float(rate or 1)
            if not 0 <= rates[name] <= 1:
                raise ValueError(f"the rate of {name!r} must be from 0 to 1")
        self.rates = rates

    def __str__(self) -> str:
        return ",".join(f"{name}={rate:g}" for name, rate in self.rates.items())

    def hit(self, name: str) -> bool:
        """Draws whether a fault happens now."""
        rate = self.rates.get(name, 0.0)
        happens = rate > 0 and self._random.random() < rate
        self.counts[name] += happens
        return happens

    def heavy_tailed_s(self) -> float:
        """Draws how long an app or a page takes to appear: log-normal, median 0.8 s, mean 1.3 s."""
        return 0.8 * self._random.lognormvariate(0.0, 1.0)

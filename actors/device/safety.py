"""What must not happen on a phone of a person, and the list of phones that may be used at all."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from typing import Protocol

from common.actions import ActionType
from common.errors import ConfigError
from common.tasks import Task

# Calls, messages, payments and purchases of the usual phones.
PERSONAL = (
    "com.android.dialer",
    "com.android.mms",
    "com.android.phone",
    "com.android.vending",
    "com.google.android.apps.messaging",
    "com.google.android.apps.walletnfcrel",
    "com.google.android.dialer",
    "com.samsung.android.dialer",
    "com.samsung.android.messaging",
    "com.samsung.android.spay",
)
# Commands that a task may run, but not on a phone of a person.
_WIPES = re.compile(
    r"\b(pm (clear|uninstall|disable\S*|hide|trim-caches)|cmd package (clear|uninstall)|rm|rmdir|dd"
    r"|mkfs\S*|settings (reset|delete)|content (delete|update)|reboot|recovery|wipe|bmgr|sqlite3"
    r"|locksettings|FACTORY_RESET|MASTER_CLEAR)\b"
)
_EMULATED = frozenset({"goldfish", "ranchu", "cutf_cvm", "cutf", "vbox86", "simphone"})


@dataclasses.dataclass(frozen=True)
class Rules:
    """What is denied on a phone.

    Attributes:
      packages: Apps that are left at once when they come to the front.
      actions: Types of action that are not carried out.
      keeps_data: Tasks must not wipe anything.
    """

    packages: frozenset[str] = frozenset()
    actions: frozenset[ActionType] = frozenset()
    keeps_data: bool = False

    def check(self, task: Task) -> None:
        """Raises ConfigError for a task whose commands would wipe what has to be kept."""
        commands = (*task.setup, *(check.shell for check in task.checks))
        wiping = next(filter(_WIPES.search, commands), "") if self.keeps_data else ""
        if wiping:
            raise ConfigError(
                f"The task {task.id!r} runs {wiping!r}, which can wipe data of the phone's owner. "
                "Take it out of the task, or use an emulator."
            )


NONE = Rules()


class Device(Protocol):
    """What is asked of a phone about its owner."""

    serial: str

    def getprop(self, name: str, /) -> str: ...


def is_emulated(device: Device) -> bool:
    """Whether a phone is an emulator or simulated, whatever its serial looks like."""
    return (
        device.getprop("ro.hardware") in _EMULATED
        or device.getprop("ro.boot.qemu") == "1"
        or device.getprop("ro.kernel.qemu") == "1"
    )


def confirm(device: Device, record: pathlib.Path, confirmed: str = "") -> None:
    """Makes sure that somebody said once that this phone of a person may be used.

    It is remembered by the phone's own serial number: addresses change hands.

    Args:
      device: The phone; an emulator needs no word.
      record: The file of phones that were confirmed, one a line.
      confirmed: The serial that somebody confirms now, as adb shows it.

    Raises:
      ConfigError: Nobody did.
    """
    if is_emulated(device):
        return
    number = device.getprop("ro.serialno") or device.serial
    known = record.read_text().split() if record.exists() else []
    if number in known:
        return
    if confirmed != device.serial:
        raise ConfigError(
            f"{device.serial} ({device.getprop('ro.product.model')}) is no emulator. Episodes tap, "
            "type and close apps on it. If it may be used for that, say so once with "
            f"--confirm-phone={device.serial}; it is remembered in {record}."
        )
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.open("a") as file:
        file.write(f"{number}\n")

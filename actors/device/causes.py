"""What can be wrong with a phone, in words to count by; docs/failures.md explains each."""

from __future__ import annotations

import enum
import re


class Cause(enum.StrEnum):
    """Goes into `DeviceError.cause`, and before the colon of a truncated episode's cause."""

    NO_SERVER = "no_server"  # no adb server answers
    GONE = "gone"  # the server does not list the phone
    OFFLINE = "offline"  # listed, and does not answer
    UNAUTHORIZED = "unauthorized"  # listed, and does not trust this machine's key
    HUNG = "hung"  # a command was not done by its deadline
    CUT = "cut"  # the connection ended before the answer did
    COMMAND = "command"  # a command failed that never should
    APP = "app"  # an app does not start
    SCREEN = "screen"  # no picture, or half of one
    VIEWS = "views"  # no view tree
    DIALOG = "dialog"  # a dialog of the system stays in front
    NOT_READY = "not_ready"  # booting, or services are missing
    EMULATOR = "emulator"  # the emulator program ended, or does not start
    SNAPSHOT = "snapshot"  # the emulator did not load its snapshot


_REFUSALS = (
    (re.compile("unauthorized|authorizing"), Cause.UNAUTHORIZED),
    (re.compile("offline|connecting"), Cause.OFFLINE),
    (re.compile("not found|no devices"), Cause.GONE),
)


def of_refusal(said: str) -> Cause:
    """Returns what the adb server means when it refuses a service with these words."""
    return next((cause for pattern, cause in _REFUSALS if pattern.search(said)), Cause.CUT)


def of_state(state: str) -> Cause:
    """Returns what is wrong with a phone in a state other than "device"."""
    known = {"unauthorized": Cause.UNAUTHORIZED, "offline": Cause.OFFLINE, "": Cause.GONE}
    return known.get(state, Cause.NOT_READY)

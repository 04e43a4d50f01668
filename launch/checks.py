"""The checks of the doctor: each answers with what it found and what can be done about it."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import enum
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import NamedTuple

from actors.device import avd, health
from actors.device.adb import AdbDevice
from actors.device.server import AdbServer, adb_path
from common import channel
from common import ports as free_ports
from common.errors import ConfigError, DeviceError

PYTHONS = ((3, 11), (3, 14))
DISK_GB = 10.0  # an AVD with a snapshot has about 8
MEMORY_GB = 3.0  # an emulator and its actor
JUDGE_URL = "https://generativelanguage.googleapis.com"
EMULATOR_FILE_SYSTEMS = ("ext4", "xfs", "btrfs")


class Status(enum.StrEnum):
    """From good to bad."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


class Answer(NamedTuple):
    """What a check found; the hint says what to do about it."""

    status: Status
    said: str
    hint: str = ""


@dataclasses.dataclass(frozen=True)
class Finding:
    """A check's answer with its name and time."""

    name: str
    status: Status
    said: str
    hint: str
    took_s: float


def run(name: str, check: Callable[[], Answer], limit_s: float) -> Finding:
    """Runs a check for so long at most; one that takes longer has failed, and is left behind."""
    began = time.monotonic()
    future: concurrent.futures.Future[Answer] = concurrent.futures.Future()

    def work() -> None:
        try:
            future.set_result(check())
        except (ConfigError, DeviceError, OSError, subprocess.SubprocessError) as error:
            future.set_exception(error)

    threading.Thread(target=work, name=f"check {name}", daemon=True).start()
    try:
        answer = future.result(limit_s)
    except TimeoutError:
        hint = "Whatever it asks hangs; see the line before, or give it longer with --limit-s."
        answer = Answer(Status.FAIL, f"no answer in {limit_s:g} s", hint)
    except ConfigError as error:  # says itself what to do
        answer = Answer(Status.FAIL, str(error))
    except (DeviceError, OSError, subprocess.SubprocessError) as error:
        answer = Answer(Status.FAIL, str(error), "See docs/failures.md.")
    return Finding(name, *answer, round(time.monotonic() - began, 3))


def python() -> Answer:
    low, high = PYTHONS
    said = f"{platform.python_version()} at {sys.executable}"
    if low <= sys.version_info < high:
        return Answer(Status.PASS, said)
    return Answer(Status.FAIL, said, "Python 3.11 to 3.13 is needed: make PYTHON=python3.12 run")


def jax(limit_s: float) -> Answer:
    """Asks in a process of its own: a driver that hangs must not hang the doctor."""
    code = "import jax; print(jax.__version__, *sorted({d.device_kind for d in jax.devices()}))"
    asked = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=limit_s
    )
    if asked.returncode:
        said = (asked.stderr.strip().splitlines() or ["no reason"])[-1][:300]
        hint = "Reinstall the requirements; for an accelerator, the jax that goes with its driver."
        return Answer(Status.FAIL, said, hint)
    version, *kinds = asked.stdout.split()
    return Answer(Status.PASS, f"{version} on {' '.join(kinds)}")


def adb() -> Answer:
    path = adb_path()
    asked = subprocess.run([path, "version"], capture_output=True, text=True, timeout=10)
    if asked.returncode:
        return Answer(Status.FAIL, f"{path} does not run: {asked.stderr.strip()[:200]}")
    version = next((x for x in asked.stdout.splitlines() if x.startswith("Version")), "")
    return Answer(Status.PASS, f"{path}, {version.removeprefix('Version ') or 'unknown version'}")


def adb_server(port: int) -> Answer:
    try:
        version = int(AdbServer(port=port).query("host:version"), 16)
    except DeviceError as error:
        hint = "Actors start it; or run `adb start-server`. Name another with --adb-port."
        return Answer(Status.WARN, str(error), hint)
    except ValueError:
        return Answer(
            Status.FAIL, f"What listens at port {port} is no adb server", "Name another port."
        )
    return Answer(Status.PASS, f"answers at port {port}, protocol {version}")


def serials(port: int) -> list[str]:
    """Returns all that the adb server shows; nothing without one."""
    try:
        return sorted(AdbServer(port=port).devices())
    except DeviceError:
        return []


def phone(serial: str, port: int) -> Answer:
    """State, boot, services, a frame and an input, which wakes the screen and does nothing else."""
    device = AdbDevice(serial, port=port)
    state = device.server.devices().get(serial, "")
    hints = {
        "": "Plug it in, start it, or `adb connect` it; then `adb devices` shows it.",
        "unauthorized": "Accept this machine's key (~/.android/adbkey.pub) on its screen.",
        "offline": "Wait for its boot; else restart it, or `adb reconnect`.",
    }
    if state != "device":
        hint = hints.get(state, "See docs/failures.md.")
        return Answer(Status.FAIL, f"its state is {state or 'not attached'}", hint)
    health.wait_ready(device, 1.0)
    height, width = device.screenshot().image.shape[:2]
    device.key("WAKEUP")
    said = f"Android {device.getprop('ro.build.version.release')}, {width}x{height}, takes input"
    window = device.dismiss_dialog() if device.has_dialogs else ""
    if window:
        return Answer(Status.WARN, f"{said}; {window!r} was in front", "Look what hangs on it.")
    return Answer(Status.PASS, said)


def emulator(program: str, wanted: bool) -> Answer:
    try:
        path = avd.find(program)
    except ConfigError as error:
        status = Status.FAIL if wanted else Status.WARN
        return Answer(status, str(error), "Only avd:NAME needs it; see docs/emulators.md.")
    asked = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=20)
    line = next((x for x in asked.stdout.splitlines() if "version" in x), "")
    if asked.returncode or not line:
        said = (asked.stderr or asked.stdout).strip()[:200] or f"exit code {asked.returncode}"
        return Answer(Status.FAIL, f"{path} does not run: {said}", "Install what it misses.")
    return Answer(Status.PASS, f"{path}, {line.rpartition('|')[2].strip()}")


def avds(program: str, wanted: list[str]) -> Answer:
    try:
        known = avd.avds(avd.find(program))
    except ConfigError:
        said = "not known without the emulator program"
        return Answer(Status.FAIL if wanted else Status.WARN, said)
    missing = [name for name in wanted if name not in known]
    hint = "`avdmanager create avd` makes one; see docs/emulators.md."
    if missing:
        return Answer(Status.FAIL, f"no {', '.join(missing)}; there are {known or 'none'}", hint)
    return Answer(*(Status.PASS, ", ".join(known)) if known else (Status.WARN, "none", hint))


def kvm(wanted: bool) -> Answer:
    path = pathlib.Path("/dev/kvm")
    if path.exists() and os.access(path, os.R_OK | os.W_OK):
        return Answer(Status.PASS, f"{path} can be used")
    said = f"{path} may not be used" if path.exists() else f"there is no {path}"
    hint = (
        "Join the group that owns it: sudo gpasswd -a $USER kvm, and log in again."
        if path.exists()
        else "Switch virtualization on in the firmware, or nested virtualization in the cloud."
    )
    return Answer(Status.FAIL if wanted else Status.WARN, said, hint)


def disk() -> Answer:
    home = pathlib.Path(os.environ.get("ANDROID_AVD_HOME", "~/.android/avd")).expanduser()
    there = next(path for path in (home, *home.parents) if path.exists())
    free_gb = shutil.disk_usage(there).free / 1e9
    kind = _file_system(there)
    said = f"{free_gb:.0f} GB free at {there} ({kind})"
    if free_gb < DISK_GB:
        return Answer(Status.WARN, said, f"An AVD wants {DISK_GB:.0f} GB: free some.")
    if kind not in (*EMULATOR_FILE_SYSTEMS, "unknown"):
        hint = "Emulators have crashed on other file systems than ext4: set ANDROID_AVD_HOME."
        return Answer(Status.WARN, said, hint)
    return Answer(Status.PASS, said)


def _file_system(path: pathlib.Path) -> str:
    """Returns the kind of file system that a path is on: the mount with the longest prefix."""
    mounts = pathlib.Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    rows = [line.split()[1:3] for line in mounts.read_text().splitlines()]
    fitting = [(len(at), kind) for at, kind in rows if path.is_relative_to(at)]
    return max(fitting, default=(0, "unknown"))[1]


def memory() -> Answer:
    rows = pathlib.Path("/proc/meminfo").read_text().splitlines()
    values = {name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in rows)}
    free_gb = values["MemAvailable"] / 1e6
    fits = int(free_gb / MEMORY_GB)
    said = f"{free_gb:.1f} of {values['MemTotal'] / 1e6:.1f} GB free, for about {fits} emulators"
    if not fits:
        return Answer(Status.WARN, said, f"An emulator wants {MEMORY_GB:.0f} GB; phones need none.")
    return Answer(Status.PASS, said)


def ports() -> Answer:
    """Emulators of ours take ports from our range; any in adb's own range is probed by it."""
    free_ports.emulator_port()
    probed = [port for port in range(5555, 5586, 2) if not free_ports.is_free(port)]
    if probed:
        said = f"adb probes what listens at {', '.join(map(str, probed))}"
        return Answer(Status.WARN, said, "Fine if these are emulators; else move that program.")
    first, last = free_ports.PORTS.start, free_ports.PORTS.stop - 1
    return Answer(Status.PASS, f"there are free ones in {first}..{last}")


def learner(address: str) -> Answer:
    channel.split_address(address)
    status = channel.ask_status(address, timeout_s=5.0)
    if status is None:
        hint = "Start launch/learner.py there, open its port, and give both the same key."
        return Answer(Status.FAIL, f"no answer from {address}", hint)
    return Answer(Status.PASS, f"answers at {address}, with {len(status.get('actors', {}))} actors")


def judge(kind: str, variables: Mapping[str, str], limit_s: float) -> Answer:
    if kind == "state":
        return Answer(Status.PASS, "the state judge needs no service")
    key = variables.get("GEMINI_API_KEY", "")
    if not key:
        return Answer(Status.FAIL, "GEMINI_API_KEY is not set", "Make a key and export it.")
    base = variables.get("DISTRL_JUDGE_URL", JUDGE_URL)
    asked = urllib.request.Request(f"{base}/v1beta/models", headers={"x-goog-api-key": key})
    try:
        with urllib.request.urlopen(asked, timeout=limit_s) as answer:
            return Answer(Status.PASS, f"{base} accepts the key ({answer.status})")
    except urllib.error.HTTPError as error:
        hint = "Make a new key." if error.code in (400, 401, 403) else "Try again later."
        return Answer(Status.FAIL, f"{base} answers {error.code} {error.reason}", hint)
    except OSError as error:
        return Answer(Status.FAIL, f"{base}: {error}", "Is there a way to the network, or a proxy?")

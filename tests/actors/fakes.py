"""A phone and an adb server that answer as a test wants."""

from __future__ import annotations

import contextlib
import io
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from PIL import Image

from actors.device.adb import Frame
from common import actions
from common.actions import Action, ActionType
from common.errors import DeviceError
from common.tasks import Check, Task

TAP = actions.render(Action(ActionType.DUAL_POINT, (0.2, 0.5), (0.2, 0.5)))
NOTHING = actions.render(Action(ActionType.DUAL_POINT, (0.8, 0.5), (0.8, 0.5)))
COMPLETE = actions.render(Action(ActionType.STATUS_TASK_COMPLETE))


def task(count: int) -> Task:
    """A task for `FakeDevice`."""
    return Task("t", f"Count to {count}", (Check("count", f"^{count}$"),), suite="general")


def png(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


class FakeDevice:
    """A phone with a counter: each tap, key and typed text adds 1 and paints the screen anew.

    The upper half of the screen taps, the lower half does nothing.
    """

    simulated = True
    has_dialogs = False
    serial = "fake"

    def __init__(self) -> None:
        self.count = 0
        self.clock = 0  # changes with every frame, in the status bar alone
        self.calls: list[tuple] = []
        self.fail_at: int | None = None

    def shell(self, command: str) -> tuple[str, str, int]:
        self._note("shell", command)
        if "RESET" in command:
            self.count = 0
        return "".join(f"{part}\n" for part in self._echo(command)), "", 0

    def _echo(self, command: str) -> Iterator[str]:
        for part in command.split("; "):
            if part == "count":
                yield str(self.count)
            elif part.startswith("echo"):
                yield part[5:]

    def must(self, command: str) -> str:
        return self.shell(command)[0]

    def screenshot(self) -> Frame:
        self.clock += 1
        image = np.full((50, 20, 3), self.count % 256, np.uint8)
        image[:2] = self.clock % 256
        return Frame(png(image), image)

    def tap(self, point_yx: tuple[float, float]) -> None:
        self._note("tap", point_yx)
        self.count += point_yx[0] < 0.5

    def swipe(self, touch_yx: tuple[float, float], lift_yx: tuple[float, float]) -> None:
        self._note("swipe", touch_yx, lift_yx)

    def type_text(self, text: str) -> str:
        if not text.isascii():
            return "untypable_text"
        self._note("type", text)
        self.count += 1
        return ""

    def dismiss_dialog(self) -> str:
        return ""

    def key(self, name: str) -> None:
        self._note("key", name)
        self.count += 1

    def foreground(self) -> str:
        return "com.example"

    def _note(self, *call) -> None:
        self.calls.append(call)
        if self.fail_at is not None and len(self.calls) >= self.fail_at:
            raise DeviceError("fake: gone")


class FakePhone:
    """A phone that is always ready, and notes what is done about it."""

    restores = False
    starts = 0

    def __init__(self, device: FakeDevice | None = None):
        self.device: Any = device or FakeDevice()
        self.recoveries: list[bool] = []
        self.restored = 0
        self.fails: list[DeviceError] = []  # raised by the next recoveries

    def restore(self, on_wait: Callable[[], None] = lambda: None) -> None:
        self.restored += 1

    def recover(self, hard: bool = False, on_wait: Callable[[], None] = lambda: None) -> None:
        self.recoveries.append(hard)
        on_wait()
        if self.fails:
            raise self.fails.pop(0)

    def close(self) -> None:
        pass


Answer = Callable[[str, socket.socket], None]


@contextlib.contextmanager
def fake_adb(shell: Answer, devices: str = "fake-1\tdevice\n") -> Iterator[int]:
    """Serves adb's smart socket; `shell` gets each command and the socket to answer on."""

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while size := connection.recv(4, socket.MSG_WAITALL):
                request = connection.recv(int(size, 16), socket.MSG_WAITALL).decode()
                if request == "host:transport:fake-1":
                    connection.sendall(b"OKAY")
                elif request.startswith("shell,v2,raw:"):
                    connection.sendall(b"OKAY")
                    shell(request.removeprefix("shell,v2,raw:"), connection)
                    return
                elif request == "host:devices":
                    connection.sendall(b"OKAY%04x" % len(devices) + devices.encode())
                    return
                elif request == "host:version":
                    connection.sendall(b"OKAY00040029")
                    return
                else:
                    said = b"device not found"
                    connection.sendall(b"FAIL%04x" % len(said) + said)
                    return

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = listener.accept()[0]
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def packet(kind: int, payload: bytes) -> bytes:
    """A packet of shell_v2: 1 is standard output, 2 standard error, 3 the exit code."""
    return struct.pack("<BI", kind, len(payload)) + payload


def printing(output: bytes, code: int = 0) -> Answer:
    def answer(command: str, connection: socket.socket) -> None:
        del command
        connection.sendall(packet(1, output) + packet(3, bytes([code])))

    return answer

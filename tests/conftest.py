"""What all tests share: a real adb server, and simulated phones behind it."""

import asyncio
import contextlib
import os
import socket
import subprocess
import tempfile
import threading
import time

import adbutils
import pytest

from actors.device.server import adb_path, private_server
from actors.phone.android import Android
from actors.phone.phone import Phone
from actors.phone.server import PhoneServer
from common import ports

ADB = adb_path()
START_S = 10.0

# JAX reads these when it is imported, in tests and in the processes that they start. Small models
# spend their time in the compiler. What launchers compile and fetch they keep at home, which a test
# must neither rely on nor change.
CACHE = tempfile.TemporaryDirectory(prefix="cache-")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ["JAX_COMPILATION_CACHE_DIR"] = os.environ["XDG_CACHE_HOME"] = CACHE.name
STATE = tempfile.TemporaryDirectory(prefix="state-")  # where actors spool
os.environ["XDG_STATE_HOME"] = STATE.name


def pytest_unconfigure():
    CACHE.cleanup()
    STATE.cleanup()


class AdbServer:
    """A private adb server on loopback.

    Attributes:
      port: Where it listens.
      environment: For programs that use it.
    """

    def __init__(self, home):
        self.port = ports.free_port()
        self._command, private = private_server(self.port, home)
        self.environment = os.environ | private | {"ANDROID_ADB_SERVER_PORT": str(self.port)}
        self._home = home
        self._process = None

    def start(self):
        with (self._home / "adb.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
            )
        wait_for(lambda: listens(self.port), "the adb server")

    def stop(self):
        self._process.terminate()
        self._process.wait(START_S)

    def adb(self, serial, *words, stdin=b"", timeout_s=10.0):
        """Runs the adb client; returns the finished process with bytes of output."""
        command = [ADB, "-P", str(self.port), *(["-s", serial] if serial else []), *words]
        return subprocess.run(
            command, input=stdin, capture_output=True, timeout=timeout_s, env=self.environment
        )

    def device(self, serial):
        """Returns adbutils' view of a phone."""
        return adbutils.AdbClient("127.0.0.1", self.port, socket_timeout=10.0).device(serial)

    def serials(self):
        lines = self.adb(None, "devices").stdout.decode().splitlines()
        return {line.split("\t")[0] for line in lines if line.endswith("\tdevice")}


class ServedPhones:
    """Phones that a thread of this process serves."""

    def __init__(self, count, adb_server, **options):
        first = ports.phone_port(count)
        self.servers = []
        for seed, port in enumerate(range(first, first + 2 * count, 2)):
            android = Android(Phone(seed), f"emulator-{port - 1}", **options)
            self.servers.append(PhoneServer(android, port, adb_server.port))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def serial(self):
        return self.servers[0].serial

    @property
    def serials(self):
        return [server.serial for server in self.servers]

    @property
    def android(self):
        """The first phone; look at it through `call` only while something may run on it."""
        return self.servers[0].android

    def start(self):
        self._thread.start()
        for server in self.servers:
            self.call(server.start())
        for server in self.servers:
            assert self.call(server.wait_until_connected(START_S))

    def call(self, coroutine):
        """Runs a coroutine where the phones run."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(START_S)

    def stop(self):
        for server in self.servers:
            self.call(server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_S)
        self._loop.close()


def listens(port):
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(condition, what, timeout_s=START_S):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s for {what}"
        time.sleep(0.02)


@contextlib.contextmanager
def served(count, adb_server, **options):
    phones = ServedPhones(count, adb_server, **options)
    phones.start()
    try:
        yield phones
    finally:
        phones.stop()


@pytest.fixture(scope="session")
def adb_server(tmp_path_factory):
    """A real adb server that knows no device but those that the tests register."""
    server = AdbServer(tmp_path_factory.mktemp("adb"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def phone_server(adb_server):
    """One fresh phone behind the adb server."""
    with served(1, adb_server) as phones:
        wait_for(lambda: phones.serial in adb_server.serials(), phones.serial)
        yield phones


@pytest.fixture
def serve_phones(adb_server):
    """Serves `count` phones in a with block: serve_phones(2)."""
    return lambda count, **options: served(count, adb_server, **options)

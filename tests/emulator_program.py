"""A stand-in for Android's emulator program: the same flags and console, with a simulated phone.

What it gets wrong is in the file `mode` of the folder $STAND_IN; it notes each start in `starts`.
"""

import asyncio
import json
import os
import pathlib
import resource
import signal
import sys

if __name__ == "__main__":
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from actors.phone.android import Android
from actors.phone.faults import Faults
from actors.phone.phone import Phone
from actors.phone.server import PhoneServer, serial_of
from common.errors import ConfigError

FOLDER = pathlib.Path(os.environ["STAND_IN"])
AVDS = ("test", "other")
SWITCHES = {"-read-only", "-no-window", "-no-audio", "-no-boot-anim", "-no-snapshot-save"}
SWITCHES |= {"-no-snapshot-load"}
OPTIONS = {"-avd", "-ports", "-snapshot", "-gpu"}
GREETING = """Android Console: Authentication required
Android Console: type 'auth <auth_token>' to authenticate
Android Console: you can find your <auth_token> in
'{token}'
OK
"""


def mode() -> str:
    path = FOLDER / "mode"
    return path.read_text() if path.exists() else ""


def main() -> int:
    words = sys.argv[1:]
    if words == ["-version"]:
        print("INFO    | Android emulator version 35.3.11.0 (build_id 1) (CL:N/A)")
        return 0
    if words == ["-list-avds"]:
        print("INFO    | Storing crashdata in: /tmp", *AVDS, sep="\n")
        return 0
    options = {}
    rest = iter(words)
    for word in rest:
        if word not in SWITCHES | OPTIONS:
            print(f"unknown option: {word}\nplease use -help for a list of valid options")
            return 1
        options[word] = next(rest) if word in OPTIONS else ""
    with (FOLDER / "starts").open("a") as file:
        file.write(json.dumps({"pid": os.getpid(), "options": options}) + "\n")
    if mode() == "segfault":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), signal.SIGSEGV)
    if mode() == "hang":
        signal.pause()
    try:
        asyncio.run(serve(*map(int, options["-ports"].split(","))))
    except (ConfigError, OSError) as error:
        print(f"ERROR   | {error}")
        return 1
    return 0


async def serve(console_port: int, adb_port: int) -> None:
    faults = Faults("slow_boot" if mode() == "boot" else "")
    android = Android(Phone(0, 180, 320), serial_of(adb_port), faults=faults)
    phone = PhoneServer(android, adb_port, int(os.environ["ANDROID_ADB_SERVER_PORT"]))
    killed = asyncio.Event()
    token = FOLDER / ".emulator_console_auth_token"
    token.write_text("s3cret")

    async def console(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GREETING.format(token=token).encode())
        trusted = False
        while line := (await reader.readline()).decode().strip():
            if not trusted:
                trusted = line == "auth s3cret"
                answer = "OK" if trusted else "KO: authentication failed"
            elif line == "avd snapshot list":
                answer = "ID TAG SIZE DATE\n--  ready  20M  2025-01-01\nOK"
            elif line == "avd snapshot load ready" and mode() != "snapshot":
                android.reset(0)
                for connection in list(phone._connections):  # adbd of the past knows no host
                    connection.abort()
                answer = "OK"
            elif line == "kill":
                killed.set()
                answer = "OK: killing emulator, bye bye"
            else:
                answer = f"KO: {line!r} failed"
            writer.write(f"{answer}\r\n".encode())
        writer.close()

    server = await asyncio.start_server(console, "127.0.0.1", console_port)
    await phone.start()
    await killed.wait()
    await phone.close()
    server.close()


if __name__ == "__main__":
    sys.exit(main())

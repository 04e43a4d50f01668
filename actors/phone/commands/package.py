"""pm: which apps are installed, and installing more."""

from __future__ import annotations

import re

from actors.phone.process import Call, options

_NAME = re.compile(r"[A-Za-z]\w*(\.\w+)+")


async def pm(call: Call) -> int | None:
    verb, *args = call.args or [""]
    args = [word for word in args if word]
    phone = call.android.phone
    match verb, args:
        case "list", [what, *rest]:
            return _list(call, what, rest)
        case "path", _:
            return _path(call, options(args, with_value="--user")[1])
        case (("clear" | "uninstall"), _):
            return _remove(call, verb, options(args, with_value="--user")[1])
        case "install", _:
            return await _install(call, args)
        case (("grant" | "revoke" | "enable" | "disable" | "hide" | "unhide" | "trim-caches"), _):
            return None
        case "resolve-activity", _:
            names = [word for word in args if word in phone.packages]
            call.print(
                *(f"{name}/.MainActivity" for name in names) if names else ["No activity found"]
            )
            return None
    return call.error(f"Error: unknown command '{verb}'", 255)


def _list(call: Call, what: str, args: list[str]) -> int | None:
    flags, words = options(args, with_value="--user --uid")
    phone = call.android.phone
    if what == "packages":
        third = set(phone.third_party)
        names = [name for name in phone.packages if all(word in name for word in words)]
        if "-3" in flags:
            names = [name for name in names if name in third]
        if "-s" in flags:
            names = [name for name in names if name not in third]
        if "-d" in flags:
            names = []
        path = "=".join if "-f" in flags else None
        call.print(*(f"package:{path([_apk(n), n]) if path else n}" for n in names))
    elif what == "features":
        call.print("feature:android.hardware.touchscreen", "feature:android.hardware.wifi")
    elif what == "users":
        call.print("Users:", "\tUserInfo{0:Owner:4c13} running")
    elif what not in ("libraries", "instrumentation", "permissions", "permission-groups"):
        return call.error(f"Error: unknown list type '{what}'", 255)
    return None


def _apk(package: str) -> str:
    return f"/data/app/{package}/base.apk"


def _path(call: Call, words: list[str]) -> int | None:
    if words[:1] == ["android"]:  # the system's own
        call.print("package:/system/framework/framework-res.apk")
        return None
    if not words or words[0] not in call.android.phone.packages:
        return 1
    call.print(f"package:{_apk(words[0])}")
    return None


def _remove(call: Call, verb: str, words: list[str]) -> int | None:
    phone = call.android.phone
    package = words[0] if words else ""
    if verb == "clear" and package in phone.packages:
        phone.force_stop(package)
    elif verb == "clear" or not phone.uninstall(package):
        call.print("Failed" if verb == "clear" else "Failure [DELETE_FAILED_INTERNAL_ERROR]")
        return 1
    call.print("Success")
    return None


async def _install(call: Call, args: list[str]) -> int | None:
    """Installs a file, or -S BYTES of standard input.

    There is no code to run: the file's name (or, from standard input, its text) names the package.
    """
    flags, words = options(args, with_value="-S -i --user --abi")
    if flags.get("-S", "").isdecimal():
        data = await call.streams.stdin.read(int(flags["-S"]))
        package = data[:256].decode(errors="replace").strip()
    elif words:
        data = call.android.files.read(call.path(words[0]))
        package = words[0].rpartition("/")[2].removesuffix(".apk")
        if not _NAME.fullmatch(package):
            package = data[:256].decode(errors="replace").strip()
    else:
        return call.error("Error: no package specified", 255)
    if not _NAME.fullmatch(package):
        call.print("Failure [INSTALL_PARSE_FAILED_NOT_APK]")
        return 1
    call.android.phone.install(package)
    call.print("Success")
    return None


COMMANDS = {"pm": pm}
